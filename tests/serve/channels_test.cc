// Answers of a model that writes in channels (gpt-oss), as its tokens come.
#include "text/answer/channels.h"

#include "ballast/engine/question_form.h"
#include "serve/answers.h"
#include "serve/client.h"
#include "serve/scheduling/choice.h"
#include "text/test_vocabulary.h"

namespace ballast::test {
namespace {

/// Bytes, and the marks of harmony.
Tokenizer harmony() {
  Vocabulary v = byte_vocabulary({});
  for (const char* mark : {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>",
                           "<|call|>", "<|return|>"}) {
    v.pieces.push_back(mark);
    v.types.push_back(TokenType::control);
  }
  v.scores.resize(v.scores.empty() ? 0 : v.pieces.size());
  return Tokenizer(std::move(v));
}

class Channels : public testing::Test {
 protected:
  /// What clients get where the model would write `text`; of each step what was chosen.
  Json answer(const std::string& text, serve::Job job = {}) {
    job.chat = true;
    job.functions = {{"f"}};
    job.prompt = {65};
    job.generate.max_tokens = 1000;
    job.generate.sampling.temperature = 0;
    Sequence sequence(TestServer::mini(), {});
    serve::Choice choice(tokenizer_, job, 0, 4096, sequence, nullptr);
    serve::TextRequest request;
    request.chat = true;
    serve::AnswerWriter writer(request, "model", tokenizer_);
    const std::vector<Token> wanted = encode_more(tokenizer_, text, true);
    for (std::size_t i = 0; !choice.ended() || i == 0; ++i) {
      if (i == wanted.size()) throw std::runtime_error("the answer does not end");
      std::vector<float> logits(tokenizer_.size(), 0.0f);
      logits[static_cast<std::size_t>(wanted[i])] = 50;
      writer.add(choice.advance(logits, nullptr));
    }
    made_ = choice.tokens();
    return writer.whole()["choices"][0];
  }

  Tokenizer tokenizer_ = harmony();
  std::vector<Token> made_;
};

TEST_F(Channels, AnalysisBecomesThoughtsAndFinalTheAnswer) {
  const Json got = answer(
      "<|channel|>analysis<|message|>Two and two.<|end|><|start|>assistant<|channel|>final"
      "<|message|>It is 4.<|return|>");
  EXPECT_EQ(got["message"]["reasoning_content"], "Two and two.");
  EXPECT_EQ(got["message"]["content"], "It is 4.");
  EXPECT_EQ(got["finish_reason"], "stop");
}

TEST_F(Channels, AMessageToAFunctionIsACall) {
  const Json got = answer(
      "<|channel|>analysis<|message|>Ask f.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f <|constrain|>json<|message|>{\"x\": \"</tool_call>\"}<|call|>");
  EXPECT_EQ(got["message"]["reasoning_content"], "Ask f.");
  EXPECT_EQ(got["finish_reason"], "tool_calls");
  const Json call = got["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "f");
  EXPECT_EQ(call["arguments"], "{\"x\": \"</tool_call>\"}");
}

TEST_F(Channels, AStopStringEndsTheAnswerAndNotItsThoughts) {
  serve::Job job;
  job.generate.stop = {"two"};
  const Json got = answer(
      "<|channel|>analysis<|message|>One and two.<|end|><|start|>assistant<|channel|>final"
      "<|message|>It is two",
      job);
  EXPECT_EQ(got["message"]["reasoning_content"], "One and two.");
  EXPECT_EQ(got["message"]["content"], "It is ");
  EXPECT_EQ(got["stop_reason"], "two");
}

TEST_F(Channels, ThoughtsEndAtTheirBudget) {
  serve::Job job;
  job.thinking_budget = 11;
  const std::string close(kToFinalChannel);
  // Steps in which the budget's words are written choose nothing.
  const std::string thought = "<|channel|>analysis<|message|>";
  const std::size_t begun = encode_more(tokenizer_, thought, true).size();
  ASSERT_GT(begun, 1u);
  const Json got = answer(
      thought + std::string(encode_more(tokenizer_, close, true).size() + 1, 'a') + "yes<|return|>",
      job);
  EXPECT_EQ(got["message"]["reasoning_content"], "a");
  EXPECT_EQ(got["message"]["content"], "yes");
}

TEST_F(Channels, OnlyTheWholeAnswerEnds) {
  EXPECT_FALSE(tokenizer_.is_end(tokenizer_.find("<|end|>")));
  EXPECT_TRUE(tokenizer_.is_end(tokenizer_.find("<|return|>")));
  EXPECT_TRUE(tokenizer_.is_end(tokenizer_.find("<|call|>")));
}

}  // namespace
}  // namespace ballast::test
