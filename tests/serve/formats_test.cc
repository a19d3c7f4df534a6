// The APIs that are translations of chat completions: Responses, Anthropic's and Ollama's.
#include "serve/formats/format.h"

#include <gmock/gmock.h>

#include "serve/asking.h"

namespace ballast::test {
namespace {

using serve::Api;
using serve::Format;
using testing::ElementsAre;
using testing::HasSubstr;

Json body_of(Api api, const Json& request) {
  return Json::parse(Format::of(api, ballast::Json::parse(request.dump()))->body().dump());
}

Json weather() {
  return {{"type", "object"}, {"properties", {{"city", {{"enum", {"Oslo", "Rome"}}}}}}};
}

/// Events of a stream by their type, in order.
std::vector<Json> named_events(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  std::vector<Json> out;
  for (const std::string& data : events_of(reply.body)) out.push_back(Json::parse(data));
  return out;
}

TEST(Formats, AnthropicRequestsBecomeChats) {
  const Json chat = body_of(
      Api::anthropic,
      {{"model", "m"},
       {"max_tokens", 9},
       {"system", {{{"type", "text"}, {"text", "S"}, {"cache_control", {{"type", "ephemeral"}}}}}},
       {"stop_sequences", {"x"}},
       {"tools", {{{"name", "f"}, {"description", "d"}, {"input_schema", weather()}}}},
       {"tool_choice", {{"type", "tool"}, {"name", "f"}, {"disable_parallel_tool_use", true}}},
       {"messages",
        {{{"role", "user"}, {"content", "U"}},
         {{"role", "assistant"},
          {"content",
           {{{"type", "thinking"}, {"thinking", "T"}, {"signature", "s"}},
            {{"type", "text"}, {"text", "A"}},
            {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", {{"city", "Oslo"}}}}}}},
         {{"role", "user"},
          {"content",
           {{{"type", "tool_result"}, {"tool_use_id", "1"}, {"content", "cold"}},
            {{"type", "text"}, {"text", "And?"}}}}}}}});
  EXPECT_EQ(chat["max_tokens"], 9);
  EXPECT_EQ(chat["stop"], Json::array({"x"}));
  EXPECT_EQ(chat["tools"][0]["function"]["parameters"], weather());
  EXPECT_EQ(chat["tool_choice"]["function"]["name"], "f");
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  const Json& messages = chat["messages"];
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0]["content"][0]["text"], "S");
  EXPECT_EQ(messages[0]["content"][0]["cache_control"], Json({{"type", "ephemeral"}}));
  EXPECT_EQ(messages[2]["reasoning_content"], "T");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"], R"({"city":"Oslo"})");
  EXPECT_EQ(messages[3], Json({{"role", "tool"}, {"tool_call_id", "1"}, {"content", "cold"}}));
  EXPECT_EQ(messages[4], Json({{"role", "user"}, {"content", "And?"}}));
}

TEST(Formats, ItemsOfResponsesBecomeMessagesOfTheAssistant) {
  const Json chat = body_of(
      Api::responses,
      {{"instructions", "S"},
       {"max_output_tokens", 9},
       {"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", weather()}}}}},
       {"tools",
        {{{"type", "function"}, {"name", "f"}, {"parameters", weather()}, {"strict", true}}}},
       {"input",
        {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "U"}}}}},
         {{"type", "reasoning"},
          {"id", "r"},
          {"summary", Json::array()},
          {"content", {{{"type", "reasoning_text"}, {"text", "T"}}}}},
         {{"type", "message"},
          {"role", "assistant"},
          {"content", {{{"type", "output_text"}, {"text", "A"}, {"annotations", Json::array()}}}}},
         {{"type", "function_call"}, {"call_id", "1"}, {"name", "f"}, {"arguments", "{}"}},
         {{"type", "function_call_output"}, {"call_id", "1"}, {"output", "cold"}}}}});
  EXPECT_EQ(chat["max_tokens"], 9);
  EXPECT_EQ(chat["response_format"]["json_schema"]["schema"], weather());
  EXPECT_EQ(chat["tools"][0]["function"]["name"], "f");
  const Json& messages = chat["messages"];
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[2]["content"], "A");
  EXPECT_EQ(messages[2]["reasoning_content"], "T");
  EXPECT_EQ(messages[2]["tool_calls"][0]["id"], "1");
  EXPECT_EQ(messages[3], Json({{"role", "tool"}, {"tool_call_id", "1"}, {"content", "cold"}}));
}

TEST(Formats, OllamaOptionsBecomeFieldsOfChats) {
  const Json chat =
      body_of(Api::ollama_chat,
              {{"messages", {{{"role", "user"}, {"content", "U"}}}},
               {"format", weather()},
               {"think", false},
               {"options", {{"num_predict", 9}, {"repeat_penalty", 1.2}, {"num_ctx", 1}}}});
  EXPECT_EQ(chat["stream"], true);
  EXPECT_EQ(chat["max_tokens"], 9);
  EXPECT_EQ(chat["repetition_penalty"], 1.2);
  EXPECT_EQ(chat["enable_thinking"], false);
  EXPECT_EQ(chat["response_format"]["json_schema"]["schema"], weather());
  EXPECT_EQ(body_of(Api::ollama_generate, {{"prompt", "P"}, {"raw", true}})["prompt"], "P");
}

TEST(Formats, ThoughtsThatWereNotWantedAreNotSent) {
  const Json ask = {{"role", "user"}, {"content", "U"}};
  const Json answer = {
      {"model", "m"},
      {"choices",
       {{{"message", {{"content", "A"}, {"reasoning_content", "T"}}}, {"finish_reason", "stop"}}}}};
  const auto piece = [](const Json& delta) {
    return Json{{"model", "m"}, {"choices", {{{"delta", delta}, {"finish_reason", nullptr}}}}};
  };
  for (const bool thinks : {false, true}) {
    const Json ollama = {{"messages", {ask}}, {"think", thinks}};
    auto format = Format::of(Api::ollama_chat, ollama);
    EXPECT_EQ(format->whole(answer, {})["message"].contains("thinking"), thinks);
    EXPECT_EQ(format->chunk(piece({{"reasoning_content", "T"}}), {}).empty(), !thinks);
    EXPECT_THAT(format->chunk(piece({{"content", "A"}}), {}), HasSubstr("\"A\""));
    const Json anthropic = {{"messages", {ask}},
                            {"max_tokens", 9},
                            {"thinking", {{"type", thinks ? "adaptive" : "disabled"}}}};
    format = Format::of(Api::anthropic, anthropic);
    EXPECT_EQ(format->whole(answer, {})["content"].size(), thinks ? 2u : 1u);
    const std::string chunk = format->chunk(piece({{"reasoning_content", "T"}}), {});
    EXPECT_EQ(chunk.find("thinking_delta") != std::string::npos, thinks);
  }
}

TEST(Formats, EveryApiSaysTheSameText) {
  const TestServer server;
  const Reply said = server.post("/v1/chat/completions", chat());
  const std::string text = text_of(said);
  const Json user = {{{"role", "user"}, {"content", kPrompt}}};
  const Json messages = {{"messages", user}, {"max_tokens", 12}, {"temperature", 0}};
  Json asked = {{"input", kPrompt}, {"max_output_tokens", 12}, {"temperature", 0}};

  Json made = server.post("/v1/responses", asked).json();
  EXPECT_EQ(made["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(made["status"], "completed");
  asked["stream"] = true;
  std::vector<Json> events = named_events(server.post("/v1/responses", asked));
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events.back()["response"]["output"][0]["content"], made["output"][0]["content"]);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);

  made = server.post("/v1/messages", messages).json();
  EXPECT_EQ(made["content"], Json({{{"type", "text"}, {"text", text}}}));
  EXPECT_EQ(made["stop_reason"], "end_turn");
  Json streamed = messages;
  streamed["stream"] = true;
  streamed["max_tokens"] = 3;
  EXPECT_THAT(server.post("/v1/messages", streamed).body, HasSubstr("\"max_tokens\""));
  streamed["max_tokens"] = 12;
  events = named_events(server.post("/v1/messages", streamed));
  std::string joined;
  for (const Json& event : events) {
    if (event["type"] == "content_block_delta") joined += event["delta"]["text"];
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(events.back()["type"], "message_stop");
  EXPECT_EQ(server.post("/v1/messages/count_tokens", messages).json()["input_tokens"],
            made["usage"]["input_tokens"].get<int>() +
                made["usage"]["cache_read_input_tokens"].get<int>());

  const Json options = {{"temperature", 0}, {"num_predict", 12}};
  const Json talk = {{"messages", user}, {"options", options}, {"stream", false}};
  made = server.post("/api/chat", talk).json();
  EXPECT_EQ(made["message"]["content"], text);
  EXPECT_EQ(made["done_reason"], "stop");
  EXPECT_EQ(made["eval_count"], said.json()["usage"]["completion_tokens"]);
  made =
      server.post("/api/generate", {{"prompt", kPrompt}, {"options", options}, {"stream", false}})
          .json();
  EXPECT_EQ(made["response"], text);
  const Reply lines = server.post("/api/generate", {{"prompt", kPrompt}, {"options", options}});
  EXPECT_THAT(lines.headers.find("content-type")->second, HasSubstr("application/x-ndjson"));
  joined.clear();
  for (std::size_t at = 0; at < lines.body.size();) {
    const std::size_t end = lines.body.find('\n', at);
    joined += Json::parse(lines.body.substr(at, end - at))["response"];
    at = end + 1;
  }
  EXPECT_EQ(joined, text);
}

TEST(Formats, EveryApiGoesOnWithAnAnswerThatHasBegun) {
  const TestServer server;
  const Json messages = {{{"role", "user"}, {"content", kPrompt}},
                         {{"role", "assistant"}, {"content", "The pass"}}};
  const Json openai = {{"messages", messages}, {"temperature", 0}, {"max_tokens", 6}};
  const Reply said = server.post("/v1/chat/completions", openai);
  const std::string text = text_of(said);
  EXPECT_NE(text, "");
  EXPECT_EQ(server.post("/v1/messages", openai).json()["content"][0]["text"], text);
  const Json ollama = {{"messages", messages},
                       {"options", {{"temperature", 0}, {"num_predict", 6}}},
                       {"stream", false}};
  EXPECT_EQ(server.post("/api/chat", ollama).json()["message"]["content"], text);
  Json anew = openai;
  anew["continue_final_message"] = false;
  EXPECT_GT(server.post("/v1/chat/completions", anew).json()["usage"]["prompt_tokens"],
            said.json()["usage"]["prompt_tokens"]);
}

TEST(Formats, AStopStringIsNamed) {
  const TestServer server;
  const std::string text = text_of(server.post("/v1/chat/completions", chat()));
  const std::string stop = text.substr(2, 2);
  const Json made = server
                        .post("/v1/messages", {{"messages", chat()["messages"]},
                                               {"temperature", 0},
                                               {"max_tokens", 12},
                                               {"stop_sequences", {"not there", stop}}})
                        .json();
  EXPECT_EQ(made["stop_reason"], "stop_sequence");
  EXPECT_EQ(made["stop_sequence"], stop);
}

TEST(Formats, CallsAndThoughtsInStreams) {
  const ballast::Json call = {{"id", "c"},
                              {"type", "function"},
                              {"function", {{"name", "f"}, {"arguments", R"({"a":1})"}}}};
  const auto chunk = [](ballast::Json delta, ballast::Json reason) {
    return ballast::Json{
        {"model", "m"},
        {"choices", ballast::Json::array(
                        {{{"delta", std::move(delta)}, {"finish_reason", std::move(reason)}}})}};
  };
  const auto types = [&](Api api, ballast::Json request) {
    const auto format = Format::of(api, std::move(request));
    std::string all;
    all += format->chunk(chunk({{"role", "assistant"}, {"content", ""}}, nullptr), {});
    all += format->chunk(chunk({{"reasoning_content", "hm"}}, nullptr), {});
    all += format->chunk(chunk({{"content", "So"}}, nullptr), {});
    all += format->chunk(chunk({{"tool_calls", ballast::Json::array({call})}}, "tool_calls"), {});
    all += format->end({});
    std::vector<std::string> out;
    for (const std::string& data : events_of(all)) out.push_back(Json::parse(data)["type"]);
    return out;
  };
  EXPECT_THAT(types(Api::anthropic, {{"messages", {{{"role", "user"}, {"content", "x"}}}}}),
              ElementsAre("message_start", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  EXPECT_THAT(
      types(Api::responses, {{"input", "x"}}),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
}

TEST(Formats, RefusalsHaveTheShapeOfTheApiAndNameTheField) {
  const TestServer server;
  Reply reply = server.post("/v1/messages", {{"messages", {{{"role", "king"}, {"content", "x"}}}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error");
  EXPECT_THAT(reply.body, HasSubstr("messages[0].role"));
  reply = server.post("/v1/messages", {{"messages", chat()["messages"]}, {"no_such", 1}});
  EXPECT_THAT(reply.body, HasSubstr("no_such"));
  reply =
      server.post("/api/chat", {{"messages", chat()["messages"]}, {"options", {{"mirostat", 2}}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.json()["error"].get<std::string>(), HasSubstr("options.mirostat"));
  reply = server.post("/v1/responses", {{"input", {{{"type", "item_reference"}, {"id", "x"}}}}});
  EXPECT_EQ(reply.code(), "unsupported_parameter");
  EXPECT_THAT(reply.body, HasSubstr("input[0].type"));
  EXPECT_EQ(server.post("/v1/responses", {{"input", "x"}, {"previous_response_id", "y"}}).code(),
            "unsupported_parameter");
}

TEST(Formats, OllamaRequestsWithoutAQuestionLoadAndUnloadAtOnce) {
  const TestServer server;
  const std::vector<std::tuple<const char*, std::string, const char*>> all = {
      {"/api/generate", R"({"model":"m"})", "load"},
      {"/api/generate", R"({"model":"m","prompt":"","system":"S","keep_alive":"5m"})", "load"},
      {"/api/generate", R"({"prompt":null,"raw":true,"stream":false,"keep_alive":-1})", "load"},
      {"/api/generate", R"({"prompt":"","keep_alive":10,"options":{"num_predict":9}})", "load"},
      {"/api/generate", R"({"model":"m","keep_alive":0})", "unload"},
      {"/api/generate", R"({"model":"m","prompt":"","keep_alive":"0s"})", "unload"},
      {"/api/generate", R"({"model":"m","keep_alive":"0h0m0s"})", "unload"},
      {"/api/chat", R"({"model":"m"})", "load"},
      {"/api/chat", R"({"messages":[],"stream":false,"tools":[]})", "load"},
      {"/api/chat", R"({"messages":null,"keep_alive":"0"})", "unload"},
      {"/api/chat", R"({"messages":[],"keep_alive":0.0})", "unload"},
  };
  for (const auto& [path, body, reason] : all) {
    const Reply reply = send(server.port(), "POST", path, body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json answer = reply.json();  // one line, a stream or not
    EXPECT_EQ(answer["done_reason"], reason) << body;
    EXPECT_EQ(answer["done"], true);
    EXPECT_EQ(answer["model"], "ballast-mini");
    const bool talks = std::string_view(path) == "/api/chat";
    EXPECT_EQ(talks ? answer["message"]["content"] : answer["response"], "") << body;
  }
  EXPECT_EQ(server.metric("generated_tokens_total"), 0);
  // Those with a question are answered whatever keep_alive is.
  const Json asked = {{"prompt", "x"}, {"keep_alive", 0}, {"options", {{"num_predict", 2}}}};
  EXPECT_THAT(server.post("/api/generate", asked).body, HasSubstr("\"done_reason\":\"length\""));
}

TEST(Formats, OllamaClientsFindTheModel) {
  const TestServer server;
  EXPECT_EQ(server.get("/api/tags").json()["models"][0]["name"], "ballast-mini");
  EXPECT_THAT(server.post("/api/show", {{"model", "any"}}).body, HasSubstr("completion"));
  EXPECT_EQ(server.get("/api/version").status, 200);
  EXPECT_EQ(server.post("/api/embed", {{"input", {"a", "b"}}}).json()["embeddings"].size(), 2u);
}

}  // namespace
}  // namespace ballast::test
