// Sessions, how long what was read is kept, and that clients share nothing.
#include "serve/texts/sessions.h"

#include <gmock/gmock.h>

#include <future>

#include "ballast/engine/packing.h"
#include "model/identity_basis.h"
#include "serve/asking.h"
#include "serve/random_calibration.h"
#include "serve/texts/prefix_files.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

std::string told(const std::string& text = document(20)) { return text; }

std::size_t cached(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json()["usage"]["cached_tokens"];
}

/// The same conversation with its answer and another question.
Json next(Json body, const Reply& reply) {
  body["messages"].push_back({{"role", "assistant"}, {"content", text_of(reply)}});
  body["messages"].push_back({{"role", "user"}, {"content", "And record 7?"}});
  return body;
}

TEST(ServeSessions, AreMadeUsedForkedAndRemoved) {
  const TestServer server;
  const Json made = server.post("/v1/sessions", {{"name", "agent"}, {"ttl", "5m"}}).json();
  EXPECT_EQ(made["ttl"], 300);
  EXPECT_EQ(made["tokens"], 0);
  EXPECT_EQ(made["where"], "nowhere");
  const std::string id = made["id"], path = "/v1/sessions/" + id;
  Json body = chat(told());
  const std::string plain = text_of(server.post(kChat, body));
  body["session"] = id;
  const Reply first = server.post(kChat, body);
  EXPECT_EQ(text_of(first), plain);
  const Json after = server.get(path).json();
  EXPECT_GT(after["tokens"], 100);
  EXPECT_EQ(after["cached_tokens"], after["tokens"]);
  EXPECT_GT(after["bytes"], 0);
  EXPECT_EQ(after["where"], "memory");

  const Json fork = server.post(path + "/fork", Json::object()).json();
  EXPECT_NE(fork["id"], made["id"]);
  EXPECT_EQ(fork["tokens"], after["tokens"]);
  Json branch = next(body, first);
  branch["session"] = fork["id"];
  EXPECT_GT(cached(server.post(kChat, branch)), 100u);
  EXPECT_EQ(server.get(path).json()["tokens"], after["tokens"]);
  EXPECT_GT(server.get("/v1/sessions/" + fork["id"].get<std::string>()).json()["tokens"],
            after["tokens"]);
  EXPECT_EQ(server.get("/v1/sessions").json()["data"].size(), 2u);

  EXPECT_EQ(server.post(path + "/pin", Json::object()).json()["pinned"], true);
  EXPECT_EQ(server.post(path + "/release", Json::object()).json()["pinned"], false);
  EXPECT_EQ(send(server.port(), "DELETE", path).json()["deleted"], true);
  EXPECT_EQ(server.get(path).code(), "session_not_found");
  EXPECT_EQ(server.post(kChat, body).code(), "session_not_found");
  body["session"] = fork["id"];
  EXPECT_GT(cached(server.post(kChat, body)), 100u) << "rows of the fork stay";
  body["cache"] = {{"bytes", 0.5}};
  EXPECT_THAT(server.post(kChat, body).body, HasSubstr("has its own cache"));
  EXPECT_THAT(server.post("/v1/sessions", {{"ttl", "2d"}}).body, HasSubstr("24h"));
}

TEST(ServeSessions, StayWhenTheirForksAreRemoved) {
  const TestServer server;
  const Json made = server.post("/v1/sessions", Json::object()).json();
  const std::string path = "/v1/sessions/" + made["id"].get<std::string>();
  Json body = chat(told());
  body["session"] = made["id"];
  const Reply first = server.post(kChat, body);
  const std::size_t before = server.get(path).json()["cached_tokens"];
  for (int i = 0; i < 2; ++i) {
    const std::string fork = server.post(path + "/fork", Json::object()).json()["id"];
    Json branch = next(body, first);
    branch["session"] = fork;
    EXPECT_GE(cached(server.post(kChat, branch)), before - 1) << "fork " << i;
    EXPECT_EQ(send(server.port(), "DELETE", "/v1/sessions/" + fork).status, 200);
    EXPECT_EQ(server.get(path).json()["cached_tokens"], before);
  }
  EXPECT_EQ(send(server.port(), "DELETE", path).status, 200);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("ballast_prefixes 0\n"));
}

// What an edit of an earlier message, or another salt, leaves behind goes with the session.
TEST(ServeSessions, LeaveNothingWhenTheyAreRemoved) {
  const TestServer server;
  const Json made = server.post("/v1/sessions", Json::object()).json();
  const std::string path = "/v1/sessions/" + made["id"].get<std::string>();
  Json body = chat(told());
  body["session"] = made["id"];
  Json turn = next(body, server.post(kChat, body));
  EXPECT_GT(cached(server.post(kChat, turn)), 100u);
  turn["messages"].back()["content"] = "Rather record 9?";
  EXPECT_GT(cached(server.post(kChat, turn)), 100u);
  turn["cache_salt"] = "another";
  EXPECT_EQ(cached(server.post(kChat, turn)), 0u);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("ballast_prefixes 3\n"));
  const Json fork = server.post(path + "/fork", Json::object()).json();
  EXPECT_EQ(send(server.port(), "DELETE", path).status, 200);
  const std::string other = "/v1/sessions/" + fork["id"].get<std::string>();
  const Json left = server.get(other).json();
  EXPECT_EQ(left["cached_tokens"], left["tokens"]);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("ballast_prefixes 1\n"));
  EXPECT_EQ(send(server.port(), "DELETE", other).status, 200);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("ballast_prefixes 0\n"));
}

TEST(ServeSessions, LeaveNothingWhenTheyAreRemovedDuringAnAnswer) {
  const TestServer server;
  const Json made = server.post("/v1/sessions", {{"pinned", true}}).json();
  Json body = chat(told());
  body["session"] = made["id"];
  body["max_tokens"] = 200;
  body["ignore_eos"] = true;
  auto answer = std::async(std::launch::async, [&] { return server.post(kChat, body).status; });
  while (server.get("/metrics").body.find("ballast_streams 1\n") == std::string::npos) {
  }
  const std::string path = "/v1/sessions/" + made["id"].get<std::string>();
  EXPECT_EQ(send(server.port(), "DELETE", path).status, 200);
  EXPECT_EQ(answer.get(), 200);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("ballast_prefixes 0\n"));
}

TEST(ServeSessions, HaveTheirSizeAndAreCompacted) {
  const TestServer server;
  const Json made =
      server.post("/v1/sessions", {{"cache", {{"bytes", "64K"}, {"compact", "auto"}}}}).json();
  const std::string path = "/v1/sessions/" + made["id"].get<std::string>();
  EXPECT_EQ(server.post(path + "/compact", {{"bytes", "32K"}}).code(), "nothing_cached");
  Json body = chat(told());
  body["session"] = made["id"];
  EXPECT_GT(server.post(kChat, body).json()["usage"]["cache_bytes"], 0);
  EXPECT_THAT(server.post(path + "/compact", Json::object()).body, HasSubstr("give a size"));
  const Json exact = server.post("/v1/sessions", Json::object()).json();
  body["session"] = exact["id"];
  server.post(kChat, body);
  EXPECT_THAT(
      server.post("/v1/sessions/" + exact["id"].get<std::string>() + "/compact", {{"bytes", "32K"}})
          .body,
      HasSubstr("release"));
}

/// A session of a stream that has room for all it reads.
std::string roomy_session(const TestServer& server) {
  const Json made =
      server.post("/v1/sessions", {{"cache", {{"bytes", "8M"}, {"compact", "auto"}}}}).json();
  return made["id"];
}

// A model without a calibration has scores of a turn once it has read the next one.
TEST(ServeSessions, SayWhyTheyCannotBeCompactedYet) {
  const TestServer server;
  const std::string id = roomy_session(server), path = "/v1/sessions/" + id;
  Json body = chat(told(document(60)));
  body["session"] = id;
  const Reply first = server.post(kChat, body);
  const std::size_t before = server.get(path).json()["bytes"];
  server.post(kChat, next(body, first));
  const Reply reply = server.post(path + "/compact", {{"bytes", before / 2}});
  EXPECT_EQ(reply.status, 400) << reply.body;
  EXPECT_THAT(reply.body, HasSubstr("tokens have no scores yet"));
}

TEST(ServeSessions, AreCompactedWhereTheyAreAndGoOn) {
  const Model model = randomly_calibrated(kMini);
  const TestServer server(model, {});
  const std::string id = roomy_session(server), path = "/v1/sessions/" + id;
  Json body = chat(told(document(60)));
  body["session"] = id;
  const Reply first = server.post(kChat, body);
  const std::size_t before = server.get(path).json()["bytes"];
  const Reply reply = server.post(path + "/compact", {{"bytes", before / 2}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_LT(reply.json()["bytes"], before * 3 / 5);
  EXPECT_EQ(reply.json()["where"], "memory");
  EXPECT_GT(cached(server.post(kChat, next(body, first))), 100u);
}

// Two keys, or two salts of one key, never find what the other has read, and cannot tell by usage
// or the sums that it was read.
TEST(ServeSessions, KeysAndSaltsShareNothing) {
  serve::ServerOptions options;
  options.keys = {"one", "two"};
  const TestServer server(options);
  const auto ask = [&](const std::string& key, const char* salt) {
    Json body = chat(told());
    if (salt != nullptr) body["cache_salt"] = salt;
    return cached(server.post(kChat, body, {{"Authorization", "Bearer " + key}}));
  };
  const auto count = [&](const std::string& what) {
    const std::string text = server.get("/metrics", {{"Authorization", "Bearer one"}}).body;
    const std::string name = "\nballast_" + what + " ";
    return std::stoul(text.substr(text.find(name) + name.size()));
  };
  // The work of a request says what its time could: a text that others have sent takes as much as
  // one that nobody has.
  std::size_t read = 0, unseen = 0;
  for (const auto& [key, salt] : std::initializer_list<std::pair<const char*, const char*>>{
           {"one", nullptr}, {"two", nullptr}, {"one", "a"}, {"one", "b"}, {"two", "a"}}) {
    EXPECT_EQ(ask(key, salt), 0u) << key;
    EXPECT_EQ(count("cached_tokens_total"), 0u) << key;
    const std::size_t now = count("prompt_tokens_total");
    if (unseen == 0) unseen = now;
    EXPECT_EQ(now - std::exchange(read, now), unseen) << key;
  }
  EXPECT_GT(ask("one", "a"), 100u);
  EXPECT_GT(ask("two", nullptr), 100u);
  EXPECT_GT(count("cached_tokens_total"), 200u);
  EXPECT_LT(count("prompt_tokens_total") - read, unseen);

  const Headers mine = {{"Authorization", "Bearer one"}}, other = {{"Authorization", "Bearer two"}};
  const Json made = server.post("/v1/sessions", Json::object(), mine).json();
  const std::string path = "/v1/sessions/" + made["id"].get<std::string>();
  EXPECT_EQ(server.get(path, mine).status, 200);
  EXPECT_EQ(server.get(path, other).status, 404);
  EXPECT_EQ(server.get("/v1/sessions", other).json()["data"].size(), 0u);
  for (const char* verb : {"/fork", "/pin", "/release"}) {
    EXPECT_EQ(server.post(path + verb, Json::object(), other).status, 404) << verb;
  }
  Json body = chat(told());
  body["session"] = made["id"];
  EXPECT_EQ(server.post(kChat, body, other).status, 404);
  body.erase("session");
  body["cache_salt"] = "";
  EXPECT_THAT(server.post(kChat, body, mine).body, HasSubstr("cache_salt"));
}

TEST(ServeSessions, MarksOfAnthropicsApiAreCounted) {
  const TestServer server;
  const Json control = {{"type", "ephemeral"}, {"ttl", "1h"}};
  Json body = {{"max_tokens", 4}, {"temperature", 0}};
  body["system"] = {{{"type", "text"}, {"text", told()}, {"cache_control", control}}};
  body["messages"] = {{{"role", "user"}, {"content", "Who?"}}};
  const Json first = server.post("/v1/messages", body).json()["usage"];
  EXPECT_GT(first["cache_creation_input_tokens"], 100);
  EXPECT_EQ(first["cache_creation"]["ephemeral_1h_input_tokens"],
            first["cache_creation_input_tokens"]);
  EXPECT_EQ(first["cache_read_input_tokens"], 0);
  EXPECT_GT(first["input_tokens"], 0);
  body["messages"][0]["content"] = "And where?";
  const Json second = server.post("/v1/messages", body).json()["usage"];
  EXPECT_EQ(second["cache_creation_input_tokens"], 0);
  EXPECT_GE(second["cache_read_input_tokens"], first["cache_creation_input_tokens"]);
  body["system"][0]["cache_control"]["ttl"] = "2h";
  EXPECT_THAT(server.post("/v1/messages", body).body, HasSubstr("ttl"));
  body["system"][0].erase("cache_control");
  EXPECT_EQ(server.post("/v1/messages", body).json()["usage"]["cache_creation_input_tokens"], 0);

  Json chat_body = chat(told());
  chat_body["prompt_cache_retention"] = "24h";
  chat_body["prompt_cache_key"] = "agent";
  EXPECT_EQ(server.post(kChat, chat_body).status, 200);
  chat_body["prompt_cache_retention"] = "2h";
  EXPECT_THAT(server.post(kChat, chat_body).body, HasSubstr("in_memory"));
}

serve::Prefix read(const Model& model, Token first, std::size_t tokens, const char* method) {
  CacheOptions options;
  options.policy = Policy::parse(method);
  options.key_type = options.value_type = StorageType::bf16;
  Sequence sequence(model, options);
  std::vector<Token> text(tokens);
  for (std::size_t i = 0; i < tokens; ++i) {
    text[i] = static_cast<Token>((static_cast<std::size_t>(first) + i * 7) % 1000);
  }
  Engine(model).prefill(sequence, text);
  const std::size_t compressed =
      options.policy.info().window_policy == WindowPolicy::all ? 0 : tokens;
  return {method, text, compressed, false, {}, std::move(sequence.cache()), serve::Lease(), ""};
}

// What rests is packed before anything is dropped, and comes back.
TEST(ServeSessions, ThoseThatRestArePackedFirst) {
  const TempDir dir;
  const Model model(model_with_basis(kMini, dir.path()));
  const PackPreset preset = pack_preset(model, "1/16");
  serve::Metrics metrics;
  const std::size_t one = read(model, 1, 600, "exact").bytes();
  serve::Memory memory(one * 5 / 2);
  serve::Prefixes prefixes(memory, metrics, nullptr, serve::PrefixPacker(model, preset));
  std::vector<std::vector<Token>> texts;
  for (Token first = 1; first < 5; ++first) {
    serve::Prefix prefix = read(model, first, 600, "exact");
    texts.push_back(prefix.tokens);
    prefixes.keep(std::move(prefix));
  }
  EXPECT_EQ(metrics.prefixes + metrics.prefixes_packed, 4u);
  EXPECT_GE(metrics.prefixes_packed, 2u);
  EXPECT_STREQ(prefixes.held("exact", texts[0]).where, "packed");
  EXPECT_LT(2 * prefixes.held("exact", texts[0]).bytes, one);
  EXPECT_STREQ(prefixes.held("exact", texts[3]).where, "memory");
  std::vector<Token> more = texts[0];
  more.push_back(5);
  const auto found = prefixes.find("exact", more, 0);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->tokens, 600u);
  EXPECT_EQ(found->cache.tokens(), 600u);
  EXPECT_STREQ(prefixes.held("exact", texts[0]).where, "memory");
  prefixes.release("exact", texts[0]);
  EXPECT_STREQ(prefixes.held("exact", texts[0]).where, "packed");
  prefixes.remove("exact", texts[0]);
  EXPECT_STREQ(prefixes.held("exact", texts[0]).where, "nowhere");
}

// Once memory runs short what rests is packed beside the work, before anyone needs the memory.
TEST(ServeSessions, ThoseThatRestArePackedBesideTheWork) {
  const TempDir dir;
  const Model model(model_with_basis(kMini, dir.path()));
  serve::Metrics metrics;
  serve::Memory memory(read(model, 1, 600, "exact").bytes() * 5 / 4);
  serve::Prefixes prefixes(memory, metrics, nullptr,
                           serve::PrefixPacker(model, pack_preset(model, "1/16")),
                           std::chrono::seconds(0));
  const std::vector<Token> text = read(model, 1, 600, "exact").tokens;
  prefixes.keep(read(model, 1, 600, "exact"));
  for (int i = 0; i < 600 && metrics.prefixes_packed == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_STREQ(prefixes.held("exact", text).where, "packed");
  EXPECT_GT(memory.left(), memory.total() / 4);
}

// A text that was compressed costs as much to read again and takes fewer bytes: it stays longer.
// One that is held stays longest.
TEST(ServeSessions, WhatIsCheapToReadAgainForItsBytesGoesFirst) {
  const Model model(kMini);
  serve::Metrics metrics;
  const std::size_t one = read(model, 1, 600, "exact").bytes();
  serve::Memory memory(one * 3);
  serve::Prefixes prefixes(memory, metrics, nullptr);
  const char* kSmall = "streaming-llm:budget=64";
  const auto small = read(model, 1, 600, kSmall).tokens;
  const auto exact = read(model, 2, 600, "exact").tokens,
             held = read(model, 3, 600, "exact").tokens;
  prefixes.keep(read(model, 1, 600, kSmall));
  prefixes.keep(read(model, 3, 600, "exact"), std::chrono::hours(1));
  prefixes.keep(read(model, 2, 600, "exact"));
  ASSERT_TRUE(prefixes.evict());
  EXPECT_STREQ(prefixes.held("exact", exact).where, "nowhere");
  ASSERT_TRUE(prefixes.evict());
  EXPECT_STREQ(prefixes.held(kSmall, small).where, "nowhere");
  EXPECT_STREQ(prefixes.held("exact", held).where, "memory");
  ASSERT_TRUE(prefixes.evict());
  EXPECT_FALSE(prefixes.evict());
}

}  // namespace
}  // namespace ballast::test
