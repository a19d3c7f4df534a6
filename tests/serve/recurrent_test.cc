// Conversations with a model some of whose layers are recurrent.
#include "model/reference_case.h"
#include "serve/client.h"

namespace ballast::test {
namespace {

/// A letter for each token of the tiny models.
Tokenizer letters(std::size_t count) {
  Vocabulary v;
  v.source = "test";
  v.pre = "default";
  for (std::size_t i = 0; i < count; ++i) v.pieces.emplace_back(1, static_cast<char>('A' + i));
  return Tokenizer(std::move(v));
}

class ServeRecurrent : public testing::TestWithParam<const char*> {};

TEST_P(ServeRecurrent, AConversationGoesOnWhereItsPromptOrAnswerEnded) {
  const ReferenceCase tiny(GetParam());
  BALLAST_NEED_REFERENCE(tiny);
  const Model model(tiny.hf());
  const auto start = [&] {
    return std::make_unique<TestServer>(model, serve::ServerOptions(), letters(tiny.vocabulary));
  };
  const auto ask = [&](const TestServer& server, const std::vector<Token>& prompt) {
    const Reply reply = server.post("/v1/completions", {{"prompt", prompt},
                                                        {"max_tokens", 8},
                                                        {"temperature", 0},
                                                        {"ignore_eos", true},
                                                        {"logprobs", 2},
                                                        {"cache", {{"method", "exact"}}}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  };
  const auto cached = [](const Json& reply) { return reply["usage"]["cached_tokens"]; };

  const auto server = start();
  const Json first = ask(*server, tiny.tokens);
  EXPECT_EQ(cached(first), 0);
  std::vector<Token> other = tiny.tokens, next = tiny.tokens;
  other.insert(other.end(), {5, 4, 3});
  for (char letter : first["choices"][0]["text"].get<std::string>()) next.push_back(letter - 'A');
  const std::size_t answered = next.size();
  next.insert(next.end(), {7, 8, 9});
  std::vector<Token> half(tiny.tokens.begin(), tiny.tokens.begin() + 20);
  half.insert(half.end(), {1, 2});
  // The last token of an answer was not read.
  const std::pair<std::vector<Token>, std::size_t> asked[] = {
      {other, tiny.tokens.size()}, {next, answered - 1}, {half, 0}};
  for (const auto& [prompt, known] : asked) {
    const Json hit = ask(*server, prompt), miss = ask(*start(), prompt);
    EXPECT_EQ(cached(hit), known);
    EXPECT_EQ(hit["choices"], miss["choices"]) << known;
  }
}

INSTANTIATE_TEST_SUITE_P(, ServeRecurrent, testing::Values("lfm2", "qwen35"));

}  // namespace
}  // namespace ballast::test
