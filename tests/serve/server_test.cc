// The API: what it answers, what it refuses, and that answers are those of `ballast run`.
#include "serve/server.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <mutex>
#include <span>

#include "ballast/engine/chat.h"
#include "ballast/engine/sampler.h"
#include "serve/asking.h"
#include "serve/random_calibration.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

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

TEST(Serve, AConversationIsCompactedWhereItIs) {
  static constexpr std::size_t kBytes = 64 << 10;
  const auto turn = [](const TestServer& server, Json& messages, const std::string& text) {
    messages.push_back({{"role", "user"}, {"content", text}});
    Json body = {{"messages", messages}, {"temperature", 0}, {"max_tokens", 12}};
    body["cache"] = {{"bytes", kBytes}, {"compact", "auto"}};
    const Reply reply = server.post("/v1/chat/completions", body);
    messages.push_back({{"role", "assistant"}, {"content", text_of(reply)}});
    return reply.json()["usage"];
  };
  const TestServer server;
  Json messages = {{{"role", "system"}, {"content", "The pass key is 48213."}}};
  const Json first = turn(server, messages, document(20));
  Json last = first;
  std::size_t compactions = 0;
  for (int i = 0; i < 4; ++i) {
    last = turn(server, messages, fmt::format("Part {}.\n{}", i, document(12)));
    EXPECT_GT(last["cached_tokens"], 0) << "goes on where it was";
    for (const Json& one : last.value("compactions", Json::array())) {
      ++compactions;
      EXPECT_LE(one["bytes"], kBytes);
      EXPECT_LT(one["bytes"], one["bytes_before"]);
      EXPECT_GT(one["tokens"], first["prompt_tokens"]);
    }
  }
  EXPECT_GT(compactions, 1u);
  const std::string answer = messages.back()["content"];
  // The same bits where all is read anew.
  Json again = messages;
  again.erase(again.size() - 1);
  const std::string question = again.back()["content"];
  again.erase(again.size() - 1);
  const TestServer other;
  const Json anew = turn(other, again, question);
  EXPECT_EQ(anew["cached_tokens"], 0);
  EXPECT_EQ(anew["prompt_cache_bytes"], last["prompt_cache_bytes"]);
  EXPECT_EQ(again.back()["content"], answer);
  // Other questions go on from the turn before, too.
  messages.erase(messages.end() - 2, messages.end());
  for (const char* other_question : {"Who?", "And where?"}) {
    Json branch = messages;
    EXPECT_EQ(turn(server, branch, other_question)["cached_tokens"], last["cached_tokens"]);
  }

  Json body = chat();
  body["cache"] = {{"bytes", 0.25}, {"compact", "auto"}};
  EXPECT_EQ(server.post("/v1/chat/completions", body).json()["error"]["param"], "cache.compact");
  body["cache"] = {{"bytes", "64K"}, {"method", "h2o"}, {"compact", "auto"}};
  EXPECT_EQ(server.post("/v1/chat/completions", body).json()["error"]["param"], "cache.compact");
  body["cache"] = {{"bytes", "64K"}, {"compact", "now"}};
  EXPECT_EQ(server.post("/v1/chat/completions", body).json()["error"]["param"], "cache.compact");
}

TEST(Serve, ACompactedConversationGoesOnBeyondThePositions) {
  const Model model = randomly_calibrated(kMini);
  const ModelConfig& c = model.config();
  const TestServer server(model, {});
  static constexpr std::size_t kBytes = 256 << 10;
  Json messages = {{{"role", "system"}, {"content", "The pass key is 48213."}}}, usage;
  for (int i = 0; i < 12; ++i) {
    messages.push_back({{"role", "user"}, {"content", fmt::format("{}.\n{}", i, document(45))}});
    Json body = {{"messages", messages}, {"temperature", 0}, {"max_tokens", 4}};
    body["cache"] = {{"bytes", kBytes}, {"compact", "auto"}};
    const Reply reply = server.post("/v1/chat/completions", body);
    messages.push_back({{"role", "assistant"}, {"content", text_of(reply)}});
    ASSERT_EQ(reply.status, 200) << reply.body;
    usage = reply.json()["usage"];
    EXPECT_LE(usage["cache_bytes"], kBytes + kBytes / 4);
    if (i > 0) {
      EXPECT_GT(usage["cached_tokens"], 0) << "goes on where it was";
    }
  }
  EXPECT_GT(usage["prompt_tokens"], c.max_positions);
  // The same bits where all is read anew.
  const TestServer fresh(model, {});
  const std::string answer = messages.back()["content"];
  messages.erase(messages.size() - 1);
  Json body = {{"messages", messages}, {"temperature", 0}, {"max_tokens", 4}};
  body["cache"] = {{"bytes", kBytes}, {"compact", "auto"}};
  EXPECT_EQ(text_of(fresh.post("/v1/chat/completions", body)), answer);
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
    EXPECT_THAT(reply.headers.find("content-type")->second, HasSubstr("text/event-stream"));
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

TEST(Serve, EveryAnswerIsLogged) {
  std::mutex mutex;
  std::vector<serve::RequestRecord> log;
  serve::ServerOptions options;
  options.log = [&](const serve::RequestRecord& record) {
    const std::scoped_lock lock(mutex);
    log.push_back(record);
  };
  std::size_t made = 0;
  {
    const TestServer server(options);
    Json body = chat();
    made = server.post("/v1/chat/completions", body).json()["usage"]["completion_tokens"];
    body["stream"] = true;
    (void)server.post("/v1/chat/completions", body);
    (void)server.post("/v1/completions", {{"no_such", 1}});
    (void)server.get("/health");
  }
  ASSERT_EQ(log.size(), 3u);
  for (const serve::RequestRecord& record : std::span(log).first(2)) {
    EXPECT_EQ(record.path, "/v1/chat/completions");
    EXPECT_EQ(record.status, 200);
    EXPECT_EQ(record.usage.made, made);
    EXPECT_GT(record.usage.prompt, 10u);
    EXPECT_GT(record.usage.first_seconds, 0);
    EXPECT_GT(record.usage.seconds, record.usage.first_seconds);
  }
  EXPECT_GT(log[1].usage.cached, 10u);
  EXPECT_EQ(log[2].status, 400);
  EXPECT_EQ(log[2].usage.made, 0u);
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

TEST(Serve, TextOffsetsCountCharactersAndPartsOfCharactersAreNamed) {
  const TestServer server;
  std::vector<Token> bytes;
  for (const char* piece : {"<0xC3>", "<0xA9>", "<0xF0>"}) {
    bytes.push_back(server.tokenizer().find(piece));
    ASSERT_NE(bytes.back(), kNoToken);
  }
  Json body = {{"prompt", bytes}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 20}};
  const Json choice = server.post("/v1/completions", body).json()["choices"][0];
  const Json& chances = choice["logprobs"];
  EXPECT_EQ(chances["tokens"], Json({"bytes:\\xc3", "bytes:\\xa9", "bytes:\\xf0"}));
  EXPECT_EQ(chances["text_offset"], Json({0, 0, 1}));
  // Tokens of one text count once, the likeliest.
  EXPECT_GE(chances["top_logprobs"][1].size(), 18u);
}

/// Log-probabilities of tokens after the first, as `perplexity` computes them.
std::vector<double> scored(const std::vector<Token>& tokens) {
  Engine engine(TestServer::mini());
  CacheOptions cache;
  cache.key_type = cache.value_type = StorageType::bf16;
  Sequence sequence(TestServer::mini(), cache);
  std::vector<double> out;
  PrefillOptions options;
  options.all_logits = [&](std::size_t first, ConstMatrix logits) {
    for (std::size_t i = 0; i < logits.rows; ++i) {
      if (first + i + 1 == tokens.size()) break;
      out.push_back(-token_loss(logits[i], tokens[first + i + 1]));
    }
  };
  (void)engine.prefill(sequence, tokens, options);
  return out;
}

TEST(Serve, EchoWithLogProbabilitiesOfThePrompt) {
  const TestServer server;
  const std::string text = document(30);  // more than a chunk
  const std::vector<Token> tokens = server.tokenizer().encode(text);
  ASSERT_GT(tokens.size(), 256u);
  const std::vector<double> expected = scored(tokens);
  for (const int most : {0, 1}) {
    for (const bool stream : {false, true}) {
      Json body = {{"prompt", tokens}, {"max_tokens", most}, {"echo", true},    {"logprobs", 1},
                   {"temperature", 0}, {"seed", 1234},       {"stream", stream}};
      if (most == 1) body["prompt"] = text;
      for (int round = 0; round < 2; ++round) {  // the beginning that is kept changes nothing
        const Reply reply = server.post("/v1/completions", body);
        ASSERT_EQ(reply.status, 200) << reply.body;
        const Json first = stream ? Json::parse(events_of(reply.body).at(0)) : reply.json();
        const Json choice = first["choices"][0];
        const Json& chances = choice["logprobs"];
        EXPECT_THAT(choice["text"].get<std::string>(), testing::StartsWith(text));
        ASSERT_GE(chances["token_logprobs"].size(), tokens.size());
        EXPECT_TRUE(chances["token_logprobs"][0].is_null());
        EXPECT_TRUE(chances["top_logprobs"][0].is_null());
        for (std::size_t i = 1; i < tokens.size(); ++i) {
          ASSERT_NEAR(chances["token_logprobs"][i].get<double>(), expected[i - 1], 1e-4) << i;
          ASSERT_EQ(chances["top_logprobs"][i].size(), 1u);
        }
        if (stream) continue;
        EXPECT_EQ(chances["tokens"].size(), tokens.size() + static_cast<std::size_t>(most));
        EXPECT_EQ(choice["finish_reason"], "length");
        EXPECT_EQ(first["usage"]["completion_tokens"], most);
        Json plain = body;
        plain["echo"] = false;
        const Json made = server.post("/v1/completions", plain).json()["choices"][0];
        EXPECT_EQ(choice["text"], text + made["text"].get<std::string>());
        if (most == 1) {
          EXPECT_EQ(chances["token_logprobs"].back(), made["logprobs"]["token_logprobs"][0]);
        }
      }
    }
  }
}

TEST(Serve, ATokenThatEndsTheAnswerFollowsAPromptThatIsScored) {
  const TestServer server;
  const Json end = {{std::to_string(server.tokenizer().find("</s>")), 100}};
  Json body = {{"prompt", {5, 6, 7}},
               {"max_tokens", 1},
               {"echo", true},
               {"logprobs", 1},
               {"logit_bias", end}};
  const Json choice = server.post("/v1/completions", body).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"].size(), 4u) << choice;
}

TEST(Serve, LogProbabilitiesOfAPromptCountAsMemory) {
  serve::ServerOptions options;
  options.slots = 1;
  options.memory = std::size_t{12} << 20;
  const TestServer server(options);
  Json body = completion(document(80));
  body["echo"] = true;
  EXPECT_EQ(server.post("/v1/completions", body).status, 200);
  body["logprobs"] = 20;
  EXPECT_EQ(server.post("/v1/completions", body).code(), "insufficient_memory");
}

TEST(Serve, SeveralPromptsAtOnce) {
  const TestServer server;
  Json body = completion();
  body["prompt"] = {"The sky", "line one: The pass key is 48213."};
  body["n"] = 2;
  body["temperature"] = 1;
  body["seed"] = 3;
  const Json all = server.post("/v1/completions", body).json();
  ASSERT_EQ(all["choices"].size(), 4u);
  std::size_t read = 0;
  for (std::size_t p = 0; p < 2; ++p) {
    Json one = body;
    one["prompt"] = body["prompt"][p];
    const Json alone = server.post("/v1/completions", one).json();
    read += alone["usage"]["prompt_tokens"].get<std::size_t>();
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(all["choices"][2 * p + i]["text"], alone["choices"][i]["text"]);
      EXPECT_EQ(all["choices"][2 * p + i]["index"], 2 * p + i);
    }
  }
  EXPECT_EQ(all["usage"]["prompt_tokens"], read);

  body["stream"] = true;
  std::vector<std::string> texts(4);
  std::size_t ends = 0;
  for (const std::string& event : events_of(server.post("/v1/completions", body).body)) {
    if (event == "[DONE]") continue;
    const Json choice = Json::parse(event)["choices"][0];
    texts.at(choice["index"]) += choice["text"];
    ends += choice["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(ends, 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(texts[i], all["choices"][i]["text"]) << i;

  body["prompt"] = {{5, 6, 7}, {8, 9}};
  body["stream"] = false;
  EXPECT_EQ(server.post("/v1/completions", body).json()["usage"]["prompt_tokens"], 5);
  body["prompt"] = std::vector<std::string>(129, "x");
  EXPECT_EQ(server.post("/v1/completions", body).code(), "invalid_value");
}

TEST(Serve, RequestsAsClientsSendThem) {
  const TestServer server;
  const std::string ask = R"({"messages":[{"role":"user","content":"x"}],"max_tokens":3,)";
  for (const std::string& body : std::vector<std::string>{
           ask + R"("model":"gpt-9"})",
           ask + R"("seed":-1,"top_p":0,"top_k":-1,"user":"u","store":false})",
           ask + R"("seed":-9223372036854775808,"presence_penalty":-2,"frequency_penalty":1.5})",
           ask + R"("logit_bias":{"42":-100,"7":100},"chat_template_kwargs":{"a":[1]}})",
           ask + R"("reasoning_effort":"low","thinking":{"type":"disabled"}})",
           ask + R"("min_tokens":0,"mirostat":0,"add_generation_prompt":true,"prediction":{}})",
           ask + R"("parallel_tool_calls":true,"tool_choice":"auto","response_format":null})",
           std::string(R"({"messages":[{"role":"user","name":"ann","content":"a"},
               {"role":"assistant","content":null},{"role":"user","content":"b"}],"max_tokens":3})"),
           std::string(R"({"messages":[{"role":"user","content":"2+2?"},{"role":"assistant",
               "content":"4","reasoning_content":"two","refusal":null},
               {"role":"user","content":[{"type":"text","text":"hi",
               "cache_control":{"type":"ephemeral"}},{"type":"input_text","text":"!"}]}],
               "max_tokens":3})"),
       }) {
    const Reply reply = send(server.port(), "POST", "/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 200) << body << reply.body;
  }
  // -1 is no limit: that of the server holds.
  serve::ServerOptions options;
  options.max_tokens = 5;
  const TestServer few(options);
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    Json body = {{"messages", chat()["messages"]}, {"ignore_eos", true}, {name, -1}};
    const Reply reply = few.post("/v1/chat/completions", body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json()["usage"]["completion_tokens"], 5);
  }
  Json biased = chat();
  biased["logit_bias"] = {{"300", 100}};
  biased["max_tokens"] = 2;
  const Token token = 300;
  const std::string piece =
      server.tokenizer().decode({&token, 1}, {.special = true, .text_start = false});
  EXPECT_THAT(text_of(server.post("/v1/chat/completions", biased)), HasSubstr(piece));
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
       "invalid_value", "messages[0].content[0].image_url"},
      {talk, "{" + ask + R"(,"temperature":3})", 400, "invalid_value", "temperature"},
      {talk, "{" + ask + R"(,"temperature":"hot"})", 400, "invalid_value", "temperature"},
      {talk, "{" + ask + R"(,"n":0})", 400, "invalid_value", "n"},
      {talk, "{" + ask + R"(,"n":1000})", 400, "invalid_value", "n"},
      {talk, "{" + ask + R"(,"max_tokens":-2})", 400, "invalid_value", "max_tokens"},
      {talk, "{" + ask + R"(,"stop":[1]})", 400, "invalid_value", "stop"},
      {talk, "{" + ask + R"(,"logit_bias":{"1":500}})", 400, "invalid_value", "logit_bias"},
      {talk, "{" + ask + R"(,"logit_bias":{"x":5}})", 400, "invalid_value", "logit_bias"},
      {talk, "{" + ask + R"(,"logit_bias":{"99999999":5}})", 400, "invalid_value", "logit_bias"},
      {talk, "{" + ask + R"(,"seed":1.5})", 400, "invalid_value", "seed"},
      {talk, "{" + ask + R"(,"max_tokens":0})", 400, "invalid_value", "max_tokens"},
      {talk, "{" + ask + R"(,"chat_template_kwargs":{"messages":1}})", 400, "invalid_value",
       "chat_template_kwargs.messages"},
      {talk, "{" + ask + R"(,"thinking":{"type":"deep"}})", 400, "invalid_value", "thinking.type"},
      {talk, "{" + ask + R"(,"reasoning_format":"x"})", 400, "invalid_value", "reasoning_format"},
      {talk, "{" + ask + R"(,"mirostat":2})", 400, "unsupported_parameter", "mirostat"},
      {talk, "{" + ask + R"(,"tools":[{}]})", 400, "invalid_value", "tools[0].type"},
      {talk, "{" + ask + R"(,"tools":[{"type":"function","function":{"name":"f"}}]})", 400,
       "unsupported_parameter", "tools"},  // which the template of this model leaves out
      {talk, "{" + ask + R"(,"tool_choice":"required"})", 400, "invalid_value", "tool_choice"},
      {talk, "{" + ask + R"(,"tool_choice":"each"})", 400, "unsupported_parameter", "tool_choice"},
      {talk, "{" + ask + R"(,"response_format":{"type":"xml"}})", 400, "unsupported_parameter",
       "response_format.type"},
      {talk, "{" + ask + R"(,"response_format":{"type":"json_schema"}})", 400, "invalid_value",
       "response_format.json_schema"},
      {talk,
       "{" + ask +
           R"(,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","x":1}}}})",
       400, "unknown_parameter", "response_format.json_schema.schema.x"},
      {talk, "{" + ask + R"(,"frequency_penalty":3})", 400, "invalid_value", "frequency_penalty"},
      {talk, "{" + ask + R"(,"temprature":1})", 400, "unknown_parameter", "temprature"},
      {talk, "{" + ask + R"(,"context":"ctx_none"})", 404, "context_not_found", "context"},
      {talk, "{" + ask + R"(,"cache":{"method":"nonesuch"}})", 400, "invalid_value",
       "cache.method"},
      {talk, "{" + ask + R"(,"cache":{"bytes":0}})", 400, "invalid_value", "cache.bytes"},
      {talk, "{" + ask + R"(,"cache":{"size":1}})", 400, "unknown_parameter", "cache.size"},
      {"/v1/completions", R"({"prompt":[99999999]})", 400, "invalid_value", "prompt"},
      {"/v1/completions", R"({"prompt":[["a"]]})", 400, "invalid_value", "prompt"},
      {"/v1/completions", R"({"prompt":["a",[]]})", 400, "invalid_value", "prompt"},
      {"/v1/completions", R"({"prompt":[]})", 400, "invalid_value", "prompt"},
      {"/v1/completions", R"({"prompt":"x","suffix":"y"})", 400, "unsupported_parameter", "suffix"},
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
  for (const char* scheme : {"bearer ", "BEARER ", "Bearer  "}) {
    EXPECT_EQ(server.get("/v1/models", {{"Authorization", scheme + std::string("secret")}}).status,
              200);
  }
  EXPECT_EQ(server.get("/v1/models", {{"Authorization", "Bearer secret \t"}}).status, 200);
  EXPECT_EQ(server.get("/v1/models", {{"X-Api-Key", "other "}}).status, 200);
  for (const char* other : {"Bearer", "Bearer ", "Basic secret", "secret", "Bearersecret"}) {
    EXPECT_EQ(server.get("/v1/models", {{"Authorization", other}}).status, 401) << other;
  }

  const Headers page = {{"Origin", "https://good.example"}};
  const auto allowed = [](const Reply& reply, const char* name) {
    const auto at = reply.headers.find(std::string("access-control-") + name);
    return at == reply.headers.end() ? "" : at->second;
  };
  const std::string names = "authorization,content-type,x-stainless-os,anthropic-version";
  Headers asked = page;
  asked.emplace("Access-Control-Request-Headers", names);
  const Reply good = send(server.port(), "OPTIONS", "/v1/models", "", asked);
  EXPECT_EQ(good.status, 204);
  EXPECT_EQ(allowed(good, "allow-origin"), "https://good.example");
  EXPECT_EQ(allowed(good, "allow-headers"), names);
  EXPECT_THAT(allowed(good, "allow-methods"), HasSubstr("DELETE"));
  asked.erase("Access-Control-Request-Headers");
  asked.emplace("Access-Control-Request-Headers", "x<script>");
  EXPECT_EQ(allowed(send(server.port(), "OPTIONS", "/v1/models", "", asked), "allow-headers"),
            "Authorization, Content-Type, X-Api-Key");
  // A page may read why it is refused.
  const Reply unknown = server.get("/v1/models", page);
  EXPECT_EQ(unknown.status, 401);
  EXPECT_EQ(allowed(unknown, "allow-origin"), "https://good.example");
  Headers known = page;
  known.emplace("X-Api-Key", "other");
  const Reply nowhere = server.get("/nowhere", known);
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(allowed(nowhere, "allow-origin"), "https://good.example");
  const Reply large =
      send(server.port(), "POST", "/tokenize", std::string((32 << 20) + 1, 'x'), known);
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(allowed(large, "allow-origin"), "https://good.example");
  const Reply bad = server.get("/health", {{"Origin", "https://bad.example"}});
  EXPECT_EQ(bad.status, 403);
  EXPECT_EQ(bad.headers.count("access-control-allow-origin"), 0u);
}

// A page whose name its owner makes mean 127.0.0.1 is of the server's origin to a browser.
TEST(Serve, NamesOfOtherHostsAreRefused) {
  const TestServer server;
  const auto status = [](const TestServer& of, const std::string& host) {
    return of.get("/v1/models", {{"Host", host}}).status;
  };
  for (const char* host : {"localhost", "LocalHost:8080", "x.localhost:1", "127.0.0.1", "[::1]:80",
                           "192.168.0.7:8080", "localhost."}) {
    EXPECT_EQ(status(server, host), 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "127.0.0.1.evil.example",
                           "localhost.evil.example", "evillocalhost", "[evil.example]"}) {
    EXPECT_EQ(status(server, host), 403) << host;
  }
  EXPECT_EQ(server.get("/", {{"Host", "evil.example"}}).code(), "host_not_allowed");
  // A name in the first line counts in place of the header.
  const auto absolute = [&](const std::string& url, const std::string& host) {
    const Raw raw(server.port());
    raw.write(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", url, host));
    return raw.read().substr(9, 3);
  };
  EXPECT_EQ(absolute("http://localhost/v1/models", "evil.example"), "200");
  EXPECT_EQ(absolute("HTTP://localhost:80/v1/models?x=http://a/", "localhost"), "200");
  EXPECT_EQ(absolute("http://localhost", "localhost"), "200");
  EXPECT_EQ(absolute("http://evil.example/v1/models", "localhost"), "403");
  EXPECT_EQ(absolute("http://localhost:80@evil.example/v1/models", "localhost"), "404");
  serve::ServerOptions options;
  options.origins = {"https://good.example"};
  EXPECT_EQ(status(TestServer(options), "good.example"), 200);
  options.origins = {};
  options.keys = {"secret"};
  EXPECT_EQ(status(TestServer(options), "evil.example"), 401);  // the page does not have the key
  options.keys = {"secret", " "};
  EXPECT_THAT(error_of([&] { TestServer server(options); }), HasSubstr("a key is empty"));
}

TEST(Serve, AnswersUnderWayEndAsSuchWhenItStops) {
  auto server = std::make_unique<TestServer>();
  Json endless = completion();
  endless["ignore_eos"] = true;
  endless["max_tokens"] = 100000;
  const Raw whole(server->port());
  whole.write(post_text("/v1/completions", endless.dump()));
  endless["stream"] = true;
  const Raw stream(server->port());
  stream.write(post_text("/v1/completions", endless.dump()));
  ASSERT_THAT(stream.read("data: "), HasSubstr("data: "));
  while (server->metric("streams") < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  server.reset();
  const std::string rest = stream.read();
  EXPECT_THAT(rest, HasSubstr("\"code\":\"shutting_down\""));
  EXPECT_THAT(rest, HasSubstr("data: [DONE]\n\n"));
  const std::string refused = whole.read();
  EXPECT_THAT(refused, testing::StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("shutting_down"));
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
  const auto status = [&](const std::string& text, const Headers& headers) {
    return send(server.port(), "POST", "/tokenize", text, headers).status;
  };
  EXPECT_EQ(status(body, {{"Content-Type", "application/x-www-form-urlencoded"}}), 200);
  EXPECT_EQ(status("x", {{"Content-Encoding", "gzip"}}), 415);
  EXPECT_EQ(status(body, {{"Content-Encoding", "Identity"}}), 200);
  for (const char* type :
       {"multipart/form-data; boundary=x", "Multipart/Form-Data; boundary=x", "multipart/mixed"}) {
    EXPECT_EQ(status(R"({"content":"x"})", {{"Content-Type", type}}), 415) << type;
  }
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST(Serve, WhatNobodyWaitsForIsNotWorkedOn) {
  serve::ServerOptions options;
  options.memory = std::size_t{512} << 20;
  auto server = std::make_unique<TestServer>(options);
  std::string text;
  for (int i = 0; i < 100000; ++i) text += fmt::format("word{} ", i * 7919LL % 99991);
  const std::string request = post_text("/tokenize", Json{{"content", text}}.dump());
  double before = processor_seconds();
  {
    const Raw raw(server->port());
    raw.write(request);
    EXPECT_THAT(raw.read("HTTP/1.1 200"), HasSubstr("HTTP/1.1 200"));
  }
  const double one = processor_seconds() - before;
  before = processor_seconds();
  const int count = 40;
  for (int i = 0; i < count; ++i) Raw(server->port()).write(request);
  EXPECT_EQ(server->get("/health").status, 200);
  EXPECT_LE(server->metric("memory_taken_bytes"), server->metric("memory_limit_bytes"));
  // Bodies are received, which takes a part of a request's time, and some begin to be read.
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(server->get("/health").status, 200);
  }
  EXPECT_LT(processor_seconds() - before, count * one / 2);
  // Nor does it stop late.
  std::vector<std::unique_ptr<Raw>> waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.push_back(std::make_unique<Raw>(server->port()));
    waiting.back()->write(request);
  }
  before = processor_seconds();
  server.reset();
  EXPECT_LT(processor_seconds() - before, 5 * one);
}

TEST(Serve, BodiesAreReadInTheMemoryThatThereIs) {
  serve::ServerOptions options;
  options.memory = std::size_t{96} << 20;
  const TestServer server(options);
  const std::string most(std::size_t{12} << 20, ' ');
  const Reply never = server.post("/tokenize", {{"content", most}});
  EXPECT_EQ(never.status, 400) << never.body;
  EXPECT_EQ(never.code(), "insufficient_memory");
  EXPECT_EQ(server.post("/tokenize", {{"content", most.substr(0, 1 << 20)}}).status, 200);
  for (int i = 0; i < 1000 && server.metric("memory_taken_bytes") > 60e6; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // given back
  }
}

TEST(Serve, ManyBodiesLeaveMemoryToReadThem) {
  serve::ServerOptions options;
  options.memory = std::size_t{192} << 20;
  const TestServer server(options);
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "word ";
  const std::string request = post_text("/v1/completions", Json{{"prompt", text}}.dump());
  std::vector<std::unique_ptr<Raw>> all;
  for (int i = 0; i < 150; ++i) {
    all.push_back(std::make_unique<Raw>(server.port()));
    all.back()->write(request);
  }
  int read = 0;
  for (const auto& one : all) {
    const std::string answer = one->read("\r\n");
    EXPECT_THAT(answer, testing::AnyOf(HasSubstr(" 400 "), HasSubstr(" 503 ")));
    read += answer.find(" 400 ") != std::string::npos ? 1 : 0;  // more than the model's positions
  }
  EXPECT_GE(read, 20);
}

TEST(Serve, AnswersWaitForClientsThatDoNotRead) {
  serve::ServerOptions options;
  options.slots = 1;
  const TestServer server(options);
  Json endless = completion();
  endless["ignore_eos"] = true;
  endless["max_tokens"] = 10000000;
  endless["stream"] = true;
  endless["logprobs"] = 5;
  endless["cache"] = {
      {"method", "streaming-llm:budget=64"}, {"protocol", "stream"}, {"positions", "rolling"}};
  const Raw slow(server.port());
  slow.write(post_text("/v1/completions", endless.dump()));
  slow.read("data: ");
  double made = -1;
  for (int i = 0; i < 600 && server.metric("generated_tokens_total") != made; ++i) {
    made = server.metric("generated_tokens_total");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_EQ(server.metric("generated_tokens_total"), made);
  // It has no slot meanwhile, and goes on where it is read again.
  EXPECT_EQ(server.post("/v1/completions", completion()).status, 200);
  made = server.metric("generated_tokens_total");
  std::atomic<bool> over = false;
  std::thread reader([&] {
    while (!over) slow.read("data: ");
  });
  for (int i = 0; i < 2000 && server.metric("generated_tokens_total") == made; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(server.metric("generated_tokens_total"), made);
  over = true;
  reader.join();
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
  EXPECT_EQ(third.headers.count("retry-after"), 1u);
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
  EXPECT_GT(steps, 8);  // chunks of the prompt and of its replay pass
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

TEST(Serve, AStreamOfAGivenSizeIsGoneOnFrom) {
  const TestServer server;
  for (const char* method : {"replay:bytes=64K", "uniform:budget=96", "h2o:budget=96",
                             "streaming-llm:budget=96", "exact"}) {
    for (const std::string positions : {"absolute", "rolling"}) {
      if (positions == "rolling" && std::string_view(method).starts_with("replay")) continue;
      Json body = chat(document(20));
      body["cache"] = {{"method", method}, {"protocol", "stream"}, {"positions", positions}};
      const Json begin = body;
      const Reply first = server.post("/v1/chat/completions", body);
      const std::string answer = text_of(first);
      int cached = 0;
      for (int turn = 0; turn < 3; ++turn) {
        body["messages"].push_back({{"role", "assistant"}, {"content", answer}});
        body["messages"].push_back({{"role", "user"}, {"content", document(9 + turn)}});
        const Reply hit = server.post("/v1/chat/completions", body);
        const TestServer fresh;
        EXPECT_EQ(text_of(hit), text_of(fresh.post("/v1/chat/completions", body))) << method;
        const int now = hit.json()["usage"]["cached_tokens"];
        EXPECT_GT(now, cached + 100) << method << positions;  // all but the answer and the question
        cached = now;
      }
      const Reply same = server.post("/v1/chat/completions", body);
      EXPECT_EQ(same.json()["usage"]["cached_tokens"], same.json()["usage"]["prompt_tokens"]);
    }
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

TEST(Serve, OnePortHasOneServer) {
  const TestServer first;
  const std::string port = std::to_string(first.port());
  expect_refusal(Program({"serve", "-m", kMini, "--port", port}).wait(),
                 "cannot listen on 127.0.0.1 port " + port + ": the port is taken", 1);
}

}  // namespace
}  // namespace ballast::test
