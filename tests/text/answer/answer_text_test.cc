// Answers that come token by token.
#include "text/answer/answer_text.h"

#include <gtest/gtest.h>

#include "ballast/engine/question_form.h"
#include "text/test_vocabulary.h"

namespace ballast::test {
namespace {

/// Bytes, and tokens that are not shown.
Tokenizer with_marks(std::vector<std::string> marks) {
  Vocabulary v = byte_vocabulary({});
  for (std::string& mark : marks) {
    v.pieces.push_back(std::move(mark));
    v.types.push_back(TokenType::control);
  }
  if (!v.scores.empty()) v.scores.resize(v.pieces.size());
  return Tokenizer(std::move(v));
}

AnswerText::Parts read(const Tokenizer& tokenizer, const std::string& text, AnswerOptions options) {
  AnswerText answer(tokenizer, std::move(options));
  AnswerText::Parts out;
  const auto add = [&](AnswerText::Parts parts) {
    out.thoughts += parts.thoughts;
    out.text += parts.text;
    out.calls.insert(out.calls.end(), parts.calls.begin(), parts.calls.end());
  };
  for (const Token token : encode_more(tokenizer, text, true)) add(answer.push(token));
  add(answer.finish());
  return out;
}

TEST(AnswerText, MarksThatAreNotShownAreKnown) {
  const Tokenizer tokenizer =
      with_marks({"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<think>", "</think>", "[OTHER]"});
  const AnswerOptions options{.chat = true, .functions = {{"look"}, {"time"}}};
  const std::string call = "[TOOL_CALLS]look[CALL_ID]a1B2c3D4e[ARGS]{\"city\": \"Ulm\"}";
  const AnswerText::Parts one = read(tokenizer, call, options);
  ASSERT_EQ(one.calls.size(), 1u);
  EXPECT_EQ(one.calls[0].name, "look");
  EXPECT_EQ(one.calls[0].id, "a1B2c3D4e");
  EXPECT_EQ(one.calls[0].arguments, R"({"city":"Ulm"})");
  const AnswerText::Parts two =
      read(tokenizer, "<think>Two.</think>I look. " + call + "[TOOL_CALLS]time[ARGS]{}", options);
  EXPECT_EQ(two.thoughts, "Two.");
  EXPECT_EQ(two.text, "I look.");
  EXPECT_EQ(two.calls.size(), 2u);
  const AnswerText::Parts list = read(
      tokenizer, R"([TOOL_CALLS][{"name": "time", "arguments": {}, "id": "123456789"}])", options);
  ASSERT_EQ(list.calls.size(), 1u);
  EXPECT_EQ(list.calls[0].id, "123456789");
  EXPECT_EQ(read(tokenizer, "a[OTHER]b", options).text, "ab");
  EXPECT_EQ(read(tokenizer, "a[TOOL_CALLS]b", {.chat = true}).text, "ab");  // no functions
}

TEST(AnswerText, StopStringsAreLookedForInTheAnswer) {
  const Tokenizer tokenizer = with_marks({});
  const std::string text = "<think>\na STOP b\n</think>\n\nc STOP d";
  AnswerText::Parts got = read(tokenizer, text, {.chat = true, .stop = {"STOP", "\n\n"}});
  EXPECT_EQ(got.thoughts, "a STOP b");
  EXPECT_EQ(got.text, "c ");
  got = read(tokenizer, text, {.chat = true, .split_thoughts = false, .stop = {"STOP", "\n\n"}});
  EXPECT_EQ(got.text, "<think>\na STOP b\n</think>\n\nc ");
  got = read(tokenizer, "a STOP b</think>c STOP d",
             {.chat = true, .thoughts_open = true, .stop = {"STOP"}});
  EXPECT_EQ(got.thoughts, "a STOP b");
  EXPECT_EQ(got.text, "c ");
  got = read(tokenizer, text, {.chat = false, .stop = {"STOP"}});  // no chat: all is answer
  EXPECT_EQ(got.text, "<think>\na ");
  got = read(tokenizer, "<think>only STOP", {.chat = true, .stop = {"STOP"}});
  EXPECT_EQ(got.thoughts, "only STOP");
}

}  // namespace
}  // namespace ballast::test
