#include "serve/thoughts.h"

#include <gmock/gmock.h>

#include "ballast/engine/chat.h"
#include "serve/answers.h"
#include "serve/client.h"

namespace ballast::test {
namespace {

using serve::ThoughtReader;
using Ordered = nlohmann::ordered_json;

ThoughtReader::Parts read(const std::string& text, std::size_t size, bool open = false) {
  ThoughtReader reader(open);
  ThoughtReader::Parts out;
  const auto add = [&](const ThoughtReader::Parts& parts) {
    out.thoughts += parts.thoughts;
    out.answer += parts.answer;
  };
  for (std::size_t at = 0; at < text.size(); at += size) add(reader.push(text.substr(at, size)));
  add(reader.finish());
  return out;
}

struct Case {
  std::string text;
  std::string thoughts;
  std::string answer;
  bool open = false;
};

TEST(Thoughts, StandBetweenTagsAtTheBeginning) {
  const std::vector<Case> all = {
      {"", "", ""},
      {" \n", "", " \n"},
      {"Hello.", "", "Hello."},
      {"<thin", "", "<thin"},
      {" <thing>", "", " <thing>"},
      {"<think>\nTwo and two.\n</think>\n\nFour. ", "Two and two.", "Four. "},
      {"\n<think>a</think>b", "a", "b"},
      {"<think>\n\n</think>\n\nFour.", "", "Four."},
      {"<think>a  b </thin < </think>\n", "a  b </thin <", ""},
      {"<think>no end </thi", "no end </thi", ""},
      {"<think>a</think>b <think>c</think>", "a", "b <think>c</think>"},
      {"An answer <think>a</think>", "", "An answer <think>a</think>"},
      {"a\n</think>\n\nb", "a", "b", true},
      {"<think>\na</think>b", "a", "b", true},
      {"\n\na ", "a", "", true},
      {"", "", "", true},
  };
  for (const Case& one : all) {
    for (const std::size_t size : {1, 2, 3, 5, 100}) {
      const ThoughtReader::Parts parts = read(one.text, size, one.open);
      EXPECT_EQ(parts.thoughts, one.thoughts) << one.text << " by " << size;
      EXPECT_EQ(parts.answer, one.answer) << one.text << " by " << size;
    }
  }
}

TEST(Thoughts, AreSentAtOnceAndInTimeInProportion) {
  ThoughtReader reader(false);
  EXPECT_EQ(reader.push("<think>Two").thoughts, "Two");
  EXPECT_EQ(reader.push(" and </th").thoughts, " and");
  EXPECT_EQ(reader.push("ink>4").answer, "4");
  EXPECT_EQ(reader.push("!").answer, "!");
  for (const char c : {' ', '<', 'x'}) {
    const std::string text(2'000'000, c);
    const ThoughtReader::Parts parts = read("<think>x" + text + "x", 2);
    EXPECT_EQ(parts.thoughts, "x" + text + "x");
  }
}

/// What clients get of a text in pieces of three characters.
Ordered answer(const serve::TextRequest& request, const std::string& text) {
  const TestServer server;  // for its tokenizer
  serve::AnswerWriter writer(request, "model", server.tokenizer());
  Ordered streamed = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Ordered::array()}};
  for (std::size_t at = 0; at <= text.size(); at += 3) {
    serve::Piece piece{0, text.substr(at, 3), {}, {}};
    if (at + 3 > text.size()) piece.finish = Finish::end;
    for (const ballast::Json& chunk : writer.add(piece)) {
      const Ordered delta = chunk["choices"][0]["delta"];
      for (const auto& [name, value] : delta.items()) {
        if (value.is_string()) streamed[name] = streamed.value(name, "") + value.get<std::string>();
        if (value.is_array())
          streamed[name].insert(streamed[name].end(), value.begin(), value.end());
      }
    }
  }
  const Ordered whole = writer.whole()["choices"][0];
  if (!request.stream) return whole["message"];
  return streamed;
}

TEST(Thoughts, ComeApartAndHoldNoCalls) {
  serve::TextRequest request;
  request.chat = request.split_thoughts = true;
  request.functions = {{"f"}};
  const std::string call = R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)";
  for (const bool stream : {false, true}) {
    request.stream = stream;
    Ordered message = answer(request, "<think>\nI could " + call + "\n</think>\nNo.");
    EXPECT_EQ(message["reasoning_content"], "I could " + call);
    EXPECT_EQ(message["content"], "No.");
    EXPECT_TRUE(message.value("tool_calls", Ordered::array()).empty());
    message = answer(request, "<think>So:</think>" + call);
    EXPECT_EQ(message["reasoning_content"], "So:");
    EXPECT_EQ(message["tool_calls"].size(), 1u);
    EXPECT_FALSE(answer(request, "No.").contains("reasoning_content"));
  }
  request.split_thoughts = false;
  request.functions.clear();
  EXPECT_EQ(answer(request, "<think>a</think>b")["content"], "<think>a</think>b");
}

TEST(Thoughts, EndAtTheirBudget) {
  const Model& model = TestServer::mini();
  Vocabulary vocabulary = read_vocabulary(*model.file().gguf());
  vocabulary.chat_template =
      "{{ bos_token }}<|user|>{{ messages[0].content }}<|assistant|>{% if enable_thinking is not "
      "defined or enable_thinking %}<think>\n{% endif %}";
  const TestServer server(model, {}, Tokenizer(vocabulary));
  Json body = {{"messages", {{{"role", "user"}, {"content", "Count."}}}},
               {"temperature", 0},
               {"ignore_eos", true},
               {"max_tokens", 40}};
  const auto asked = [&](const Json& more) {
    Json all = body;
    all.update(more);
    return server.post("/v1/chat/completions", all).json();
  };
  const auto thoughts = [](const Json& answer) {
    return answer["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int>();
  };
  Json answer = asked(Json::object());
  EXPECT_EQ(thoughts(answer), 40);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "");
  for (const Json& budget : {Json{{"thinking_budget", 5}},
                             Json{{"thinking", {{"type", "enabled"}, {"budget_tokens", 5}}}}}) {
    answer = asked(budget);
    EXPECT_GE(thoughts(answer), 5);
    EXPECT_LT(thoughts(answer), 30);  // the shipped model writes the tag letter by letter
    EXPECT_NE(answer["choices"][0]["message"]["content"], "");
    EXPECT_NE(answer["choices"][0]["message"]["reasoning_content"], "");
  }
  answer = asked({{"thinking_budget", 0}});
  EXPECT_FALSE(answer["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_NE(answer["choices"][0]["message"]["content"], "");
  // Anthropic's form of the same.
  body.erase("ignore_eos");
  body["thinking"] = {{"type", "enabled"}, {"budget_tokens", 5}};
  const Json content = server.post("/v1/messages", body).json()["content"];
  EXPECT_EQ(content[0]["type"], "thinking");
}

}  // namespace
}  // namespace ballast::test
