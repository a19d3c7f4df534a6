#include "ballast/engine/lookup.h"

#include <algorithm>

#include "ballast/random.h"
#include "base/thread_pool.h"
#include "cache/attention_by_token.h"

namespace ballast {
namespace {

/// Tokens that are read twice, of models that have positions for them.
constexpr std::size_t kMostRead = 64;
/// Heads count from this part of the best one's share on.
constexpr float kLeast = 0.5f;

}  // namespace

std::vector<LookupHead> find_lookup_heads(Engine& engine) {
  const ModelConfig& c = engine.model().config();
  const std::size_t read = std::clamp<std::size_t>(c.max_positions / 2, 2, kMostRead);
  CacheOptions options;
  options.policy = Policy::parse("exact");
  options.expected_tokens = 2 * read;
  Sequence sequence(engine.model(), options);
  std::vector<Token> text;
  for (std::uint64_t i = 0; i < read; ++i) {
    text.push_back(static_cast<Token>(random_bits({}, i)[0] % c.vocabulary));
  }
  text.insert(text.end(), text.begin(), text.end());
  std::vector<LookupHead> all(sequence.cache().shape().layers * c.heads);
  PrefillOptions prefill;
  prefill.chunk = text.size();
  prefill.on_attention = [&](const AttentionStep& step) {
    parallel_for(c.heads, [&](std::size_t h) {
      double share = 0;
      for (std::size_t t = read; t + 1 < text.size(); ++t) {
        // What followed this token before.
        std::vector<float> sums(t - read + 2);
        add_attention_by_token(sequence.cache(), step.layer, h,
                               step.queries[t].subspan(h * c.key_dim, c.key_dim),
                               static_cast<Position>(t), sums);
        share += double{sums.back()};
      }
      all[step.layer * c.heads + h] = {step.layer, h,
                                       static_cast<float>(share / static_cast<double>(read - 1))};
    });
  };
  engine.prefill(sequence, text, prefill);
  const float best = std::ranges::max(all, {}, &LookupHead::share).share;
  std::erase_if(all, [&](const LookupHead& head) { return head.share < kLeast * best; });
  return all;
}

Lookup::Lookup(std::vector<LookupHead> heads, std::size_t tokens)
    : heads_(std::move(heads)), sums_(tokens) {}

void Lookup::add(const Cache& cache, const AttentionStep& step, std::size_t row) {
  const std::size_t dim = cache.shape().key_dim;
  const auto position = static_cast<Position>(cache.tokens(step.layer) - 1);
  for (const LookupHead& head : heads_) {
    if (head.layer != step.layer) continue;
    add_attention_by_token(cache, step.layer, head.head,
                           step.queries[row].subspan(head.head * dim, dim), position, sums_);
    weight_ += 1;
  }
}

std::vector<float> Lookup::attention() const {
  std::vector<float> out = sums_;
  for (float& x : out) x = weight_ > 0 ? static_cast<float>(double{x} / weight_) : 0;
  return out;
}

}  // namespace ballast
