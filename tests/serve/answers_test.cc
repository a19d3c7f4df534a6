// Answers as clients get them: thoughts, calls of functions, stop strings.
#include "serve/answers.h"

#include <gmock/gmock.h>

#include "ballast/engine/chat.h"
#include "serve/client.h"
#include "serve/scheduling/choice.h"
#include "text/answer/answer_text.h"

namespace ballast::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ordered = nlohmann::ordered_json;

const std::string kOslo = R"({"name": "weather", "arguments": {"city": "Oslo"}})";
const std::string kRome = R"({"name": "weather", "parameters": {"city": "Rome"}})";
std::string tagged(const std::string& json) { return "<tool_call>\n" + json + "\n</tool_call>"; }

/// What clients get of a text in pieces of three characters, whole and as a stream.
struct Answer {
  Answer(serve::TextRequest request, const std::string& text, Finish finish = Finish::end) {
    const TestServer server;  // for its tokenizer
    request.chat = request.job.chat = true;
    for (bool stream : {false, true}) {
      request.stream = stream;
      serve::AnswerWriter writer(request, "model", server.tokenizer());
      writer.add(serve::PromptRead{});
      AnswerText parts(server.tokenizer(), {.chat = true,
                                            .split_thoughts = request.job.split_thoughts,
                                            .functions = request.job.functions,
                                            .stop = request.job.generate.stop});
      for (std::size_t at = 0; at <= text.size() && !parts.stopped(); at += 3) {
        AnswerText::Parts got = parts.push(text.substr(at, 3));
        serve::Piece piece;
        piece.text = got.text;
        piece.thoughts = got.thoughts;
        piece.calls = got.calls;
        if (parts.stopped()) {
          piece.finish = Finish::stop;
        } else if (at + 3 > text.size()) {
          got = parts.finish();
          piece.text += got.text;
          piece.thoughts += got.thoughts;
          piece.calls.insert(piece.calls.end(), got.calls.begin(), got.calls.end());
          piece.finish = finish;
        }
        const std::vector<ballast::Json> made = writer.add(piece);
        EXPECT_TRUE(stream || made.empty());
        for (const ballast::Json& chunk : made) chunks.push_back(chunk["choices"][0]);
      }
      writer.add(serve::Ended{});
      if (!stream) whole = writer.whole()["choices"][0];
    }
    for (const Ordered& chunk : chunks) {
      for (const auto& [name, value] : chunk["delta"].items()) {
        if (value.is_string()) streamed[name] = streamed.value(name, "") + value.get<std::string>();
        if (value.is_array()) {
          streamed[name].insert(streamed[name].end(), value.begin(), value.end());
        }
      }
    }
  }
  Ordered whole;
  std::vector<Ordered> chunks;
  Ordered streamed = {{"tool_calls", Ordered::array()}};  ///< the message of all chunks
};

serve::TextRequest with_functions() {
  serve::TextRequest request;
  request.job.functions = {{"time"}, {"weather"}};
  return request;
}

TEST(Answers, CallsReachClientsInOpenAiShape) {
  const Answer answer(with_functions(), "I look.\n" + tagged(kOslo) + tagged(kRome));
  EXPECT_EQ(answer.whole["finish_reason"], "tool_calls");
  const Ordered& message = answer.whole["message"];
  EXPECT_EQ(message["content"], "I look.");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  const Ordered& call = message["tool_calls"][1];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "weather");
  EXPECT_EQ(call["function"]["arguments"], R"({"city": "Rome"})");
  EXPECT_THAT(call["id"].get<std::string>(), testing::StartsWith("call_"));
  EXPECT_NE(call["id"], message["tool_calls"][0]["id"]);

  std::string content;
  Ordered calls = Ordered::array();
  for (const Ordered& chunk : answer.chunks) {
    content += chunk["delta"].value("content", "");
    for (const Ordered& one : chunk["delta"].value("tool_calls", Ordered::array())) {
      EXPECT_EQ(one["index"], calls.size());
      calls.push_back(one["function"]);
    }
  }
  EXPECT_EQ(content, "I look.");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[1], call["function"]);
  EXPECT_EQ(answer.chunks.back()["finish_reason"], "tool_calls");
}

TEST(Answers, OneCallAtMostAndNoneWhereTheRequestSaysSo) {
  serve::TextRequest request = with_functions();
  request.several_calls = false;
  const Answer one(request, tagged(kOslo) + tagged(kRome));
  EXPECT_EQ(one.whole["message"]["tool_calls"].size(), 1u);
  EXPECT_TRUE(one.whole["message"]["content"].is_null());
  request.job.functions.clear();
  const Answer none(request, kOslo);
  EXPECT_EQ(none.whole["message"]["content"], kOslo);
  EXPECT_FALSE(none.whole["message"].contains("tool_calls"));
  EXPECT_EQ(none.whole["finish_reason"], "stop");
  EXPECT_EQ(Answer(with_functions(), kOslo.substr(0, 20), Finish::length).whole["finish_reason"],
            "length");
}

/// The shipped model under a template that has learned tools; a schema makes it call one.
TEST(Answers, CallsOfAServer) {
  Vocabulary vocabulary = read_vocabulary(kMini);
  vocabulary.chat_template =
      "{% if tools %}{{ tools }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}";
  const TestServer server(TestServer::mini(), {}, Tokenizer(vocabulary));
  const Json schema = {{"type", "object"},
                       {"required", {"name", "parameters"}},
                       {"properties",
                        {{"name", {{"const", "weather"}}},
                         {"parameters",
                          {{"type", "object"},
                           {"required", {"city"}},
                           {"properties", {{"city", {{"enum", {"Oslo", "Rome"}}}}}}}}}}};
  Json body = {
      {"messages", {{{"role", "user"}, {"content", "How is the weather?"}}}},
      {"temperature", 0},
      {"tools", {{{"type", "function"}, {"function", {{"name", "weather"}}}}}},
      {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}};
  const Reply reply = server.post("/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json choice = reply.json()["choices"][0];
  ASSERT_EQ(choice["finish_reason"], "tool_calls") << reply.body;
  const Json call = choice["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "weather");
  EXPECT_TRUE(Json::parse(call["arguments"].get<std::string>()).contains("city"));

  body["stream"] = true;
  const std::vector<std::string> events = events_of(server.post("/v1/chat/completions", body).body);
  ASSERT_GE(events.size(), 3u);
  const Json last = Json::parse(events[events.size() - 2])["choices"][0];
  EXPECT_EQ(last["delta"]["tool_calls"][0]["function"], call);
  EXPECT_EQ(last["finish_reason"], "tool_calls");

  body["stream"] = false;
  body["tool_choice"] = "none";
  const Json text = server.post("/v1/chat/completions", body).json()["choices"][0];
  EXPECT_EQ(text["finish_reason"], "stop");
  EXPECT_FALSE(text["message"].contains("tool_calls"));
}

TEST(Answers, ThoughtsComeApartAndHoldNoCalls) {
  serve::TextRequest request;
  request.job.functions = {{"f"}};
  const std::string call = R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)";
  const Answer thought(request, "<think>\nI could " + call + "\n</think>\nNo.");
  const Answer called(request, "<think>So:</think>" + call);
  const Answer none(request, "No.");
  const auto messages = [](const Answer& answer) {
    return std::array{answer.whole["message"], answer.streamed};
  };
  for (const Ordered& message : messages(thought)) {
    EXPECT_EQ(message["reasoning_content"], "I could " + call);
    EXPECT_EQ(message["content"], "No.");
    EXPECT_TRUE(message.value("tool_calls", Ordered::array()).empty());
  }
  for (const Ordered& message : messages(called)) {
    EXPECT_EQ(message["reasoning_content"], "So:");
    EXPECT_EQ(message["tool_calls"].size(), 1u);
  }
  for (const Ordered& message : messages(none)) EXPECT_FALSE(message.contains("reasoning_content"));
  request.job.split_thoughts = false;
  for (const Ordered& message : messages(Answer(request, "<think>a" + call + "</think>\nb"))) {
    EXPECT_EQ(message["content"], "<think>a" + call + "</think>\nb");
    EXPECT_TRUE(message.value("tool_calls", Ordered::array()).empty());
  }
}

TEST(Answers, StopStringsEndTheAnswerAndNotItsThoughts) {
  serve::TextRequest request;
  request.job.generate.stop = {"END"};
  const std::string text = "<think>Is it the END?</think>\n\nYes. END. More";
  const Answer split(request, text);
  EXPECT_EQ(split.whole["message"]["reasoning_content"], "Is it the END?");
  EXPECT_EQ(split.whole["message"]["content"], "Yes. ");
  EXPECT_EQ(split.whole["finish_reason"], "stop");
  EXPECT_EQ(split.streamed["reasoning_content"], "Is it the END?");
  EXPECT_EQ(split.streamed["content"], "Yes. ");
  request.job.split_thoughts = false;
  const Answer whole(request, text);
  EXPECT_EQ(whole.whole["message"]["content"], "<think>Is it the END?</think>\n\nYes. ");
  // Nor do they end a call.
  request.job.functions = {{"weather"}};
  request.job.generate.stop = {"Oslo", "\n"};
  EXPECT_EQ(Answer(request, tagged(kOslo)).whole["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(Answer(request, kOslo).whole["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(Answer(request, R"({"city": 1} is Oslo.)").whole["message"]["content"],
            R"({"city": 1} is )");
}

TEST(Answers, ThoughtsEndAtTheirBudget) {
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
