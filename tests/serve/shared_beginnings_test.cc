// A beginning that sessions have in common is held, and paid for, once.
#include <gmock/gmock.h>

#include "ballast/engine/packing.h"
#include "model/identity_basis.h"
#include "serve/asking.h"
#include "serve/texts/prefix_files.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

constexpr std::size_t kBegun = 1000, kMore = 40;

class SharedBeginnings : public testing::Test {
 protected:
  static std::vector<Token> words(std::size_t count, Token first) {
    std::vector<Token> out(count);
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = static_cast<Token>((static_cast<std::size_t>(first) + i * 7) % 1000);
    }
    return out;
  }
  serve::Prefix prefix(std::vector<Token> text, Cache cache) {
    return {"exact", std::move(text), 0, false, {}, std::move(cache), serve::Lease(), ""};
  }
  Cache read(const std::vector<Token>& text) {
    Sequence sequence(model_, {});
    Engine(model_).prefill(sequence, text);
    return std::move(sequence.cache());
  }
  /// The logits of one more token.
  std::vector<float> next(Cache cache) {
    Sequence sequence(model_, std::move(cache));
    return Engine(model_).prefill(sequence, std::vector<Token>{3}, {.finish_prompt = false});
  }
  /// A session that begins with `text_`, answered on what is kept. Returns its text.
  std::vector<Token> go_on(serve::Prefixes& prefixes, Token first) {
    std::vector<Token> text = text_;
    const std::vector<Token> more = words(kMore, first);
    text.insert(text.end(), more.begin(), more.end());
    auto found = prefixes.find("exact", text, 0, false);
    EXPECT_TRUE(found.has_value());
    EXPECT_EQ(found->tokens, kBegun);
    EXPECT_GT(found->rows.bytes(), 0u);
    Sequence sequence(model_, std::move(found->cache), text_);
    Engine(model_).prefill(sequence, more, {.finish_prompt = false});
    prefixes.keep(prefix(text, std::move(sequence.cache())));
    return text;
  }

  Model model_{kMini};
  std::vector<Token> text_ = words(kBegun, 1);
  serve::Metrics metrics_;
};

TEST_F(SharedBeginnings, FortySessionsHoldOneBeginningOnce) {
  const std::size_t one = prefix(text_, read(text_)).bytes();
  serve::Memory memory(50 * one);
  std::vector<std::vector<Token>> texts;
  {
    serve::Prefixes prefixes(memory, metrics_, nullptr);
    prefixes.keep(prefix(text_, read(text_)));
    prefixes.hold("exact", text_, std::chrono::hours(1));
    // The first session replaces the beginning that it goes on from, so others branch off it.
    for (Token first = 100; first < 140; ++first) texts.push_back(go_on(prefixes, first));
    EXPECT_EQ(metrics_.prefixes, 40u);
    EXPECT_LT(memory.taken(), one + 40 * one * 3 * (kMore + 128) / 2 / kBegun);
    EXPECT_EQ(metrics_.prefix_bytes, memory.taken());
    for (const auto& text : texts) {
      const serve::Prefixes::Held held = prefixes.held("exact", text);
      EXPECT_GT(held.shared, held.bytes * 3 / 4);
    }
    // Each is what it would be had it been read alone.
    for (std::size_t i : {0, 20, 39}) {
      std::vector<Token> more = texts[i];
      more.push_back(3);
      auto found = prefixes.find("exact", more, 0);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(next(std::move(found->cache)), next(read(texts[i])));
    }
    // What others have stays when those that had it first go.
    for (std::size_t i = 0; i < 39; ++i) prefixes.remove("exact", texts[i]);
    EXPECT_LT(memory.taken(), 3 * one);
    EXPECT_GE(memory.taken(), one);
    const serve::Prefixes::Held last = prefixes.held("exact", texts[39]);
    EXPECT_EQ(last.tokens, texts[39].size());
    EXPECT_EQ(last.shared, 0u);
  }
  EXPECT_EQ(memory.taken(), 0u);
}

// What rests is packed behind what is packed of the same tokens, comes back behind what is there,
// and goes on.
TEST_F(SharedBeginnings, APackedBeginningIsHeldOnce) {
  const TempDir dir;
  const Model model(model_with_basis(kMini, dir.path()));
  serve::Memory memory(std::size_t{1} << 30);
  {
    serve::Prefixes prefixes(memory, metrics_, nullptr,
                             serve::PrefixPacker(model, pack_preset(model, "1/4")));
    prefixes.keep(prefix(text_, read(text_)));
    std::vector<std::vector<Token>> texts;
    for (Token first = 100; first < 110; ++first) texts.push_back(go_on(prefixes, first));
    std::size_t whole = 0;
    for (const auto& text : texts) {
      prefixes.release("exact", text);
      const serve::Prefixes::Held held = prefixes.held("exact", text);
      EXPECT_STREQ(held.where, "packed");
      if (whole == 0) whole = memory.taken();
    }
    const serve::Prefixes::Held last = prefixes.held("exact", texts.back());
    EXPECT_GT(last.shared, last.bytes / 2);
    EXPECT_EQ(metrics_.prefix_bytes, memory.taken());
    std::size_t own = 0;
    for (const auto& text : texts) {
      const serve::Prefixes::Held held = prefixes.held("exact", text);
      own += held.bytes - held.shared;
    }
    EXPECT_EQ(own, memory.taken());
    // Back in any order; the beginning of the second is that of the first.
    for (std::size_t i : {7, 3}) {
      std::vector<Token> more = texts[i];
      more.push_back(3);
      auto found = prefixes.find("exact", more, 0);
      ASSERT_TRUE(found.has_value()) << i;
      EXPECT_EQ(found->tokens, texts[i].size());
      const auto logits = next(std::move(found->cache)), expected = next(read(texts[i]));
      EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(),
                std::ranges::max_element(expected) - expected.begin());
    }
    EXPECT_GT(prefixes.held("exact", texts[3]).shared, prefixes.held("exact", texts[3]).bytes / 2);
    for (const auto& text : texts) prefixes.remove("exact", text);
    EXPECT_EQ(memory.taken(), 0u);
  }
}

TEST_F(SharedBeginnings, AForkAndItsSessionShareRowsAndSayHowMany) {
  const TestServer server;
  const Json made = server.post("/v1/sessions", Json::object()).json();
  const std::string path = "/v1/sessions/" + made["id"].get<std::string>();
  Json body = chat(document(60));
  body["session"] = made["id"];
  const Reply first = server.post("/v1/chat/completions", body);
  EXPECT_EQ(server.get(path).json()["shared_bytes"], 0);
  body["messages"].push_back({{"role", "assistant"}, {"content", text_of(first)}});
  for (const char* question : {"And record 7?", "And record 8, which comes behind it?"}) {
    Json branch = body;
    branch["messages"].push_back({{"role", "user"}, {"content", question}});
    branch["session"] = server.post(path + "/fork", Json::object()).json()["id"];
    EXPECT_EQ(server.post("/v1/chat/completions", branch).status, 200);
  }
  std::size_t bytes = 0, shared = 0;
  const Json sessions = server.get("/v1/sessions").json()["data"];
  ASSERT_EQ(sessions.size(), 3u);
  for (const Json& one : sessions) {
    bytes += one["bytes"].get<std::size_t>();
    shared += one["shared_bytes"].get<std::size_t>();
  }
  EXPECT_GT(shared, bytes / 2);
}

}  // namespace
}  // namespace ballast::test
