#include "ballast/engine/gauge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ballast/engine/sampler.h"
#include "ballast/joined.h"
#include "ballast/memory_size.h"
#include "base/fail.h"
#include "base/stopwatch.h"

namespace ballast {
namespace {

/// Tokens of a passage. The model reads the first kLead to know the place; the rest are compared.
constexpr std::size_t kLead = 8, kPassage = 32;
constexpr std::size_t kLeast = 128;  ///< tokens of a text
/// Passages have a 64th of a text's tokens: each is read twice, with logits.
constexpr std::size_t kShare = 64, kFewest = 2, kMost = 16;
constexpr std::size_t kLikeliest = 64;
/// Nats a token.
constexpr double kLittle = 0.01, kMuch = 0.1;

/// Reads tokens behind what a cache holds, which stays as it is.
void read_beside(Engine& engine, const Cache& cache, std::span<const Token> tokens,
                 const std::function<void(std::size_t, ConstMatrix)>& all_logits) {
  // The caller's, for as long as this takes.
  std::shared_ptr<const Cache> lent(std::shared_ptr<const void>(), &cache);
  Sequence beside(engine.model(), join_documents({{std::move(lent)}}));
  engine.prefill(beside, tokens, {.finish_prompt = false, .all_logits = all_logits});
}

}  // namespace

std::string_view word_of(const GaugeReading& reading) {
  return reading.kl < kLittle ? "answers as from the whole cache"
         : reading.kl < kMuch ? "a little is lost"
                              : "much is lost";
}

std::string to_text(const GaugeReading& reading, const Policy& policy) {
  std::string out = fmt::format("{}: KL {:.2g}", word_of(reading), reading.kl);
  if (reading.kl < kMuch || !policy.has("bytes")) return out;
  const MemorySize size = policy.memory("bytes");
  if (size.unit != MemorySize::Unit::share) return out;
  for (const int divisor : {8, 4, 2}) {
    if (size.amount * divisor < 0.99) return out + fmt::format("; try 1/{}", divisor);
  }
  return out;
}

std::string Gauge::why_not(const Model& model, const CacheOptions& options) {
  if (options.policy.info().window_policy == WindowPolicy::all) return "the cache is exact";
  if (options.protocol != Protocol::prefill) return "a stream never has the exact cache";
  if (options.positions != Positions::absolute) return "positions are rolling";
  if (model.layer_share() != nullptr) return "layers are divided among processes";
  if (!model.cache_shape().recurrent.empty()) return "the model has recurrent layers";
  return "";
}

Gauge::Gauge(ReplayWording wording) : wording_(std::move(wording)) {}

void Gauge::read_exact(Engine& engine, const Sequence& exact) {
  tokens_.clear();
  counts_.clear();
  expected_.clear();
  const std::span<const Token> text = exact.text();
  if (text.size() < kLeast || text.size() != exact.tokens()) return;
  tokens_ = wording_.first;
  tokens_.insert(tokens_.end(), wording_.after.begin(), wording_.after.end());
  counts_.assign(tokens_.size(), false);
  const std::size_t count = std::clamp(text.size() / kShare / kPassage, kFewest, kMost);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = (2 * i + 1) * (text.size() - kPassage) / (2 * count);
    const std::span<const Token> passage = text.subspan(begin, kPassage);
    if (std::ranges::any_of(passage, [](Token token) { return token < 0; })) continue;  // a picture
    tokens_.insert(tokens_.end(), passage.begin(), passage.end());
    // What follows the last one is another passage.
    for (std::size_t t = 0; t < kPassage; ++t) counts_.push_back(t >= kLead && t + 1 < kPassage);
  }
  const std::size_t positions = engine.model().config().max_positions;
  if (exact.positions_after(tokens_.size()) > positions) return;
  const Stopwatch watch;
  std::vector<Token> all(engine.vocabulary());
  read_beside(engine, exact.cache(), tokens_, [&](std::size_t first, ConstMatrix logits) {
    for (std::size_t i = 0; i < logits.rows; ++i) {
      if (!counts_[first + i]) continue;
      const std::span<const float> row = logits[i];
      std::iota(all.begin(), all.end(), Token{0});
      const std::size_t most = std::min(kLikeliest, all.size());
      const auto end = all.begin() + static_cast<std::ptrdiff_t>(most);
      std::ranges::nth_element(all, end - 1, std::greater(),
                               [&](Token t) { return row[static_cast<std::size_t>(t)]; });
      Expected& one = expected_.emplace_back();
      one.likeliest.assign(all.begin(), end);
      one.rest = 1;
      const double sum = log_sum_exp(row);
      for (const Token t : one.likeliest) {
        one.logs.push_back(double{row[static_cast<std::size_t>(t)]} - sum);
        one.rest -= std::exp(one.logs.back());
      }
    }
  });
  seconds_ = watch.seconds();
}

std::optional<GaugeReading> Gauge::read(Engine& engine, const Sequence& compressed) {
  if (expected_.empty()) return std::nullopt;
  constexpr double kNone = 1e-9;
  const Stopwatch watch;
  GaugeReading out;
  read_beside(engine, compressed.cache(), tokens_, [&](std::size_t first, ConstMatrix logits) {
    for (std::size_t i = 0; i < logits.rows; ++i) {
      if (!counts_[first + i]) continue;
      const Expected& one = expected_[out.tokens++];
      const std::span<const float> row = logits[i];
      const double sum = log_sum_exp(row);
      double kl = 0, rest = 1;
      for (std::size_t k = 0; k < one.likeliest.size(); ++k) {
        const double log = double{row[static_cast<std::size_t>(one.likeliest[k])]} - sum;
        kl += std::exp(one.logs[k]) * (one.logs[k] - log);
        rest -= std::exp(log);
      }
      if (one.rest > kNone) kl += one.rest * std::log(one.rest / std::max(rest, kNone));
      out.kl += std::max(kl, 0.0);
    }
  });
  out.kl /= static_cast<double>(out.tokens);
  out.seconds = seconds_ + watch.seconds();
  return out;
}

}  // namespace ballast
