// Contexts that the server keeps: their answers, restarts, damage, and folders that others share.
#include "serve/server.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "ballast/engine/context_file.h"
#include "serve/asking.h"
#include "serve/texts/contexts.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Contexts in a folder that outlives servers.
class ServeContexts : public testing::Test {
 protected:
  ServeContexts() { options_.cache_dir = dir_ / "contexts"; }
  static Json read(const TestServer& server, const Json& body) {
    const Reply reply = server.post("/v1/contexts", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  static Json about(const std::string& id) {
    Json body = chat("What is the number of record 42?");
    body["context"] = id;
    return body;
  }
  TempDir dir_;
  serve::ServerOptions options_;
};

TEST_F(ServeContexts, CitesTheSentenceThatAnAnswerRestsOn) {
  const TestServer server(options_);
  const Json made = read(server, {{"text", document(60)}, {"name", "records"}});
  Json body = about(made["id"]);
  const std::string plain = text_of(server.post("/v1/chat/completions", body));
  body["cite"] = true;
  const Reply reply = server.post("/v1/chat/completions", body);
  EXPECT_EQ(text_of(reply), plain);
  const Json choice = reply.json()["choices"][0], cited = choice["citations"][0];
  const int line = 42 * 29 % 101;  // i with 7 i mod 101 = 42
  EXPECT_EQ(cited["text"],
            fmt::format("line {}: the number of record 42 is {}.", line, line * 7919 % 9973));
  EXPECT_EQ(cited["line"], line + 1);
  EXPECT_EQ(cited["document"], "records");
  EXPECT_GT(cited["share"], 0.3);
  const Json kept = server.get("/v1/contexts/" + made["id"].get<std::string>() + "/kept").json();
  EXPECT_THAT(kept["tokens"][cited["tokens"][0].get<std::size_t>()].get<std::string>(),
              HasSubstr("line"));
  body["stream"] = true;
  Json last;
  for (const std::string& event : events_of(server.post("/v1/chat/completions", body).body)) {
    if (event != "[DONE]") last = Json::parse(event)["choices"][0];
  }
  EXPECT_EQ(last["citations"], choice["citations"]);
  // Choices of their own.
  body["stream"] = false;
  body["n"] = 2;
  const Json two = server.post("/v1/chat/completions", body).json()["choices"];
  EXPECT_EQ(two[0]["citations"], choice["citations"]);
  EXPECT_EQ(two[1]["citations"], choice["citations"]);

  Json alone = chat("Hello");
  alone["cite"] = true;
  const Reply refused = server.post("/v1/chat/completions", alone);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("cite: only with a context"));
}

/// Lines of a document from one to another.
std::string lines_of(int first, int end) {
  std::string out;
  for (int i = first; i < end; ++i) {
    out +=
        fmt::format("line {}: the number of record {} is {}.\n", i, i * 7 % 101, i * 7919 % 9973);
  }
  return out;
}

TEST_F(ServeContexts, SeveralStandOneBehindTheOther) {
  const TestServer server(options_);
  const Json cache = {{"bytes", 0.25}};
  const Json first = read(server, {{"text", lines_of(0, 30)}, {"cache", cache}});
  const Json second = read(server, {{"text", lines_of(30, 60)}, {"cache", cache}});
  Json body = about("");
  body["context"] = {first["id"], second["id"]};
  for (const int line : {20, 47}) {
    body["messages"][0]["content"] =
        fmt::format("What is the number of record {}?", line * 7 % 101);
    const Reply reply = server.post("/v1/chat/completions", body);
    EXPECT_THAT(text_of(reply), HasSubstr(fmt::format("{}", line * 7919 % 9973))) << line;
    const Json usage = reply.json()["usage"];
    EXPECT_GT(usage["cached_tokens"], first["tokens"]);
    EXPECT_LT(usage["cached_tokens"].get<int>(),
              first["tokens"].get<int>() + second["tokens"].get<int>());
    EXPECT_GT(usage["cache_bytes"],
              first["cache_bytes"].get<int>() + second["cache_bytes"].get<int>());
  }
  // One alone is itself.
  body["context"] = {first["id"]};
  const Reply alone = server.post("/v1/chat/completions", body);
  body["context"] = first["id"];
  EXPECT_EQ(text_of(server.post("/v1/chat/completions", body)), text_of(alone));

  body["context"] = {first["id"], "ctx_none"};
  EXPECT_EQ(server.post("/v1/chat/completions", body).code(), "context_not_found");
  body["context"] = Json::array();
  EXPECT_EQ(server.post("/v1/chat/completions", body).code(), "invalid_value");
  body["context"] = {first["id"], second["id"]};
  body["cite"] = true;
  EXPECT_THAT(server.post("/v1/chat/completions", body).body, HasSubstr("only with one context"));
}

/// What `ballast library add` has read.
TEST_F(ServeContexts, ALibraryIsAskedByItsWords) {
  options_.library = dir_ / "library";
  for (const auto& [name, text] :
       {std::pair("low.txt", lines_of(0, 30)), std::pair("high.txt", lines_of(30, 60)),
        std::pair("sea.txt", std::string("Nobody saw the ship."))}) {
    write_text(dir_ / name, text);
    const ProgramResult added =
        run({"library", "add", "-m", kMini, "--library", options_.library.string(), "-q", "--cache",
             "1/2", (dir_ / name).string()});
    EXPECT_EQ(added.exit_code, 0) << added.err;
  }
  write_text(options_.library / "0.json", "{\"name\": 1");  // damaged: left out
  const TestServer server(options_);
  EXPECT_EQ(server.get("/v1/contexts").json()["data"].size(), 0u);
  EXPECT_EQ(server.get("/v1/library").json()["data"].size(), 3u);
  Json body = about("library");
  body["messages"][0]["content"] = "What is the number of record 98?";
  const Reply plain = server.post("/v1/chat/completions", body);
  EXPECT_FALSE(plain.json()["choices"][0].contains("citations"));
  body["cite"] = true;
  const Reply reply = server.post("/v1/chat/completions", body);
  const int line = 14;  // 7 * 14 = 98
  EXPECT_THAT(text_of(reply), HasSubstr(fmt::format("{}", line * 7919 % 9973)));
  EXPECT_EQ(text_of(reply), text_of(plain));
  const Json cited = reply.json()["choices"][0]["citations"][0];
  EXPECT_EQ(cited["document"], "low.txt");
  EXPECT_EQ(cited["line"], line + 1);
  EXPECT_THAT(cited["text"].get<std::string>(),
              testing::StartsWith(fmt::format("line {}: the number of record 98", line)));
  // A document of it is a context, but not the server's to delete.
  body["context"] = cited["context"];
  EXPECT_EQ(server.post("/v1/chat/completions", body).json()["choices"][0]["citations"][0]["line"],
            line + 1);
  const std::string path = "/v1/contexts/" + cited["context"].get<std::string>();
  EXPECT_THAT(send(server.port(), "DELETE", path).body, HasSubstr("ballast library remove"));
  EXPECT_EQ(server.get(path).status, 200);

  body = about("library");
  body["messages"][0]["content"] = "Xyzzy?";
  EXPECT_EQ(text_of(server.post("/v1/chat/completions", body)), "Not in the library.");
  // What no section supports is asked of two together.
  body["messages"][0]["content"] = "Which wizard wrote the number of record zebra?";
  EXPECT_EQ(server.post("/v1/chat/completions", body).status, 200);
  // A document that is added now is there for the next question.
  write_text(dir_ / "mill.txt", "The mill xyzzy was sold.");
  EXPECT_EQ(run({"library", "add", "-m", kMini, "--library", options_.library.string(), "-q",
                 (dir_ / "mill.txt").string()})
                .exit_code,
            0);
  const Json listed = server.get("/v1/library").json()["data"];
  ASSERT_EQ(listed.size(), 4u);
  EXPECT_EQ(listed[2]["name"], "mill.txt");
  EXPECT_EQ(server.get("/v1/library/" + listed[2]["id"].get<std::string>()).json()["text"],
            "The mill xyzzy was sold.");
  EXPECT_EQ(server.get("/v1/library/none").status, 404);
  const TestServer other;
  EXPECT_THAT(other.post("/v1/chat/completions", about("library")).body, HasSubstr("--library"));
}

TEST_F(ServeContexts, CompactedOnesKeepTheirEnds) {
  const TestServer server(options_);
  const Json made = read(server, {{"text", document(60)},
                                  {"system", "You know all records."},
                                  {"cache", {{"bytes", "64K"}, {"compact", "auto"}}}});
  EXPECT_LE(made["cache_bytes"], 64 << 10);
  EXPECT_GT(made["exact_bytes"], 128 << 10);
  const Json kept = server.get("/v1/contexts/" + made["id"].get<std::string>() + "/kept").json();
  const std::vector<int> heads = kept["kept"];
  const int all = kept["layers"].get<int>() * kept["kv_heads"].get<int>();
  std::string head;
  for (std::size_t i = 0; i < heads.size() && heads[i] == all; ++i) head += kept["tokens"][i];
  EXPECT_THAT(head, HasSubstr("You know all records."));
  for (std::size_t i = heads.size() - 16; i < heads.size(); ++i) EXPECT_EQ(heads[i], all);
  EXPECT_LT(*std::ranges::min_element(heads), all);
}

TEST_F(ServeContexts, AreReadFromFiles) {
  const TestServer server(options_);
  const std::string text = "The pass key is 48213.";
  const Json plain = read(server, {{"text", text}});
  // base64 of the same text, of a web page, of a data URL
  const std::string base64 = "VGhlIHBhc3Mga2V5IGlzIDQ4MjEzLg==";
  const std::string page = "PHA+VGhlIHBhc3Mga2V5IGlzIDQ4MjEzLjwvcD4=";
  EXPECT_EQ(read(server, {{"file", base64}})["tokens"], plain["tokens"]);
  EXPECT_EQ(read(server, {{"file", "data:text/plain;base64," + base64}})["tokens"],
            plain["tokens"]);
  EXPECT_EQ(read(server, {{"file", page}, {"name", "a.html"}})["tokens"],
            read(server, {{"text", text + "\n"}})["tokens"]);
  const std::string xml =
      "PD94bWwgdmVyc2lvbj0iMS4wIj8+CjwhLS0geCAtLT48aHRtbD48cD5UaGUg"
      "cGFzcyBrZXkgaXMgNDgyMTMuPC9wPg==";
  for (const std::string& file : {xml, page, "data:text/html;charset=utf-8;base64," + page}) {
    EXPECT_EQ(read(server, {{"file", file}})["tokens"],
              read(server, {{"text", text + "\n"}})["tokens"]);
  }
  const auto refusal = [&](const Json& body) {
    const Reply reply = server.post("/v1/contexts", body);
    EXPECT_EQ(reply.status, 400);
    return reply.body;
  };
  EXPECT_THAT(refusal({{"file", "R0dVRgMAAAAAAAAA"}, {"name", "a.gguf"}}),  // "GGUF", zeros
              HasSubstr("a.gguf: a GGUF file"));
  EXPECT_THAT(refusal({{"file", "JVBERi0xLjQK"}, {"name", "a.pdf"}}), HasSubstr("a.pdf: "));
  EXPECT_THAT(refusal({{"file", "!"}}), HasSubstr("no bytes in base64"));
  EXPECT_THAT(refusal({{"file", base64}, {"text", text}}), HasSubstr("not both"));
  EXPECT_THAT(refusal({{"text", "%PDF-1.4 and so on"}}), HasSubstr("no text"));
  EXPECT_THAT(refusal({{"text", std::string("\1\2\3\0\4", 5)}}), HasSubstr("no text"));
}

TEST_F(ServeContexts, AnswersAreThoseOfRunAndSurviveARestart) {
  const std::string text = document(60);
  write_text(dir_ / "text", text);
  const std::string expected = run_text({"--context", (dir_ / "text").string(), "--cache", "1/4",
                                         "--question", "What is the number of record 42?"});
  std::string id;
  {
    const TestServer server(options_);
    const Json made =
        read(server, {{"text", text}, {"name", "records"}, {"cache", {{"bytes", "1/4"}}}});
    id = made["id"];
    EXPECT_LE(made["cache_bytes"].get<double>(), made["exact_bytes"].get<double>() / 4);
    const Reply reply = server.post("/v1/chat/completions", about(id));
    EXPECT_EQ(text_of(reply), expected);
    EXPECT_EQ(reply.json()["usage"]["cached_tokens"], made["tokens"]);
    EXPECT_EQ(text_of(server.post("/v1/chat/completions", about(id))), expected);
  }
  std::vector<Token> tokens;  // with which ballast run can read some of it again
  const Cache saved =
      load_context(options_.cache_dir / (id + ".cache"), TestServer::mini(), nullptr, &tokens);
  EXPECT_EQ(tokens.size(), saved.tokens());
  const TestServer server(options_);
  EXPECT_EQ(server.get("/v1/contexts").json()["data"][0]["name"], "records");
  EXPECT_EQ(text_of(server.post("/v1/chat/completions", about(id))), expected);
  EXPECT_EQ(server.metric("prompt_tokens_total") < 100, true);  // of the question only
  // Ten at once.
  std::vector<std::thread> threads;
  for (int i = 0; i < 10; ++i) {
    threads.emplace_back(
        [&] { EXPECT_EQ(text_of(server.post("/v1/chat/completions", about(id))), expected); });
  }
  for (std::thread& thread : threads) thread.join();

  const Json kept = server.get("/v1/contexts/" + id + "/kept").json();
  EXPECT_EQ(kept["tokens"].size(), kept["kept"].size());
  EXPECT_EQ(kept["heads"].size(), kept["layers"]);
  std::string words;
  for (const Json& token : kept["tokens"]) words += token;
  EXPECT_THAT(words, HasSubstr("the number of record 42 is"));
  const Json head = server.get("/v1/contexts/" + id + "/kept/0/0").json();
  EXPECT_EQ(head["positions"].size(), kept["heads"][0][0]);
  EXPECT_EQ(server.get("/v1/contexts/" + id + "/kept/99/0").code(), "no_such_head");

  EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/" + id).status, 200);
  EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/" + id).status, 404);
  EXPECT_EQ(server.post("/v1/chat/completions", about(id)).code(), "context_not_found");
  for (const auto& entry : std::filesystem::directory_iterator(options_.cache_dir)) {
    EXPECT_FALSE(entry.is_regular_file()) << entry.path();
  }
}

TEST_F(ServeContexts, AreToldOfAsTheyAreRead) {
  const TestServer server(options_);
  for (const char* method : {"exact", "replay:bytes=1/8"}) {
    const Json body = {{"text", document(60)}, {"stream", true}, {"cache", {{"method", method}}}};
    const std::vector<std::string> events = events_of(server.post("/v1/contexts", body).body);
    ASSERT_GT(events.size(), 3u) << method;
    double done = 0;
    for (std::size_t i = 0; i + 1 < events.size(); ++i) {
      const double now = Json::parse(events[i])["progress"];
      EXPECT_GT(now, done);
      EXPECT_LE(now, 1);
      done = now;
    }
    EXPECT_EQ(done, 1);
    EXPECT_GT(Json::parse(events.back())["tokens"], 100);
  }
  const Reply refused = server.post("/v1/contexts", {{"text", document(4000)}, {"stream", true}});
  EXPECT_EQ(refused.status, 400);  // before it begins
}

TEST_F(ServeContexts, ACharacterOfSeveralTokensIsShownWhole) {
  const TestServer server(options_);
  const std::string text = "Grüße, 東京 und 🏔 und Ende.";
  const std::string id = read(server, {{"text", text}, {"cache", {{"method", "exact"}}}})["id"];
  std::string words;
  const Json kept = server.get("/v1/contexts/" + id + "/kept").json();
  for (const Json& token : kept["tokens"]) words += token;
  EXPECT_THAT(words, HasSubstr(text));
}

TEST_F(ServeContexts, OfAnotherModelAndDamagedOnesAreLeftOut) {
  std::string id;
  {
    const TestServer server(options_);
    id = read(server, {{"text", document(5)}})["id"];
  }
  const std::filesystem::path file = options_.cache_dir / (id + ".cache");
  const std::string bytes = read_text(file);
  // A model whose first numbers differ in one byte.
  std::string other = read_text(kMini);
  const TensorView* tensor = TestServer::mini().file().find(Weight::query, 0);
  const std::string_view begin(reinterpret_cast<const char*>(tensor->data.data()), 64);
  other[other.find(begin) + 2] ^= 1;
  write_text(dir_ / "other.gguf", other);
  const Model changed(dir_ / "other.gguf");
  const TestServer foreign(changed, options_);
  EXPECT_EQ(foreign.get("/v1/contexts").json()["data"].size(), 0u);
  ASSERT_EQ(foreign.server().refused().size(), 1u);
  EXPECT_THAT(foreign.server().refused()[0], HasSubstr("another model"));

  std::string damaged = bytes;
  damaged[damaged.size() / 2] ^= 1;
  write_text(file, damaged);
  const TestServer server(options_);
  ASSERT_EQ(server.server().refused().size(), 1u);
  EXPECT_THAT(server.server().refused()[0], HasSubstr(file.filename().string()));
  EXPECT_EQ(server.post("/v1/chat/completions", about(id)).code(), "context_not_found");
}

TEST_F(ServeContexts, ServersThatShareAFolderLeaveEachOthersFilesAlone) {
  const std::filesystem::path left = options_.cache_dir / "ctx_left.cache.1.partial";
  const std::filesystem::path written = options_.cache_dir / "ctx_new.cache.2.partial";
  const std::filesystem::path other = options_.cache_dir / "synth.safetensors.3.partial";
  std::filesystem::create_directories(options_.cache_dir);
  write_text(left, "x");
  write_text(other, "x");
  {
    const TestServer first(options_);
    EXPECT_FALSE(std::filesystem::exists(left));  // its writer is gone
    EXPECT_TRUE(std::filesystem::exists(other));  // of another command
    write_text(written, "x");                     // as the first server does
    const std::string id = read(first, {{"text", document(5)}})["id"];
    const TestServer second(options_);
    EXPECT_TRUE(std::filesystem::exists(written));
    EXPECT_EQ(text_of(second.post("/v1/chat/completions", about(id))),
              text_of(first.post("/v1/chat/completions", about(id))));
  }
  const TestServer next(options_);
  EXPECT_FALSE(std::filesystem::exists(written));
}

TEST_F(ServeContexts, WhatAnotherServerRemovedIsGone) {
  const TestServer first(options_);
  const std::string loaded = read(first, {{"text", document(5)}})["id"];
  const std::string unread = read(first, {{"text", document(6)}})["id"];
  const TestServer second(options_);
  EXPECT_EQ(second.post("/v1/chat/completions", about(loaded)).status, 200);
  for (const std::string& id : {loaded, unread}) {
    EXPECT_EQ(send(first.port(), "DELETE", "/v1/contexts/" + id).status, 200);
    const Reply reply = second.post("/v1/chat/completions", about(id));
    EXPECT_EQ(reply.status, 404) << reply.body;
    EXPECT_EQ(reply.code(), "context_not_found");
    EXPECT_EQ(second.get("/v1/contexts/" + id + "/kept").code(), "context_not_found");
    EXPECT_EQ(second.get("/v1/contexts/" + id).status, 404);
    EXPECT_EQ(send(second.port(), "DELETE", "/v1/contexts/" + id).status, 404);
  }
  const std::string last = read(first, {{"text", document(5)}})["id"];
  const TestServer third(options_);
  EXPECT_EQ(third.get("/v1/contexts").json()["data"].size(), 1u);
  EXPECT_EQ(send(first.port(), "DELETE", "/v1/contexts/" + last).status, 200);
  EXPECT_THAT(third.get("/v1/contexts").json()["data"], IsEmpty());
}

TEST_F(ServeContexts, AFolderThatCannotBeWrittenIsTheServersFault) {
  const TestServer server(options_);
  std::filesystem::remove_all(options_.cache_dir);
  const Reply reply = server.post("/v1/contexts", {{"text", document(5)}});
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.code(), "internal_error");
  EXPECT_THAT(server.get("/v1/contexts").json()["data"], IsEmpty());
}

TEST_F(ServeContexts, OneIsEvictedWhileOthersLookAtThem) {
  const Model& model = TestServer::mini();
  serve::Memory memory(std::size_t{1} << 30);
  std::vector<std::string> refused;
  serve::Contexts contexts(model, memory, options_.cache_dir, refused);
  Sequence sequence(model, CacheOptions{});
  Engine(model).prefill(sequence, std::vector<Token>{1, 2, 3});
  const std::string id = contexts.add({}, std::move(sequence.cache()), {}).id;
  std::atomic<bool> ends = false;
  std::thread other([&] {
    while (!ends) contexts.list();
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_NE(contexts.get(id), nullptr);
    EXPECT_TRUE(contexts.evict(true)) << i;
  }
  ends = true;
  other.join();
}

TEST_F(ServeContexts, BelongToTheKeyThatMadeThem) {
  options_.keys = {"a", "b"};
  const Headers mine = {{"X-Api-Key", "a"}}, others = {{"Authorization", "Bearer b"}};
  std::string id;
  {
    const TestServer server(options_);
    const Reply made = server.post("/v1/contexts", {{"text", document(20)}}, mine);
    ASSERT_EQ(made.status, 200) << made.body;
    id = made.json()["id"];
  }
  const TestServer server(options_);  // its file says whose it is
  EXPECT_EQ(server.get("/v1/contexts", mine).json()["data"].size(), 1u);
  EXPECT_EQ(server.get("/v1/contexts", others).json()["data"].size(), 0u);
  for (const char* path : {"", "/kept", "/kept/0/0"}) {
    EXPECT_EQ(server.get("/v1/contexts/" + id + path, mine).status, 200);
    EXPECT_EQ(server.get("/v1/contexts/" + id + path, others).status, 404);
  }
  EXPECT_EQ(server.post("/v1/chat/completions", about(id), mine).status, 200);
  EXPECT_EQ(server.post("/v1/chat/completions", about(id), others).code(), "context_not_found");
  EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/" + id, "", others).status, 404);

  // Nor does the time of an answer say what another has asked.
  const Json body = chat(document(20));
  EXPECT_EQ(server.post("/v1/chat/completions", body, mine).status, 200);
  const auto cached = [&](const Headers& key) {
    return server.post("/v1/chat/completions", body, key).json()["usage"]["cached_tokens"];
  };
  EXPECT_EQ(cached(others), 0);
  EXPECT_GT(cached(mine), 100);
  EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/" + id, "", mine).status, 200);
  const auto mode = std::filesystem::status(options_.cache_dir).permissions();
  EXPECT_EQ(mode & std::filesystem::perms::all, std::filesystem::perms::owner_all);
}

TEST_F(ServeContexts, AServerWithoutKeysShowsNoneThatBelongToOne) {
  options_.keys = {"a"};
  const Headers mine = {{"X-Api-Key", "a"}};
  std::string owned, open;
  {
    const TestServer server(options_);
    owned = server.post("/v1/contexts", {{"text", document(20)}}, mine).json()["id"];
  }
  options_.keys.clear();
  {
    const TestServer server(options_);
    open = server.post("/v1/contexts", {{"text", document(20)}}).json()["id"];
    const Json all = server.get("/v1/contexts").json()["data"];
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0]["id"], open);
    for (const char* path : {"", "/kept", "/kept/0/0"}) {
      EXPECT_EQ(server.get("/v1/contexts/" + owned + path).status, 404);
      EXPECT_EQ(server.get("/v1/contexts/" + owned + path, mine).status, 404);
    }
    EXPECT_EQ(server.post("/v1/chat/completions", about(owned)).code(), "context_not_found");
    EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/" + owned, "").status, 404);
  }
  options_.keys = {"a"};
  const TestServer server(options_);
  EXPECT_EQ(server.post("/v1/chat/completions", about(owned), mine).status, 200);
  EXPECT_EQ(server.post("/v1/chat/completions", about(open), mine).status, 200);
}

TEST_F(ServeContexts, ALargeOneIsStillOfItsKeyAfterARestart) {
  const Model& model = TestServer::mini();
  serve::Memory memory(std::size_t{1} << 30);
  std::vector<std::string> refused, keys = {"a", "b"};
  const std::string text(std::size_t{3} << 20, 'x');
  std::string id;
  {
    serve::Contexts contexts(model, memory, options_.cache_dir, refused, keys);
    Sequence sequence(model, CacheOptions{});
    Engine(model).prefill(sequence, std::vector<Token>{1, 2, 3});
    serve::ContextInfo info;
    info.name = "large";
    info.before = text;
    info.owner = contexts.owners().of("a");
    id = contexts.add(info, std::move(sequence.cache()), {}).id;
  }
  serve::Contexts contexts(model, memory, options_.cache_dir, refused, keys);
  const auto info = contexts.info(id, contexts.owners().of("a"));
  ASSERT_TRUE(info);
  EXPECT_EQ(info->name, "large");
  EXPECT_TRUE(info->before == text);
  EXPECT_FALSE(contexts.info(id, contexts.owners().of("b")));
}

TEST_F(ServeContexts, OneOfAnUnknownOwnerIsNobodys) {
  const Headers mine = {{"X-Api-Key", "a"}}, others = {{"X-Api-Key", "b"}};
  options_.keys = {"a", "b"};
  // As earlier versions wrote them: the owner beside the file, by a hash of the key alone.
  const Model& model = TestServer::mini();
  std::filesystem::create_directories(options_.cache_dir);
  Sequence sequence(model, CacheOptions{});
  Engine(model).prefill(sequence, std::vector<Token>{1, 2, 3});
  const auto write = [&](const std::string& id, const std::string& note) {
    save_context(options_.cache_dir / (id + ".cache"), model, sequence.cache(), "raw");
    if (!note.empty()) write_text(options_.cache_dir / (id + ".json"), note);
  };
  const std::string of_a = "af63dc4c8601ec8c";  // FNV-1a of "a"
  write("ctx_known", Json{{"owner", of_a}, {"name", "n"}}.dump());
  write("ctx_long", Json{{"owner", of_a}, {"before", std::string(2 << 20, 'x')}}.dump());
  write("ctx_other", Json{{"owner", "0123456789abcdef"}}.dump());
  write("ctx_cut", R"({"owner": "af63dc4c8601ec8c", "name")");
  write("ctx_nothing", "");
  write("ctx_all", R"({"owner": "", "name": "made without keys"})");
  {
    const TestServer server(options_);
    const auto ids = [&](const Headers& key) {
      const Json all = server.get("/v1/contexts", key).json();
      std::set<std::string> out;
      for (const Json& one : all["data"]) out.insert(one["id"]);
      return out;
    };
    EXPECT_EQ(ids(mine), (std::set<std::string>{"ctx_all", "ctx_known", "ctx_long"}));
    EXPECT_EQ(ids(others), (std::set<std::string>{"ctx_all"}));
    EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/ctx_nothing", "", mine).status, 404);
    EXPECT_EQ(server.get("/v1/contexts/ctx_known", mine).json()["name"], "n");
    EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/ctx_known", "", mine).status, 200);
    EXPECT_FALSE(std::filesystem::exists(options_.cache_dir / "ctx_known.json"));
  }
  options_.keys.clear();
  {
    const TestServer server(options_);
    std::set<std::string> ids;
    const Json all = server.get("/v1/contexts").json();
    for (const Json& one : all["data"]) ids.insert(one["id"]);
    EXPECT_EQ(ids, (std::set<std::string>{"ctx_all", "ctx_cut", "ctx_nothing"}));
  }
  options_.keys = {"a", "b"};
  // The file does not tell the key, and only its user may read the random bytes.
  const auto mode = std::filesystem::status(options_.cache_dir / "owners.salt").permissions();
  EXPECT_EQ(mode & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const serve::Owners one(options_.keys, options_.cache_dir),
      same(options_.keys, options_.cache_dir);
  EXPECT_EQ(one.of("a"), same.of("a"));
  EXPECT_NE(one.of("a"), one.of("b"));
  EXPECT_NE(one.of("a"), serve::Owners(options_.keys).of("a"));
}

TEST_F(ServeContexts, NamesAreShort) {
  const TestServer server(options_);
  EXPECT_EQ(read(server, {{"text", "a"}, {"name", std::string(256, 'x')}})["name"],
            std::string(256, 'x'));
  const Reply reply = server.post("/v1/contexts", {{"text", "a"}, {"name", std::string(257, 'x')}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("name: 257 bytes are too many; give at most 256"));
}

TEST_F(ServeContexts, TheFolderHasAMost) {
  options_.cache_dir_max = 1 << 20;
  const TestServer server(options_);
  Reply last;
  std::string id;
  for (int i = 0; i < 1000; ++i) {
    last = server.post("/v1/contexts", {{"text", document(20)}});
    if (last.status != 200) break;
    id = last.json()["id"];
  }
  EXPECT_EQ(last.status, 507) << last.body;
  EXPECT_EQ(last.code(), "insufficient_storage");
  ASSERT_NE(id, "");
  EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/" + id).status, 200);
  EXPECT_EQ(server.post("/v1/contexts", {{"text", document(20)}}).status, 200);
}

TEST_F(ServeContexts, OneWhoseFileCannotBeRemovedStays) {
  const TestServer server(options_);
  const std::string id = read(server, {{"text", document(5)}})["id"];
  const std::filesystem::path file = options_.cache_dir / (id + ".cache");
  const std::string bytes = read_text(file);
  std::filesystem::remove(file);
  std::filesystem::create_directories(file / "x");  // root may remove what it may not write to
  const Reply refused = send(server.port(), "DELETE", "/v1/contexts/" + id);
  EXPECT_EQ(refused.status, 500);
  EXPECT_THAT(refused.body, HasSubstr(file.filename().string() + ": cannot be removed"));
  EXPECT_EQ(server.get("/v1/contexts/" + id).status, 200);
  std::filesystem::remove_all(file);
  write_text(file, bytes);
  EXPECT_EQ(send(server.port(), "DELETE", "/v1/contexts/" + id).status, 200);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(ServeContexts, ASystemMessageIsThatOfTheContextOrStandsBeforeTheQuestion) {
  const TestServer server;
  const std::string id = read(server, {{"text", document(5)}, {"system", "Be brief."}})["id"];
  const auto ask = [&](const std::vector<std::string>& system, const std::string& question) {
    Json body = about(id);
    body["messages"] = Json::array();
    for (const std::string& text : system) {
      body["messages"].push_back({{"role", "system"}, {"content", text}});
    }
    body["messages"].push_back({{"role", "user"}, {"content", question}});
    const Reply reply = server.post("/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    Json usage = reply.json()["usage"];
    return std::pair(text_of(reply), usage["prompt_tokens"]);
  };
  EXPECT_EQ(ask({"Be brief."}, "Who?"), ask({}, "Who?"));
  EXPECT_EQ(ask({"Be long.", "Be brief."}, "Who?"), ask({}, "Be long.\n\nWho?"));
  Json body = about(id);
  body["messages"] = {{{"role", "system"}, {"content", "x"}}};
  EXPECT_THAT(server.post("/v1/chat/completions", body).body, HasSubstr("messages[0].role"));
  body["messages"].push_back({{"role", "assistant"}, {"content", "x"}});
  EXPECT_THAT(server.post("/v1/chat/completions", body).body, HasSubstr("messages[1].role"));
}

TEST_F(ServeContexts, FormsAndRefusals) {
  const TestServer server;
  const std::string raw = read(server, {{"text", document(20)}, {"form", "raw"}})["id"];
  Json body = completion("The number of record 42 is");
  body["context"] = raw;
  write_text(dir_ / "text", document(20));
  EXPECT_EQ(text_of(server.post("/v1/completions", body)),
            run_text({"--raw", "--context", (dir_ / "text").string(), "--question",
                      "The number of record 42 is"}));
  EXPECT_EQ(server.post("/v1/chat/completions", about(raw)).status, 400);
  Json both = about(read(server, {{"text", document(5)}})["id"]);
  both["cache"] = {{"bytes", 0.5}};
  EXPECT_THAT(server.post("/v1/chat/completions", both).body, HasSubstr("has its own"));
}

}  // namespace
}  // namespace ballast::test
