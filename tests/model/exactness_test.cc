// For every architecture: how tokens are fed does not matter, one by one, in chunks of any size, in
// batches, on any number of threads. A budget that covers everything is exact, with every method.
#include <algorithm>
#include <optional>

#include "ballast/engine/model.h"
#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "model/reference_case.h"

namespace ballast {
namespace {

using test::all_logits;
using test::largest_difference;
using test::ReferenceCase;

class Threads {
 public:
  explicit Threads(int count) : before_(threads()) { set_threads(count); }
  ~Threads() { set_threads(before_); }

 private:
  int before_;
};

class Exactness : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    reference_.emplace(GetParam());
    BALLAST_NEED_REFERENCE(*reference_);
    model_.emplace(reference_->hf());
    engine_.emplace(*model_);
    options_.expected_tokens = tokens().size();
  }
  std::span<const Token> tokens() const { return reference_->tokens; }
  std::size_t vocabulary() const { return engine_->vocabulary(); }

  std::vector<float> logits(std::size_t chunk, int threads) {
    const Threads set(threads);
    Sequence sequence(*model_, options_);
    return all_logits(*engine_, sequence, tokens(), chunk);
  }
  /// Token t's, of all.
  std::vector<float> row(const std::vector<float>& all, std::size_t t) const {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(t * vocabulary());
    return {begin, begin + static_cast<std::ptrdiff_t>(vocabulary())};
  }

  std::optional<ReferenceCase> reference_;
  std::optional<Model> model_;
  std::optional<Engine> engine_;
  CacheOptions options_;
};

TEST_P(Exactness, AnyChunkingAndThreadsGiveTheSameBits) {
  const std::vector<float> whole = logits(100, 1);
  for (std::size_t chunk : {1, 2, 7, 13, 33, 100}) {
    EXPECT_EQ(logits(chunk, 1 + static_cast<int>(chunk) % 3), whole) << chunk;
  }
}

TEST_P(Exactness, ASecondReadingGivesTheSameBitsForAnyChunkingAndThreads) {
  options_.policy = Policy::parse("replay:bytes=1/3,chunk=16,sink=1,window=1");
  std::vector<float> first;
  const std::size_t text = tokens().size() - 6;
  for (std::size_t chunk : {100, 7, 16}) {
    const Threads set(1 + static_cast<int>(chunk) % 3);
    Sequence sequence(*model_, options_);
    const ReplayOptions again{{{tokens()[2]}, {tokens()[3]}, {tokens()[4]}}, {}};
    engine_->prefill(sequence, tokens().first(text), {.chunk = chunk, .replay = again});
    const CacheShape& s = sequence.cache().shape();
    EXPECT_LE(sequence.cache().bytes().used(),
              text * s.layers * s.kv_heads * (s.key_dim + s.value_dim) * 2 / 3);
    EXPECT_TRUE(std::ranges::equal(sequence.text(), tokens().first(text)));
    const std::vector<float> got = all_logits(*engine_, sequence, tokens().subspan(text), chunk);
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << chunk;
  }
}

TEST_P(Exactness, AQuestionThatIsKnownIsReadForItsScoresOnly) {
  const auto kept = [&](const char* question, std::vector<std::vector<Token>> questions) {
    options_.policy =
        Policy::parse("replay:bytes=1/5,chunk=16,sink=1,window=1").with("question", question);
    Sequence sequence(*model_, options_);
    ReplayOptions again{{{tokens()[2]}, {tokens()[3]}, {tokens()[4]}}, {}};
    again.questions = std::move(questions);
    const std::size_t text = tokens().size() - 6;
    engine_->prefill(sequence, tokens().first(text), {.replay = again});
    EXPECT_EQ(sequence.tokens(), text);
    std::vector<std::size_t> out;  // of every head: where its entries stand, how many are in a tier
    for (std::size_t h = 0; h < sequence.cache().shape().kv_heads; ++h) {
      for (const KeptEntry& entry : sequence.cache().kept(0, h)) {
        out.push_back(static_cast<std::size_t>(entry.position));
      }
      for (const Segment& segment : sequence.cache().segments(0, h)) {
        out.push_back(segment.keys.rows);
      }
    }
    return out;
  };
  const std::vector<Token> question(tokens().begin() + 3, tokens().begin() + 12);
  EXPECT_NE(kept("known", {question}), kept("known", {}));
  EXPECT_EQ(kept("known", {}), kept("later", {question}));
}

TEST_P(Exactness, AStreamReadAgainChunkByChunkGivesTheSameBits) {
  options_.policy = Policy::parse("replay:bytes=1/3,chunk=16,sink=1,window=1");
  options_.protocol = Protocol::stream;
  options_.expected_tokens = tokens().size();
  const std::size_t text = tokens().size() - 6;
  const ReplayWording words{{tokens()[2]}, {tokens()[3]}, {tokens()[4]}};
  engine_->set_replay_wording(words);
  std::vector<float> first;
  std::vector<std::byte> kept;
  for (std::size_t chunk : {100, 7, 16}) {
    const Threads set(1 + static_cast<int>(chunk) % 3);
    Sequence sequence(*model_, options_);
    engine_->prefill(sequence, tokens().first(text / 2), {.chunk = chunk, .finish_prompt = false});
    engine_->prefill(sequence, tokens().subspan(text / 2, text - text / 2), {.chunk = chunk});
    EXPECT_EQ(scoring_of(sequence.cache()).chunk_tokens(), 0u);
    const CacheShape& s = sequence.cache().shape();
    EXPECT_LE(sequence.cache().bytes().used(),
              tokens().size() * s.layers * s.kv_heads * (s.key_dim + s.value_dim) * 2 / 3);
    if (kept.empty()) kept = sequence.cache().to_bytes();
    EXPECT_EQ(sequence.cache().to_bytes(), kept) << chunk;
    // A saved sequence goes on, in the middle of a chunk too.
    all_logits(*engine_, sequence, tokens().subspan(text, 3), chunk);
    Sequence loaded(*model_, Cache::parse(sequence.cache().to_bytes(), "saved"),
                    {sequence.text().begin(), sequence.text().end()});
    std::vector<float> next(vocabulary()), other(vocabulary());
    for (std::size_t i = 0; i < 20; ++i) {
      engine_->decode(sequence, tokens()[i], next);
      engine_->decode(loaded, tokens()[i], other);
      EXPECT_EQ(next, other) << i;
    }
    EXPECT_LT(scoring_of(sequence.cache()).chunk_tokens(), 16u);
    if (first.empty()) first = next;
    EXPECT_EQ(next, first) << chunk;
  }
}

TEST_P(Exactness, DecodingAloneOrInABatchGivesTheSameBits) {
  const std::vector<float> whole = logits(100, 1);
  const Threads set(2);
  // Each sequence has read another part of the text when they go on together; the longest leaves
  // first.
  constexpr std::size_t kRead[] = {1, 8, 20};
  std::vector<Sequence> sequences;
  for (std::size_t read : kRead) {
    Sequence& sequence = sequences.emplace_back(*model_, options_);
    EXPECT_EQ(engine_->prefill(sequence, tokens().first(read)), row(whole, read - 1));
  }
  while (!sequences.empty()) {
    std::vector<Sequence*> active;
    std::vector<Token> next;
    for (Sequence& sequence : sequences) {
      active.push_back(&sequence);
      next.push_back(tokens()[sequence.tokens()]);
    }
    Matrix logits(active.size(), vocabulary());
    engine_->decode(active, next, logits.view());
    for (std::size_t i = 0; i < active.size(); ++i) {
      const std::vector<float> got(logits[i].begin(), logits[i].end());
      ASSERT_EQ(got, row(whole, active[i]->tokens() - 1)) << i << " at " << active[i]->tokens();
    }
    if (sequences.back().tokens() == tokens().size()) sequences.pop_back();
  }
}

TEST_P(Exactness, ABudgetThatCoversTheTextIsExact) {
  const std::vector<float> whole = logits(100, 1);
  for (const MethodInfo* info : methods()) {
    if (info->global_budget) continue;  // tests/cache/replay_test.cc
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      CacheOptions options = options_;
      options.policy = Policy::parse(info->name);
      if (info->window_policy != WindowPolicy::all)
        options.policy = options.policy.with("budget", "600");
      options.protocol = protocol;
      Sequence sequence(*model_, options);
      // The numbers that are watched are added up in another order.
      const double most =
          options.policy.needs().attention_sums || options.policy.needs().recent_queries ? 1e-4 : 0;
      std::vector<float> got = engine_->prefill(sequence, tokens().first(30), {.chunk = 7});
      for (std::size_t t = 30; t < tokens().size(); ++t) {
        EXPECT_LE(largest_difference(got, row(whole, t - 1)), most)
            << info->name << " " << to_string(protocol) << " " << t;
        engine_->decode(sequence, tokens()[t], got);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Exactness,
                         testing::Values("llama", "llama-wide", "llama31", "mistral",
                                         "mistral-sliding", "ministral", "qwen2", "qwen2-yarn",
                                         "qwen3", "gemma2", "phi3", "phi3-long", "opt", "neox",
                                         "neox-sequential", "mpt", "mpt-clip", "gemma3", "smollm3",
                                         "granite", "olmo3", "cohere2", "hunyuan", "mistral3",
                                         "gpt2", "qwen3-moe", "gpt-oss", "lfm2", "lfm2-bias",
                                         "lfm2-moe", "qwen35", "qwen2-moe", "qwen35-moe",
                                         "qwen3-next", "glm45", "granite-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ballast
