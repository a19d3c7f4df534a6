// Beginnings of conversations that outlive a server.
#include "serve/texts/prefix_files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "serve/asking.h"
#include "serve/scheduling/scheduler.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

namespace fs = std::filesystem;

class ServePrefixFiles : public testing::Test {
 protected:
  ServePrefixFiles() { options_.cache_dir = dir_ / "kept"; }
  fs::path folder() const { return options_.cache_dir / "beginnings"; }
  /// Of caches; each has a note beside it.
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder())) {
      if (entry.path().extension() == ".cache") out.push_back(entry.path());
    }
    return out;
  }
  std::size_t folder_bytes() const {
    std::size_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder())) bytes += entry.file_size();
    return bytes;
  }
  static Json talk(const std::string& text, const Json& cache = {{"method", "exact"}}) {
    Json body = chat(text);
    body["cache"] = cache;
    return body;
  }
  static Json answer(const TestServer& server, const Json& body) {
    const Reply reply = server.post("/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  static Json tokens_cached(const Json& reply) { return reply["usage"]["cached_tokens"]; }
  /// A question after what was said.
  static Json next(Json body, const Json& reply) {
    body["messages"].push_back(
        {{"role", "assistant"}, {"content", reply["choices"][0]["message"]["content"]}});
    body["messages"].push_back({{"role", "user"}, {"content", "And record 7?"}});
    return body;
  }

  TempDir dir_;
  serve::ServerOptions options_;
};

TEST_F(ServePrefixFiles, AreGoneOnFromAfterARestart) {
  for (const Json& cache : {Json({{"method", "exact"}}), Json({{"bytes", 0.25}}),
                            Json({{"method", "uniform:rate=0.5"}}), Json({{"type", "q4"}})}) {
    const Json first = talk(document(20), cache);
    Json said, second;
    {
      const TestServer server(options_);
      said = answer(server, first);
      second = next(first, said);
    }
    const TestServer fresh;
    const Json expected = answer(fresh, second);
    {
      const TestServer server(options_);
      const Json again = answer(server, first);  // compressed: with the logits of the file
      EXPECT_EQ(again["choices"], said["choices"]) << cache;
      EXPECT_GT(tokens_cached(again), 100) << cache;
    }
    const TestServer server(options_);
    const Json hit = answer(server, second);
    EXPECT_EQ(hit["choices"], expected["choices"]) << cache;
    EXPECT_GT(tokens_cached(hit), 100) << cache;
  }
}

TEST_F(ServePrefixFiles, AConversationLeavesItsLastTurnAlone) {
  {
    const TestServer server(options_);
    const Json body = talk(document(10));
    const Json second = next(body, answer(server, body));
    answer(server, next(second, answer(server, second)));
  }
  EXPECT_EQ(files().size(), 1u);
}

// Its last turn has not been written yet, and would replace the file of the one before.
TEST_F(ServePrefixFiles, ASessionThatIsRemovedLeavesNone) {
  const Json first = talk(document(20));
  Json said;
  {
    const TestServer server(options_);
    said = answer(server, first);
  }
  ASSERT_EQ(files().size(), 1u);
  const TestServer server(options_);
  Json body = next(first, said);
  body.erase("cache");
  const Json made = server.post("/v1/sessions", {{"cache", {{"method", "exact"}}}}).json();
  body["session"] = made["id"];
  EXPECT_GT(tokens_cached(answer(server, body)), 100);
  EXPECT_EQ(files().size(), 1u);
  const std::string path = "/v1/sessions/" + made["id"].get<std::string>();
  EXPECT_EQ(send(server.port(), "DELETE", path).status, 200);
  EXPECT_EQ(files().size(), 0u);
  EXPECT_EQ(folder_bytes(), 0u);
}

TEST_F(ServePrefixFiles, OtherServersFindThem) {
  const Json body = talk(document(20));
  const TestServer other(options_);
  EXPECT_EQ(tokens_cached(answer(other, talk("Hello"))), 0);
  {
    const TestServer server(options_);
    answer(server, body);
  }
  EXPECT_GT(tokens_cached(answer(other, body)), 100);
}

TEST_F(ServePrefixFiles, OfOtherModelsOptionsAndDamagedOnesAreNotUsed) {
  const Json body = talk(document(20));
  Json expected;
  {
    const TestServer server(options_);
    expected = answer(server, body)["choices"];
  }
  {
    const TestServer server(options_);
    EXPECT_EQ(tokens_cached(answer(server, talk(document(20), {{"type", "f16"}}))), 0);
  }
  // A model whose first numbers differ in one byte.
  std::string other = read_text(kMini);
  const TensorView* tensor = TestServer::mini().file().find(Weight::query, 0);
  const std::string_view begin(reinterpret_cast<const char*>(tensor->data.data()), 64);
  other[other.find(begin) + 2] ^= 1;
  write_text(dir_ / "other.gguf", other);
  {
    const Model changed(dir_ / "other.gguf");
    const TestServer foreign(changed, options_);
    EXPECT_EQ(tokens_cached(answer(foreign, body)), 0);
  }
  for (const fs::path& file : files()) {
    std::string bytes = read_text(file);
    bytes[bytes.size() / 2] ^= 1;
    write_text(file, bytes);
  }
  {
    const TestServer server(options_);
    const Json reply = answer(server, body);
    EXPECT_EQ(tokens_cached(reply), 0);
    EXPECT_EQ(reply["choices"], expected);
  }
  // The damaged one made way for that of the text read again; now its note is another text's.
  for (fs::path note : files()) {
    std::string text = read_text(note.replace_extension(".json"));
    text.insert(text.find("\"tokens\":[") + 10, "7,");
    write_text(note, text);
  }
  const TestServer server(options_);
  EXPECT_EQ(answer(server, body)["choices"], expected);
}

TEST_F(ServePrefixFiles, TakeNoMoreBytesThanGiven) {
  {
    const TestServer server(options_);
    answer(server, talk(document(20)));
  }
  const std::size_t one = folder_bytes();
  options_.cache_dir_max = one * 5 / 2;
  for (const char* word : {"alpha ", "beta ", "gamma "}) {
    const TestServer server(options_);
    answer(server, talk(word + document(20)));
    EXPECT_LE(folder_bytes(), options_.cache_dir_max);
  }
  EXPECT_EQ(files().size(), 2u);
  {
    const TestServer server(options_);
    EXPECT_EQ(tokens_cached(answer(server, talk(document(20)))), 0);  // used longest ago
  }
  options_.cache_dir_max = 0;
  options_.cache_dir = dir_ / "none";
  const TestServer server(options_);
  answer(server, talk(document(20)));
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(ServePrefixFiles, ThoseThatWaitGiveUpTheirMemory) {
  CacheOptions cache;
  cache.key_type = cache.value_type = StorageType::bf16;
  const Model& model = TestServer::mini();
  options_.memory = serve::Scheduler::own_memory(model, options_.slots) +
                    model.estimate(cache, 700, 0).cache * 5 / 2;
  const TestServer server(options_);
  const Json first = talk(document(20));
  const Json said = answer(server, first);
  for (int i = 0; i < 4; ++i) answer(server, talk(std::to_string(i) + document(20)));
  EXPECT_LT(server.metric("prefixes"), 5);
  EXPECT_EQ(answer(server, first)["choices"], said["choices"]);
}

}  // namespace
}  // namespace ballast::test
