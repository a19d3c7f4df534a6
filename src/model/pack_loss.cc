#include "model/pack_loss.h"

#include <algorithm>
#include <cmath>

#include "ballast/engine/sampler.h"
#include "model/calibration_data.h"

namespace ballast {
namespace {

constexpr std::size_t kFollowing = 200, kLeast = 256;

double kl(std::span<const float> exact, std::span<const float> other) {
  const double a = log_sum_exp(exact), b = log_sum_exp(other);
  double sum = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double p = exact[i] - a;
    sum += std::exp(p) * (p - (other[i] - b));
  }
  return sum;
}

/// The logits of each of some tokens behind a sequence.
Matrix logits_behind(Engine& engine, Sequence sequence, std::span<const Token> tokens) {
  Matrix out(tokens.size(), engine.vocabulary());
  PrefillOptions options;
  options.finish_prompt = false;
  options.all_logits = [&](std::size_t first, ConstMatrix logits) {
    for (std::size_t i = 0; i < logits.rows; ++i) {
      std::ranges::copy(logits[i], out[first + i].begin());
    }
  };
  engine.prefill(sequence, tokens, options);
  return out;
}

}  // namespace

bool measure_presets(const Model& model, const Tokenizer& tokenizer, PackBasis& basis,
                     const std::function<bool(double)>& progress) {
  CacheOptions options;
  options.policy = Policy::parse("exact");
  options.key_type = options.value_type = StorageType::bf16;
  const PackCodec codec(std::make_shared<const PackBasis>(basis));
  Engine engine(model);
  std::vector<double> sums(basis.presets.size());
  std::size_t texts = 0, tried = 0;
  const auto all = static_cast<double>(held_out_texts().size());
  for (const BuiltInFile& file : held_out_texts()) {
    if (!progress(static_cast<double>(tried++) / all)) return false;
    const std::vector<Token> tokens = as_chat(tokenizer, tokenizer.encode(file.text()));
    const std::size_t following = std::min(kFollowing, tokens.size() / 4);
    if (tokens.size() < kLeast || tokens.size() > model.config().max_positions) continue;
    options.expected_tokens = tokens.size();
    const auto text = std::span(tokens).first(tokens.size() - following);
    const auto rest = std::span(tokens).last(following);
    Sequence exact(model, options);
    PrefillOptions whole;
    whole.finish_prompt = false;
    engine.prefill(exact, text, whole);
    const Matrix wanted = logits_behind(engine, exact.clone(), rest);
    ++texts;
    for (std::size_t p = 0; p < basis.presets.size(); ++p) {
      const auto packed = pack(exact.cache(), codec, basis.presets[p]);
      Sequence back(model, unpack(packed, "a packed text", codec),
                    {exact.text().begin(), exact.text().end()});
      const Matrix found = logits_behind(engine, std::move(back), rest);
      for (std::size_t t = 0; t < following; ++t) {
        sums[p] += kl(wanted[t], found[t]) / static_cast<double>(following);
      }
    }
  }
  for (std::size_t p = 0; texts > 0 && p < sums.size(); ++p) {
    basis.presets[p].loss = static_cast<float>(std::max(0.0, sums[p] / static_cast<double>(texts)));
  }
  return true;
}

}  // namespace ballast
