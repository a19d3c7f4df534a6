// The API: what it answers, what it refuses, and that answers are those of `ballast run`.
#include "serve/server.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ballast/engine/chat.h"
#include "ballast/engine/context_file.h"
#include "cli/program.h"
#include "serve/client.h"
#include "serve/contexts.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

const std::string kPrompt =
    "line one: The pass key is 48213. Remember it. line two: The sky is blue.\nThe pass key is";

Json completion(const std::string& prompt = kPrompt) {
  return {{"prompt", prompt}, {"temperature", 0}, {"max_tokens", 12}};
}
Json chat(const std::string& question = kPrompt) {
  return {{"messages", {{{"role", "user"}, {"content", question}}}},
          {"temperature", 0},
          {"max_tokens", 12}};
}
std::string text_of(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  if (reply.status != 200) return "";
  const Json choice = reply.json()["choices"][0];
  return choice.contains("text") ? choice["text"] : choice["message"]["content"];
}
std::string run_text(Words words) {
  words.insert(words.begin(), {"run", "-m", kMini, "-n", "12", "--json", "-q"});
  const ProgramResult result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.json()["answers"][0]["text"];
}
/// A text whose words do not repeat.
std::string document(int lines) {
  std::string out;
  for (int i = 0; i < lines; ++i) {
    out +=
        fmt::format("line {}: the number of record {} is {}.\n", i, i * 7 % 101, i * 7919 % 9973);
  }
  return out;
}

TEST(Serve, AnswersAreThoseOfRun) {
  const TestServer server;
  const Reply reply = server.post("/v1/completions", completion());
  EXPECT_EQ(text_of(reply), run_text({"--raw", kPrompt}));
  EXPECT_EQ(reply.json()["object"], "text_completion");
  EXPECT_GT(reply.json()["usage"]["prompt_tokens"], 10);
  EXPECT_GT(reply.json()["usage"]["cache_bytes"], 0);

  const Reply said = server.post("/v1/chat/completions", chat());
  EXPECT_EQ(text_of(said), run_text({"--chat", kPrompt}));
  EXPECT_EQ(said.json()["object"], "chat.completion");
  EXPECT_EQ(said.json()["choices"][0]["message"]["role"], "assistant");

  Json small = completion();
  small["cache"] = {{"bytes", 0.25}, {"method", "replay"}};
  EXPECT_EQ(text_of(server.post("/v1/completions", small)),
            run_text({"--raw", "--cache", "1/4", kPrompt}));

  const std::string text = document(12);
  Json streamed = completion(text);
  streamed["cache"] = {{"bytes", "64K"}, {"method", "replay:chunk=32"}, {"protocol", "stream"}};
  EXPECT_EQ(
      text_of(server.post("/v1/completions", streamed)),
      run_text({"--raw", "--method", "replay:bytes=64K,chunk=32", "--protocol", "stream", text}));
}

TEST(Serve, SixteenAtOnceAnswerAsOneAlone) {
  const TestServer server;
  std::vector<std::string> alone, together(16);
  for (int i = 0; i < 16; ++i) {
    alone.push_back(text_of(server.post("/v1/completions", completion(document(3 + i)))));
  }
  const TestServer fresh;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < together.size(); ++i) {
    threads.emplace_back([&, i] {
      const Json body = completion(document(3 + static_cast<int>(i)));
      together[i] = text_of(fresh.post("/v1/completions", body));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], alone[i]) << i;
}

TEST(Serve, StreamIsTheWholeAnswerInPieces) {
  const TestServer server;
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const bool talk = std::string(path).find("chat") != std::string::npos;
    Json body = talk ? chat() : completion();
    const Reply whole = server.post(path, body);
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const Reply reply = server.post(path, body);
    ASSERT_EQ(reply.status, 200);
    EXPECT_THAT(reply.headers.find("Content-Type")->second, HasSubstr("text/event-stream"));
    std::vector<std::string> events = events_of(reply.body);
    ASSERT_GT(events.size(), 3u);
    EXPECT_EQ(events.back(), "[DONE]");
    events.pop_back();
    const Json last = Json::parse(events.back());
    EXPECT_THAT(last["choices"], IsEmpty());
    EXPECT_EQ(last["usage"]["completion_tokens"], whole.json()["usage"]["completion_tokens"]);
    std::string text;
    Json reason;
    for (const std::string& event : events) {
      const Json chunk = Json::parse(event);
      if (chunk["choices"].empty()) continue;
      const Json& choice = chunk["choices"][0];
      text += talk ? choice["delta"].value("content", "") : choice.value("text", "");
      if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
    }
    EXPECT_EQ(text, text_of(whole));
    EXPECT_EQ(reason, whole.json()["choices"][0]["finish_reason"]);
  }
}

TEST(Serve, StopSeedAndChoices) {
  const TestServer server;
  Json body = completion();
  const std::string all = text_of(server.post("/v1/completions", body));
  ASSERT_GT(all.size(), 4u);
  body["stop"] = all.substr(2, 2);
  const Reply stopped = server.post("/v1/completions", body);
  EXPECT_EQ(text_of(stopped), all.substr(0, all.find(all.substr(2, 2))));
  EXPECT_EQ(stopped.json()["choices"][0]["finish_reason"], "stop");

  Json drawn = completion();
  drawn["temperature"] = 1.5;
  drawn["seed"] = 7;
  drawn["n"] = 3;
  drawn["ignore_eos"] = true;
  const Json first = server.post("/v1/completions", drawn).json()["choices"];
  EXPECT_EQ(first, server.post("/v1/completions", drawn).json()["choices"]);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_NE(first[0]["text"], first[1]["text"]);
  drawn["n"] = 1;
  drawn["seed"] = 8;
  EXPECT_EQ(text_of(server.post("/v1/completions", drawn)), first[1]["text"]);
}

TEST(Serve, JsonObjects) {
  const TestServer server;
  for (int seed = 0; seed < 8; ++seed) {
    Json body = chat("Write JSON.");
    body["response_format"] = {{"type", "json_object"}};
    body["temperature"] = seed == 0 ? 0 : 1.5;
    body["seed"] = seed;
    body["max_tokens"] = 200;
    const Reply reply = server.post("/v1/chat/completions", body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json choice = reply.json()["choices"][0];
    if (choice["finish_reason"] == "length") continue;
    EXPECT_TRUE(Json::parse(choice["message"]["content"].get<std::string>()).is_object());
  }
}

TEST(Serve, LogProbabilities) {
  const TestServer server;
  Json body = chat();
  body["logprobs"] = true;
  body["top_logprobs"] = 3;
  const Json content =
      server.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"];
  ASSERT_FALSE(content.empty());
  for (const Json& token : content) {
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);  // greedy
    EXPECT_LE(token["logprob"].get<double>(), 0);
  }
  Json raw = completion();
  raw["logprobs"] = 2;
  const Json made = server.post("/v1/completions", raw).json();
  const Json& chances = made["choices"][0]["logprobs"];
  EXPECT_EQ(chances["tokens"].size(), made["usage"]["completion_tokens"]);
  EXPECT_EQ(chances["token_logprobs"].size(), chances["tokens"].size());
}

TEST(Serve, RefusesByName) {
  const TestServer server;
  const std::string ask = R"("messages":[{"role":"user","content":"x"}])";
  const char* talk = "/v1/chat/completions";
  std::string many_fields = "{\"0\":0";
  for (int i = 1; i <= 1024; ++i) many_fields += fmt::format(",\"{}\":0", i);
  many_fields += "}";
  const std::vector<std::tuple<const char*, std::string, int, const char*, const char*>> all = {
      {talk, "{", 400, "invalid_json", ""},
      {talk, "[]", 400, "invalid_json", ""},
      {talk, std::string(100000, '['), 400, "invalid_json", ""},
      {talk, R"({"a":1e999})", 400, "invalid_json", ""},
      {talk, "{" + ask + R"(,"a":)" + many_fields + "}", 400, "invalid_json", ""},
      {talk, "{}", 400, "invalid_value", "messages"},
      {talk, R"({"messages":[{"role":"robot","content":"x"}]})", 400, "invalid_value",
       "messages[0].role"},
      {talk, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", 400,
       "unsupported_parameter", "messages[0].content[0].type"},
      {talk, "{" + ask + R"(,"temperature":3})", 400, "invalid_value", "temperature"},
      {talk, "{" + ask + R"(,"temperature":"hot"})", 400, "invalid_value", "temperature"},
      {talk, "{" + ask + R"(,"top_p":0})", 400, "invalid_value", "top_p"},
      {talk, "{" + ask + R"(,"n":0})", 400, "invalid_value", "n"},
      {talk, "{" + ask + R"(,"n":1000})", 400, "invalid_value", "n"},
      {talk, "{" + ask + R"(,"max_tokens":-1})", 400, "invalid_value", "max_tokens"},
      {talk, "{" + ask + R"(,"stop":[1]})", 400, "invalid_value", "stop"},
      {talk, "{" + ask + R"(,"logit_bias":{"1":5}})", 400, "unsupported_parameter", "logit_bias"},
      {talk, "{" + ask + R"(,"tools":[{}]})", 400, "invalid_value", "tools[0].type"},
      {talk, "{" + ask + R"(,"tools":[{"type":"function","function":{"name":"f"}}]})", 400,
       "unsupported_parameter", "tools"},  // which the template of this model leaves out
      {talk, "{" + ask + R"(,"tool_choice":"required"})", 400, "unsupported_parameter",
       "tool_choice"},
      {talk, "{" + ask + R"(,"response_format":{"type":"xml"}})", 400, "unsupported_parameter",
       "response_format.type"},
      {talk, "{" + ask + R"(,"response_format":{"type":"json_schema"}})", 400, "invalid_value",
       "response_format.json_schema"},
      {talk,
       "{" + ask +
           R"(,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","x":1}}}})",
       400, "unknown_parameter", "response_format.json_schema.schema.x"},
      {talk, "{" + ask + R"(,"frequency_penalty":1})", 400, "unsupported_parameter",
       "frequency_penalty"},
      {talk, "{" + ask + R"(,"temprature":1})", 400, "unknown_parameter", "temprature"},
      {talk, "{" + ask + R"(,"model":"gpt-9"})", 404, "model_not_found", "model"},
      {talk, "{" + ask + R"(,"context":"ctx_none"})", 404, "context_not_found", "context"},
      {talk, "{" + ask + R"(,"cache":{"method":"nonesuch"}})", 400, "invalid_value",
       "cache.method"},
      {talk, "{" + ask + R"(,"cache":{"bytes":0}})", 400, "invalid_value", "cache.bytes"},
      {talk, "{" + ask + R"(,"cache":{"size":1}})", 400, "unknown_parameter", "cache.size"},
      {"/v1/completions", R"({"prompt":["a","b"]})", 400, "invalid_value", "prompt"},
      {"/v1/completions", R"({"prompt":[99999999]})", 400, "invalid_value", "prompt"},
      {"/v1/completions", R"({"prompt":"x","echo":true})", 400, "unsupported_parameter", "echo"},
      {"/v1/contexts", R"({"text":""})", 400, "invalid_value", "text"},
      {"/v1/nothing", "{}", 404, "unknown_url", ""},
      {"/detokenize", R"({"tokens":[-1]})", 400, "invalid_value", "tokens"},
  };
  for (const auto& [path, body, status, code, param] : all) {
    const Reply reply = send(server.port(), "POST", path, body);
    ASSERT_EQ(reply.status, status) << path << " " << body << " " << reply.body;
    const Json error = reply.json()["error"];
    EXPECT_EQ(error["code"], code) << body;
    EXPECT_EQ(error["param"].is_null() ? "" : error["param"], param) << body;
    EXPECT_FALSE(error["message"].get<std::string>().empty());
  }
  const Reply long_one = server.post("/v1/completions", completion(document(4000)));
  EXPECT_EQ(long_one.status, 400);
  EXPECT_EQ(long_one.code(), "context_length_exceeded");
}

TEST(Serve, GoesOnBeyondThePositionsIfAskedTo) {
  const TestServer server;
  Json body = completion(document(600));
  ASSERT_EQ(server.post("/v1/completions", body).code(), "context_length_exceeded");
  body["cache"] = {
      {"method", "streaming-llm:budget=256"}, {"protocol", "stream"}, {"positions", "rolling"}};
  const Reply reply = server.post("/v1/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_GT(reply.json()["usage"]["prompt_tokens"], TestServer::mini().config().max_positions);
}

TEST(Serve, KeysAndOrigins) {
  serve::ServerOptions options;
  options.keys = {"secret", "other"};
  options.origins = {"https://good.example"};
  const TestServer server(options);
  EXPECT_EQ(server.get("/health").status, 200);
  const Reply none = server.get("/v1/models");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.code(), "invalid_api_key");
  EXPECT_EQ(server.get("/v1/models", {{"Authorization", "Bearer secre"}}).status, 401);
  EXPECT_EQ(server.get("/v1/models", {{"Authorization", "Bearer secret"}}).status, 200);
  EXPECT_EQ(server.get("/v1/models", {{"X-Api-Key", "other"}}).status, 200);

  const Reply good =
      send(server.port(), "OPTIONS", "/v1/models", "", {{"Origin", "https://good.example"}});
  EXPECT_EQ(good.status, 204);
  EXPECT_EQ(good.headers.find("Access-Control-Allow-Origin")->second, "https://good.example");
  const Reply bad = server.get("/health", {{"Origin", "https://bad.example"}});
  EXPECT_EQ(bad.status, 403);
  EXPECT_EQ(bad.headers.count("Access-Control-Allow-Origin"), 0u);
}

TEST(Serve, ModelsPropsTokens) {
  const TestServer server;
  const Json models = server.get("/v1/models").json();
  EXPECT_EQ(models["data"][0]["id"], "ballast-mini");
  EXPECT_EQ(server.get("/v1/models/ballast-mini").status, 200);
  EXPECT_EQ(server.get("/v1/models/gpt").code(), "model_not_found");
  EXPECT_EQ(server.get("/props").json()["positions"], TestServer::mini().config().max_positions);
  const Json tokens = server.post("/tokenize", {{"content", "The sky is blue."}}).json()["tokens"];
  const Json text = server.post("/detokenize", {{"tokens", tokens}}).json()["content"];
  EXPECT_THAT(text.get<std::string>(), HasSubstr("The sky is blue."));
  EXPECT_THAT(server.get("/").body, HasSubstr("<title>Ballast</title>"));
  EXPECT_GE(server.metric("generated_tokens_total"), 0);
}

TEST(Serve, BodiesHaveALimit) {
  serve::ServerOptions options;
  options.max_body = 4096;
  const TestServer server(options);
  EXPECT_EQ(server.post("/v1/completions", completion(std::string(5000, 'x'))).code(),
            "request_too_large");
  // A form's limit does not hold for JSON that says it is one.
  const std::string body = R"({"content":")" + std::string(3000, 'x') + R"("})";
  httplib::Client client("127.0.0.1", server.port());
  const auto reply = client.Post("/tokenize", body, "application/x-www-form-urlencoded");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  const auto zipped =
      client.Post("/tokenize", {{"Content-Encoding", "gzip"}}, "x", "application/json");
  ASSERT_TRUE(zipped);
  EXPECT_EQ(zipped->status, 415);
  const auto parts = client.Post("/tokenize", {{"file", R"({"content":"x"})", "", ""}});
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->status, 415);
  for (const char* type : {"Multipart/Form-Data; boundary=x", "multipart/mixed"}) {
    const auto other = client.Post("/tokenize", R"({"content":"x"})", type);
    ASSERT_TRUE(other);
    EXPECT_EQ(other->status, 415) << type;
  }
}

TEST(Serve, AQueueHasALimitAndAClientThatLeavesFreesItsPlace) {
  serve::ServerOptions options;
  options.slots = 1;
  options.queue = 1;
  const TestServer server(options);
  Json endless = completion();
  endless["ignore_eos"] = true;
  endless["max_tokens"] = 100000;
  endless["stream"] = true;
  auto first = std::make_unique<Raw>(server.port());
  first->write(post_text("/v1/completions", endless.dump()));
  ASSERT_THAT(first->read("data: "), HasSubstr("data: "));
  auto second = std::make_unique<Raw>(server.port());
  second->write(post_text("/v1/completions", endless.dump()));
  while (server.metric("requests_queued") < 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const Reply third = server.post("/v1/completions", completion());
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.code(), "rate_limit_exceeded");
  EXPECT_EQ(third.headers.count("Retry-After"), 1u);
  first.reset();
  ASSERT_THAT(second->read("data: "), HasSubstr("data: "));  // its turn has come
  second.reset();
  EXPECT_EQ(server.post("/v1/completions", completion()).status, 200);
  for (int i = 0; i < 1000 && server.metric("cancelled_total") < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server.metric("cancelled_total"), 2);
}

TEST(Serve, ALongPromptLetsOthersGoOn) {
  const TestServer server;
  Json endless = completion();
  endless["ignore_eos"] = true;
  endless["max_tokens"] = 100000;
  endless["stream"] = true;
  const Raw stream(server.port());
  stream.write(post_text("/v1/completions", endless.dump()));
  stream.read("data: ");
  Json reading = completion(document(120));
  reading["cache"] = {{"bytes", 0.125}, {"method", "replay"}};
  const double before = server.metric("generated_tokens_total");
  double steps = 0;
  std::thread other([&] {
    EXPECT_EQ(server.post("/v1/completions", reading).status, 200);
    steps = server.metric("generated_tokens_total") - before - 12;
  });
  other.join();
  EXPECT_GT(steps, 8);  // chunks of the prompt and of its second reading
}

TEST(Serve, ABeginningReadBeforeIsNotReadAgain) {
  const TestServer server;
  for (const Json& cache :
       {Json({{"method", "exact"}}), Json({{"bytes", 0.25}}),
        Json({{"method", "uniform:rate=0.5"}}), Json({{"method", "h2o:rate=0.5"}})}) {
    Json body = chat(document(20));
    body["cache"] = cache;
    const Json begin = body;
    const Reply first = server.post("/v1/chat/completions", body);
    const std::string answer = text_of(first);
    body["messages"].push_back({{"role", "assistant"}, {"content", answer}});
    body["messages"].push_back({{"role", "user"}, {"content", "And record 7?"}});
    const Reply hit = server.post("/v1/chat/completions", body);
    const TestServer fresh;
    const Reply miss = fresh.post("/v1/chat/completions", body);
    EXPECT_EQ(text_of(hit), text_of(miss)) << cache;
    EXPECT_EQ(miss.json()["usage"]["cached_tokens"], 0);
    if (cache.value("method", "") == "h2o:rate=0.5") continue;  // its sums cannot be taken back
    EXPECT_GT(hit.json()["usage"]["cached_tokens"], 100) << cache;
    const Reply same = server.post("/v1/chat/completions", body);
    EXPECT_EQ(text_of(same), text_of(miss)) << cache;
    const Reply first_again = server.post("/v1/chat/completions", begin);
    EXPECT_EQ(text_of(first_again), answer) << cache;
    const Json usage = first_again.json()["usage"];
    EXPECT_GE(usage["cached_tokens"], usage["prompt_tokens"].get<int>() - 1) << cache;
  }
}

TEST(Serve, BeginningsOfChatsAreNotThoseOfTexts) {
  // Replay reads a chat again with other words than a plain text, so that other entries are kept.
  const TestServer server, fresh;
  Json talk = chat(document(20));
  talk["cache"] = {{"bytes", 0.125}};
  EXPECT_EQ(server.post("/v1/chat/completions", talk).status, 200);
  const std::vector<ChatMessage> messages = {{"user", document(20), ""}};
  Json plain = {{"prompt", encode_chat(server.tokenizer(), messages, true)},
                {"temperature", 0},
                {"max_tokens", 8},
                {"logprobs", 2},
                {"ignore_eos", true},
                {"cache", {{"bytes", 0.125}}}};
  const Json hit = server.post("/v1/completions", plain).json();
  const Json miss = fresh.post("/v1/completions", plain).json();
  EXPECT_EQ(hit["choices"], miss["choices"]);
  EXPECT_EQ(hit["usage"]["cached_tokens"], 0);
  EXPECT_EQ(hit["usage"]["prompt_tokens"],
            fresh.post("/v1/chat/completions", talk).json()["usage"]["prompt_tokens"]);
}

TEST(Serve, ABudgetHoldsAndIsReported) {
  const TestServer server;
  const std::string text = document(60);
  Json body = completion(text);
  const double exact = server.post("/v1/completions", body).json()["usage"]["prompt_cache_bytes"];
  body["cache"] = {{"bytes", 0.125}, {"method", "replay"}};
  const Json usage = server.post("/v1/completions", body).json()["usage"];
  EXPECT_LE(usage["prompt_cache_bytes"].get<double>(), exact / 8);
  EXPECT_GT(usage["prompt_cache_bytes"].get<double>(), exact / 16);
}

TEST(Serve, RefusesWhatItsMemoryNeverHolds) {
  serve::ServerOptions options;
  options.slots = 2;
  options.memory = std::size_t{1} << 20;
  EXPECT_THAT(error_of([&] { TestServer server(options); }), HasSubstr("--memory"));
}

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
  EXPECT_TRUE(std::filesystem::is_empty(options_.cache_dir));
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

TEST(Serve, OnePortHasOneServer) {
  const TestServer first;
  const std::string port = std::to_string(first.port());
  expect_refusal(Program({"serve", "-m", kMini, "--port", port}).wait(),
                 "cannot listen on 127.0.0.1 port " + port + ": the port is taken", 1);
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
