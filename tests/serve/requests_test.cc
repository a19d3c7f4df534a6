#include "serve/requests.h"

#include <gmock/gmock.h>

#include <cstring>

#include "report/json.h"
#include "serve/api_error.h"
#include "serve/client.h"
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
        "{% endfor %}{{ m.tool_call_id }}{% endfor %}";
    return out;
  }
  std::string prompt(const std::string& body) {
    const TextRequest request = parse_chat(Ordered::parse(body), limits_, tokenizer_, contexts_);
    return tokenizer_.decode(request.job.prompt);
  }
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
  EXPECT_EQ(param_of(ask + kTools + R"(,"tool_choice":"required"})"), "tool_choice");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"assistant"}]})"), "messages[0].content");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})"),
            "messages[0].tool_calls[0].function");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":"x","tool_calls":[{}]}]})"),
            "messages[0].tool_calls");
}

TEST(ServeRequests, LongNamesAreShortened) {
  const std::string name(5'000'000, 'x');
  try {
    const ballast::Json cache = {{"method", name}};
    serve::parse_cache(&cache, {});
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
