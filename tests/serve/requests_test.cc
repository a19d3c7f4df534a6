#include "serve/requests.h"

#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "report/json.h"
#include "serve/client.h"
#include "serve/http/api_error.h"
#include "serve/requests/place.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using serve::ApiError;
using serve::TextRequest;
using testing::HasSubstr;
using Ordered = nlohmann::ordered_json;

/// Requests to the shipped model with a chat template that shows what reaches it.
class ServeTools : public testing::Test {
 protected:
  static Vocabulary vocabulary() {
    Vocabulary out = read_vocabulary(kMini);
    out.chat_template =
        "{% if tools %}{{ tools[0].function.name }} {% endif %}"
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.city }})"
        "{% endfor %}{{ m.tool_call_id }}{% if m.reasoning_content %}({{ m.reasoning_content }})"
        "{% endif %}{{ m.name }}{% endfor %}{% if reasoning_effort %} {{ reasoning_effort }}"
        "{% endif %}{% if enable_thinking is defined %} {{ enable_thinking }}{% endif %}"
        "{% if open %}<think>\n{% endif %}";
    return out;
  }
  TextRequest parsed(const std::string& body) {
    return parse_chat(Ordered::parse(body), limits_, tokenizer_, contexts_);
  }
  std::string prompt(const std::string& body) { return tokenizer_.decode(parsed(body).job.prompt); }
  std::string param_of(const std::string& body) {
    try {
      return "none; " + prompt(body);
    } catch (const ApiError& error) {
      return error.to_json()["error"]["param"];
    }
  }

  const Tokenizer tokenizer_{vocabulary()};
  serve::RequestLimits limits_{"mini", 16, 16, {}};
  serve::Memory memory_{std::size_t{1} << 30};
  std::vector<std::string> refused_;
  serve::Contexts contexts_{TestServer::mini(), memory_, {}, refused_};
};

const std::string kTools = R"("tools":[{"type":"function","function":{"name":"weather",
    "parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}])";
const std::string kSaid = R"("messages":[{"role":"user","content":"How is it?"},
    {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":
        {"name":"weather","arguments":"{\"city\": \"Oslo\"}"}}]},
    {"role":"tool","tool_call_id":"1","content":"cold"}])";

TEST_F(ServeTools, ReachTheTemplate) {
  const std::string text = prompt("{" + kTools + "," + kSaid + "}");
  EXPECT_THAT(text, testing::StartsWith("weather <user>How is it?"));
  EXPECT_THAT(text, HasSubstr("<assistant>weather(Oslo)"));
  EXPECT_THAT(text, HasSubstr("<tool>cold1"));
  EXPECT_THAT(prompt("{" + kTools + R"(,"tool_choice":"none",)" + kSaid + "}"),
              testing::StartsWith("<user>"));
}

TEST_F(ServeTools, ArgumentsHaveASizeInAll) {
  const auto body = [](std::size_t bytes) {
    const Ordered call = {{"type", "function"},
                          {"function", {{"name", "f"}, {"arguments", std::string(bytes, '[')}}}};
    const Ordered answer = {{"role", "assistant"}, {"tool_calls", {call, call}}};
    return Ordered({{"messages", {{{"role", "user"}, {"content", "x"}}, answer}}}).dump();
  };
  EXPECT_EQ(param_of(body(600'000)), "messages[1].tool_calls[1].function.arguments");
  EXPECT_THAT(param_of(body(500'000)), testing::StartsWith("none"));
}

TEST_F(ServeTools, AreRefusedByName) {
  const std::string ask = R"({"messages":[{"role":"user","content":"x"}],)";
  EXPECT_EQ(param_of(ask + R"("tools":3})"), "tools");
  EXPECT_EQ(param_of(ask + R"("tools":[{"type":"web_search"}]})"), "tools[0].type");
  EXPECT_EQ(param_of(ask + R"("tools":[{"type":"function","function":{}}]})"),
            "tools[0].function.name");
  EXPECT_EQ(param_of(ask + R"("tool_choice":"required"})"), "tool_choice");
  const std::string named = R"(,"tool_choice":{"type":"function","function":)";
  EXPECT_EQ(param_of(ask + kTools + named + R"({"name":"time"}}})"), "tool_choice");
  EXPECT_EQ(param_of(ask + kTools + named + "{}}}"), "tool_choice.function.name");
  EXPECT_EQ(param_of(ask + kTools + R"(,"tool_choice":{"type":"allowed_tools"}})"), "tool_choice");
  EXPECT_EQ(param_of(ask + R"("tool_choice":"required","tools":[{"type":"function","function":
      {"name":"f","parameters":{"type":"object","properties":{"a":{"pattern":"[x"}}}}}]})"),
            "tools[0].function.parameters.properties.a.pattern");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"assistant"}]})"), "messages[0].content");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})"),
            "messages[0].tool_calls[0].function");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":"x","tool_calls":[{}]}]})"),
            "messages[0].tool_calls");
}

TEST_F(ServeTools, ThoughtsNamesAndSwitchesReachTheTemplate) {
  const std::string ask = R"({"messages":[{"role":"user","content":"x"})";
  for (const char* name : {"reasoning_content", "reasoning"}) {
    EXPECT_THAT(prompt(ask + R"(,{"role":"assistant","content":"y",")" + name +
                       R"(":"why"},{"role":"user","content":"z"}]})"),
                HasSubstr("<assistant>y(why)"));
  }
  EXPECT_THAT(prompt(R"({"messages":[{"role":"user","content":"x","name":"ann"}]})"),
              HasSubstr("<user>xann"));
  const std::vector<std::pair<std::string, std::string>> all = {
      {R"("chat_template_kwargs":{"enable_thinking":false})", "<user>x False"},
      {R"("enable_thinking":true)", "<user>x True"},
      {R"("thinking":{"type":"disabled"})", "<user>x False"},
      {R"("thinking":{"type":"enabled"})", "<user>x True"},
      {R"("reasoning_effort":"low")", "<user>x low"},
      {R"("reasoning_effort":"none")", "<user>x none False"},
      {R"("reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})",
       "<user>x none True"},
  };
  for (const auto& [field, text] : all) {
    EXPECT_THAT(prompt(ask + "]," + field + "}"), testing::EndsWith(text)) << field;
  }
}

TEST_F(ServeTools, AnOpenThoughtIsKnownAndEndsBeforeJson) {
  const std::string ask =
      R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"open":1})";
  EXPECT_TRUE(parsed(ask + "}").job.thoughts_open);
  EXPECT_TRUE(parsed(ask + "}").job.split_thoughts);
  EXPECT_FALSE(parsed(ask + R"(,"reasoning_format":"none"})").job.split_thoughts);
  const TextRequest json = parsed(ask + R"(,"response_format":{"type":"json_object"}})");
  EXPECT_FALSE(json.job.thoughts_open || json.job.split_thoughts);
  EXPECT_THAT(tokenizer_.decode(json.job.prompt), testing::EndsWith("<think>\n</think>\n\n"));
  EXPECT_FALSE(parsed(R"({"messages":[{"role":"user","content":"<think> x"}]})").job.thoughts_open);
}

TEST_F(ServeTools, AnAnswerThatHasBegunIsGoneOnWith) {
  const auto ask = [](const std::string& last, const std::string& more = "") {
    return R"({"messages":[{"role":"user","content":"x"},{"role":"assistant",)" + last + "}]" +
           more + "}";
  };
  EXPECT_EQ(prompt(ask(R"("content":"I am ")")), "<user>x<assistant>I am ");
  EXPECT_FALSE(parsed(ask(R"("content":"I am ")")).job.generate.text_start);
  EXPECT_EQ(prompt(ask(R"("content":"a","prefix":true)")), "<user>x<assistant>a");
  EXPECT_EQ(prompt(ask(R"("content":"a")",
                       R"(,"continue_final_message":true,"add_generation_prompt":false)")),
            "<user>x<assistant>a");
  EXPECT_EQ(prompt(ask(R"("content":"a")", R"(,"reasoning_effort":"low")")), "<user>x<assistant>a");
  EXPECT_EQ(prompt(ask(R"("content":"a")",
                       R"(,"reasoning_effort":"low","continue_final_message":false)")),
            "<user>x<assistant>a low");  // which stands before a new answer
  EXPECT_EQ(prompt(ask(R"("content":"")", R"(,"reasoning_effort":"low")")), "<user>x low");
  EXPECT_EQ(prompt(ask(R"("content":"","reasoning_content":"Hm")")), "<user>x<think>\nHm");
  EXPECT_TRUE(parsed(ask(R"("content":"","reasoning_content":"Hm")")).job.thoughts_open);
  EXPECT_TRUE(parsed(ask(R"("content":"<think>\nHm")")).job.thoughts_open);
  EXPECT_FALSE(parsed(ask(R"("content":"<think>\nHm</think>\nSo")")).job.thoughts_open);
  // Calls wait for results.
  EXPECT_THAT(prompt(ask(R"("content":"a","tool_calls":[{"type":"function","function":{"name":"f",
      "arguments":"{}"}}])",
                         R"(,"reasoning_effort":"low")")),
              testing::EndsWith(" low"));
  EXPECT_EQ(param_of(ask(R"("content":"a")", R"(,"response_format":{"type":"json_object"})")),
            "messages[1]");
  EXPECT_EQ(
      param_of(R"({"messages":[{"role":"user","content":"x"}],"continue_final_message":true})"),
      "continue_final_message");
  EXPECT_EQ(
      param_of(R"({"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false})"),
      "add_generation_prompt");
}

/// Requests to a model with another template.
class Templates : public testing::Test {
 protected:
  Tokenizer with(const std::string& text) {
    Vocabulary out = read_vocabulary(kMini);
    out.chat_template = text;
    return Tokenizer(out);
  }
  TextRequest parsed(const Tokenizer& tokenizer, const std::string& body) {
    return parse_chat(Ordered::parse(body), limits_, tokenizer, contexts_);
  }
  serve::RequestLimits limits_{"mini", 16, 16, {}};
  serve::Memory memory_{std::size_t{1} << 30};
  std::vector<std::string> refused_;
  serve::Contexts contexts_{TestServer::mini(), memory_, "", refused_};
};

TEST_F(Templates, ThatEndWithAQuestionTakeAnAnswerThatHasBegun) {
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"I am"}]})";
  const auto prompt = [&](const std::string& text) {
    const Tokenizer tokenizer = with(text);
    return tokenizer.decode(parsed(tokenizer, body).job.prompt);
  };
  const std::string turns =
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }};{% endfor %}";
  EXPECT_EQ(prompt(turns + "[assistant]"), "[user]x;[assistant]I am");
  EXPECT_EQ(prompt("{% if messages[-1].role != 'user' %}{{ raise_exception('no') }}{% endif %}" +
                   turns + "{% if add_generation_prompt %}[assistant]{% endif %}"),
            "[user]x;[assistant]I am");
  EXPECT_EQ(prompt("{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}"),
            "x<think>\n\n</think>\n\nI am");
}

TEST_F(Templates, WithoutToolsAreToldOfThoseThatMustBeCalled) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"look","parameters":
      {"type":"object","properties":{"city":{"enum":["Ulm","Bern"]}},"required":["city"]}}},
      {"type":"function","function":{"name":"time"}}])";
  const std::string ask = R"({"messages":[{"role":"user","content":"x"}],)" + tools;
  const std::string turns = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}";
  const auto prompt = [&](const std::string& text, const std::string& body) {
    const Tokenizer tokenizer = with(text);
    return tokenizer.decode(parsed(tokenizer, body).job.prompt);
  };
  const std::string both = prompt(turns, ask + R"(,"tool_choice":"required"})");
  EXPECT_THAT(both, testing::StartsWith("[system]Call one of these functions."));
  EXPECT_THAT(both, HasSubstr(R"("name":"look")"));
  EXPECT_THAT(both, testing::EndsWith("[user]x;"));
  const std::string named =
      prompt(turns, ask + R"(,"tool_choice":{"type":"function","function":{"name":"time"}}})");
  EXPECT_THAT(named, HasSubstr(R"("name":"time")"));
  EXPECT_THAT(named, testing::Not(HasSubstr("look")));
  // Where the template has no system's text.
  for (const std::string& none :
       {"{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + turns,
        std::string("{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }};{% "
                    "endfor %}")}) {
    const std::string text = prompt(none, ask + R"(,"tool_choice":"required"})");
    EXPECT_THAT(text, testing::StartsWith("[user]Call one of these functions."));
    EXPECT_THAT(text, testing::EndsWith("\n\nx;"));
  }
  // Calls and results that were become texts.
  const std::string later = prompt(turns, R"({"messages":[{"role":"system","content":"S"},
      {"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"type":
      "function","function":{"name":"look","arguments":"{\"city\":\"Ulm\"}"}}]},{"role":"tool",
      "tool_call_id":"1","content":"cold"}],"tool_choice":"required",)" +
                                              tools + "}");
  EXPECT_THAT(later, testing::StartsWith("[system]S\n\nCall one"));
  EXPECT_THAT(later,
              testing::EndsWith(
                  R"([assistant]{"name":"look","arguments":{"city":"Ulm"}};[user]Result: cold;)"));
  // The schema is held.
  const TestServer server(TestServer::mini(), {}, with(turns));
  const Reply reply = send(server.port(), "POST", "/v1/chat/completions",
                           ask + R"(,"tool_choice":"required","max_tokens":300,"seed":1})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json choice = reply.json()["choices"][0];
  EXPECT_TRUE(choice["finish_reason"] == "tool_calls" || choice["finish_reason"] == "length")
      << reply.body;
  EXPECT_EQ(send(server.port(), "POST", "/v1/chat/completions", ask + "}").code(),
            "unsupported_parameter");  // where none must be called
}

TEST_F(ServeTools, OneMustBeCalledWhereTheRequestSaysSo) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"weather",
      "parameters":{"type":"object","properties":{"city":{"enum":["Oslo","Rome"]}},
      "required":["city"]}}},{"type":"function","function":{"name":"now"}}],"max_tokens":200,)"
                            R"("temperature":1.5,"seed":)";
  const TestServer server(TestServer::mini(), {}, tokenizer_);
  const std::string ask = R"({"messages":[{"role":"user","content":"How is it?"}],)" + tools;
  std::set<std::string> called;
  for (int seed = 0; seed < 8; ++seed) {
    const std::string named = R"({"type":"function","function":{"name":"weather"}})";
    for (const std::string& choice : {std::string("\"required\""), named}) {
      const Reply reply = send(server.port(), "POST", "/v1/chat/completions",
                               ask + fmt::format(R"({},"tool_choice":{}}})", seed, choice));
      ASSERT_EQ(reply.status, 200) << reply.body;
      const Json answer = reply.json()["choices"][0];
      if (answer["finish_reason"] == "length") continue;
      ASSERT_EQ(answer["finish_reason"], "tool_calls") << reply.body;
      ASSERT_EQ(answer["message"]["tool_calls"].size(), 1u);
      const Json call = answer["message"]["tool_calls"][0]["function"];
      const Json arguments = Json::parse(call["arguments"].get<std::string>());
      EXPECT_TRUE(choice != named || call["name"] == "weather");
      EXPECT_TRUE(call["name"] != "weather" || arguments["city"].is_string());
      EXPECT_TRUE(arguments.is_object());
      called.insert(call["name"]);
    }
  }
  EXPECT_EQ(called.count("weather"), 1u);
}

TEST_F(ServeTools, ACallThatMustBeStandsInItsTag) {
  Vocabulary tagged = vocabulary();
  tagged.pieces.push_back("<tool_call>");
  tagged.types.push_back(TokenType::user_defined);
  if (!tagged.scores.empty()) tagged.scores.push_back(0);
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required",)" + kTools + "}";
  EXPECT_THAT(prompt(body), testing::EndsWith("<user>x"));
  tagged.kind = Vocabulary::Kind::sentencepiece;
  const Tokenizer tokenizer(tagged);
  const TextRequest request = parse_chat(Ordered::parse(body), limits_, tokenizer, contexts_);
  EXPECT_THAT(tokenizer.decode(request.job.prompt), testing::EndsWith("<user>x<tool_call>\n"));
  EXPECT_LT(request.job.compress_at, request.job.prompt.size());
}

TEST(ServeRequests, LongNamesAreShortened) {
  const std::string name(5'000'000, 'x');
  try {
    const ballast::Json cache = {{"method", name}};
    serve::Job job;
    serve::parse_cache(&cache, {}, job);
    ADD_FAILURE();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.to_json()["error"]["param"], "cache.method");
    EXPECT_LT(std::string(error.what()).size(), 200u);
  }
}

std::string more_than_a_million_tokens() {
  std::string text;
  for (int i = 0; i < 600'000; ++i) text += "a b ";
  return text;
}

TEST(ServeRequests, ATextOfMoreTokensThanAnyModelHasIsRefusedEarly) {
  const TestServer server;
  const std::string text = more_than_a_million_tokens();
  const Reply prompt = server.post("/v1/completions", {{"prompt", text}});
  EXPECT_EQ(prompt.status, 400);
  EXPECT_EQ(prompt.code(), "context_length_exceeded");
  EXPECT_THAT(prompt.body, HasSubstr("more than 1048576 tokens"));
  EXPECT_EQ(server.post("/tokenize", {{"content", text}}).status, 400);
}

TEST(ServeRequests, AModelThatSaysItHasRoomForMoreRaisesNoLimit) {
  std::string bytes = read_text(kMini);
  const std::string key = ".context_length";
  const std::size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  const std::uint32_t positions = 4'000'000'000;
  std::memcpy(&bytes[at + key.size() + 4], &positions, sizeof positions);
  const TempDir dir;
  write_text(dir / "long.gguf", bytes);
  const Model model(dir / "long.gguf");
  ASSERT_EQ(model.config().max_positions, positions);
  serve::ServerOptions options;
  options.memory = std::size_t{1} << 42;
  const TestServer server(model, options);
  const Reply reply = server.post("/tokenize", {{"content", more_than_a_million_tokens()}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("more than 1048576 tokens"));
}

TEST(ServeRequests, ManyTokensMakeNoTextOfAnySize) {
  Vocabulary vocabulary = read_vocabulary(kMini);
  constexpr std::size_t kLong = 300;
  vocabulary.pieces[kLong] = std::string(1000, 'x');
  const TestServer server(TestServer::mini(), {}, Tokenizer(vocabulary));
  const auto all = [&](std::size_t count) {
    return server.post("/detokenize", {{"tokens", std::vector<std::size_t>(count, kLong)}});
  };
  EXPECT_EQ(all(16'000).json()["content"].get<std::string>().size(), 16'000'000u);
  const Reply text = all(17'000);
  EXPECT_EQ(text.status, 400);
  EXPECT_EQ(text.code(), "invalid_value");
  EXPECT_THAT(text.body, HasSubstr("more than 16777216 bytes"));
}

}  // namespace
}  // namespace ballast::test
