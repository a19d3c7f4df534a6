#include "experiments/data/synth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <string>

#include "ballast/attention.h"
#include "ballast/engine/safetensors.h"
#include "ballast/random.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/head_elements.h"

namespace ballast {
namespace {

constexpr std::size_t kMostClusters = 65536;

// The parts of a key's squared length.
constexpr double kKeyCluster = 0.60, kKeyPlace = 0.12, kKeyNoise = 0.28;
// The fraction of a value's squared length that its cluster contributes; the rest is noise.
constexpr double kValueCluster = 0.65;
// The probability that a token reuses the cluster of one of the last kMemory tokens.
constexpr double kPersistence = 0.93;
constexpr std::size_t kMemory = 8;
// Length of that part of a query which meets keys other than the sink's, at dimension 128; logits
// of smaller heads would spread too far if it did not shrink with the dimension.
constexpr double kSearching = 13;

/// The purposes of random numbers, one stream each.
enum Purpose : std::uint32_t {
  kTheme,
  kCentres,
  kValueCentres,
  kDirections,
  kKey,
  kValue,
  kQuery,
  kEarlier,
  kCharacter
};

/// Standard normal numbers, times `scale`, added to `out`.
void add_normal(const RandomKey& key, std::uint64_t position, Purpose purpose, double scale,
                std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const auto bits = random_bits(key, position, purpose, static_cast<std::uint32_t>(i / 4));
    for (std::size_t pair = 0; pair < 2; ++pair) {
      // The Box-Muller transform. Adding a half keeps the logarithm's argument above zero.
      const double u = (bits[2 * pair] + 0.5) * 0x1p-32;
      const double angle = 2 * std::numbers::pi * (bits[2 * pair + 1] * 0x1p-32);
      const double radius = scale * std::sqrt(-2 * std::log(u));
      const std::size_t at = i + 2 * pair;
      if (at < out.size()) out[at] += static_cast<float>(radius * std::cos(angle));
      if (at + 1 < out.size()) out[at + 1] += static_cast<float>(radius * std::sin(angle));
    }
  }
}

/// The same with the variance of number i falling as 1/(i + 1), `scale`² in all: keys and values of
/// models lie near few directions (of 128, some 80 hold 90% of the variance of keys; Singhania et
/// al. 2024, Loki), which is what this gives.
void add_noise(const RandomKey& key, std::uint64_t position, Purpose purpose, double scale,
               std::span<float> out) {
  std::vector<float> noise(out.size());
  add_normal(key, position, purpose, 1, noise);
  double total = 0;
  for (std::size_t i = 0; i < out.size(); ++i) total += 1.0 / static_cast<double>(i + 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] += noise[i] *
              static_cast<float>(scale * std::sqrt(1.0 / (total * static_cast<double>(i + 1))));
  }
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

void add(std::span<float> out, double factor, std::span<const float> in) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += static_cast<float>(factor * in[i]);
}

void scale_to(std::span<float> row, double norm) {
  const double now = std::sqrt(dot(row, row));
  for (float& x : row) x = now > 0 ? static_cast<float>(x * (norm / now)) : 0.0f;
}

/// Adds a code of length `scale` whose inner product with another's falls with their distance:
/// waves of 8 to 1024 tokens.
void add_place(std::size_t t, double scale, std::span<float> out) {
  const std::size_t pairs = out.size() / 2;
  if (pairs == 0) return;
  const double each = scale / std::sqrt(static_cast<double>(pairs));
  for (std::size_t p = 0; p < pairs; ++p) {
    const double wave =
        8 * std::exp2(7.0 * (static_cast<double>(p) + 0.5) / static_cast<double>(pairs));
    const double angle = 2 * std::numbers::pi * std::fmod(static_cast<double>(t) / wave, 1.0);
    out[2 * p] += static_cast<float>(each * std::cos(angle));
    out[2 * p + 1] += static_cast<float>(each * std::sin(angle));
  }
}

RandomKey key_of(const SynthOptions& options, std::size_t layer, std::size_t head) {
  return {options.seed, static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(head)};
}

/// The random key of everything that the heads of a layer share.
constexpr std::size_t kNoHead = 0xffffffff;
/// Query heads have random keys of their own.
constexpr std::size_t kQueryHeads = 0x80000000;

}  // namespace

/// The parameters of one KV head.
struct Synth::Head {
  RandomKey random;
  Matrix centres;        ///< unit length, mean zero over tokens
  Matrix value_centres;  ///< unit length
  Matrix directions;     ///< rows: that of the sink, of the needle, the mean key; unit length
  double spread = 0;     ///< length of the searching part of a query
  double common = 0;     ///< length of the part along the sink's direction
};

Synth::Synth(const SynthOptions& options) : options_(options) {
  const auto& o = options_;
  require(o.tokens >= 1 && o.tokens <= std::numeric_limits<Position>::max(),
          "synth: {} tokens; possible: 1 to {}", o.tokens, std::numeric_limits<Position>::max());
  require(o.dim >= 1 && o.dim <= kMaxHeadDim, "synth: a head dimension of {}; possible: 1 to {}",
          o.dim, kMaxHeadDim);
  require(o.layers >= 1 && o.layers <= 4096, "synth: {} layers; possible: 1 to 4096", o.layers);
  require(o.kv_heads >= 1 && o.heads >= 1 && o.heads <= 65536 && o.heads % o.kv_heads == 0,
          "synth: {} query heads for {} KV heads; the first must be a multiple of the second",
          o.heads, o.kv_heads);
  require(o.clusters >= 1 && o.clusters <= kMostClusters, "synth: {} clusters; possible: 1 to {}",
          o.clusters, kMostClusters);
  require(o.needle <= 1,
          "synth: the needle's place is {}, expected 0 to 1 (a fraction of the text)", o.needle);
  for (double norm : {o.query_norm, o.key_norm, o.value_norm}) {
    require(norm >= 0 && norm <= 1e6, "synth: a norm of {}; possible: 0 to 1e6", norm);
  }
  shape_ = {o.layers, o.heads, o.kv_heads, o.tokens, o.dim, o.dim};
  name_ = "synthetic stream";
  needle_ = o.needle < 0 ? o.tokens
                         : static_cast<std::size_t>(o.needle * static_cast<double>(o.tokens - 1));
  double sum = 0;
  for (std::size_t c = 0; c < o.clusters; ++c) {
    popularity_.push_back(sum += std::pow(static_cast<double>(c + 1), -0.7));
  }
  for (double& p : popularity_) p /= sum;
  cluster_of_.resize(o.layers);
  for (std::size_t l = 0; l < o.layers; ++l) make_clusters(l);
}

void Synth::make_clusters(std::size_t layer) {
  const RandomKey random = key_of(options_, layer, kNoHead);
  auto& of = cluster_of_[layer];
  of.resize(options_.tokens);
  for (std::size_t t = 0; t < of.size(); ++t) {
    const auto bits = random_bits(random, t, kTheme);
    if (t > 0 && bits[0] * 0x1p-32 < kPersistence) {
      of[t] = of[t - 1 - bits[1] % std::min(t, kMemory)];
    } else {
      const auto drawn = std::ranges::upper_bound(popularity_, to_unit(bits[2], bits[3]));
      of[t] = static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(
          drawn - popularity_.begin(), static_cast<std::ptrdiff_t>(popularity_.size()) - 1));
    }
  }
}

Synth::Head Synth::make_head(std::size_t layer, std::size_t kv_head) const {
  const auto& o = options_;
  Head head;
  head.random = key_of(o, layer, kv_head);
  head.directions = Matrix(3, o.dim);
  for (std::size_t i = 0; i < 3; ++i) {
    add_normal(head.random, i, kDirections, 1, head.directions[i]);
    if (i > 0) {
      add(head.directions[i], -dot(head.directions[i], head.directions[0]), head.directions[0]);
    }
    scale_to(head.directions[i], 1);
  }
  head.centres = Matrix(o.clusters, o.dim);
  head.value_centres = Matrix(o.clusters, o.dim);
  std::vector<float> mean(o.dim);
  for (std::size_t c = 0; c < o.clusters; ++c) {
    add_normal(head.random, c, kCentres, 1, head.centres[c]);
    scale_to(head.centres[c], 1);
    add(mean, popularity_[c] - (c > 0 ? popularity_[c - 1] : 0), head.centres[c]);
    add_normal(head.random, c, kValueCentres, 1, head.value_centres[c]);
    scale_to(head.value_centres[c], 1);
  }
  for (std::size_t c = 0; c < o.clusters; ++c) {
    if (o.clusters > 1) add(head.centres[c], -1, mean);
    scale_to(head.centres[c], 1);
  }
  const double most = std::sqrt(0.75) * o.query_norm;
  head.spread = std::min(most, kSearching * o.query_norm / 15 * static_cast<double>(o.dim) / 128);
  head.common = std::sqrt(std::max(0.0, o.query_norm * o.query_norm - head.spread * head.spread));
  return head;
}

void Synth::make_key(const Head& head, std::size_t layer, std::size_t t,
                     std::span<float> out) const {
  const auto& o = options_;
  std::ranges::fill(out, 0.0f);
  if (t == needle_) {
    add(out, o.key_norm, head.directions[1]);
  } else if (t < o.sink) {
    // As long as it takes for the sink's tokens together to weigh about what all others do; their
    // e^logit has a mean of about e^4.5, the clusters that a query looks for included.
    const double others = std::log(static_cast<double>(o.tokens)) + 4.5;
    const double logit = others - std::log(static_cast<double>(o.sink));
    const double length =
        head.common > 0 ? logit * std::sqrt(static_cast<double>(o.dim)) / head.common : 0;
    add(out, std::min(length, 4 * o.key_norm), head.directions[0]);
  } else {
    add(out, std::sqrt(kKeyCluster), head.centres[cluster_of_[layer][t]]);
    add_place(t, std::sqrt(kKeyPlace), out);
    add_noise(head.random, t, kKey, std::sqrt(kKeyNoise), out);
    add(out, -dot(out, head.directions[0]), head.directions[0]);
    const double jitter = random_unit(head.random, t, kKey, 0xffff) - 0.5;
    scale_to(out, o.key_norm * (1 + 0.3 * jitter));
  }
  add(out, 0.7 * o.key_norm, head.directions[2]);
}

void Synth::make_value(const Head& head, std::size_t layer, std::size_t t,
                       std::span<float> out) const {
  const auto& o = options_;
  std::ranges::fill(out, 0.0f);
  if (t != needle_) add(out, std::sqrt(kValueCluster), head.value_centres[cluster_of_[layer][t]]);
  add_noise(head.random, t, kValue, std::sqrt(1 - kValueCluster), out);
  const double jitter = random_unit(head.random, t, kValue, 0xffff) - 0.5;
  // Models keep the values of sink tokens small, so that attention to them has no effect.
  scale_to(out, o.value_norm * (t < o.sink ? 0.2 : 1 + 0.5 * jitter));
}

void Synth::make_query(const Head& head, std::size_t layer, std::size_t query_head, std::size_t t,
                       std::span<float> out) const {
  const auto& o = options_;
  std::ranges::fill(out, 0.0f);
  if (needle_ < o.tokens && t + 1 == o.tokens && query_head + 1 == o.heads) {
    add(out, 0.95 * o.query_norm, head.directions[1]);
    add(out, std::sqrt(1 - 0.95 * 0.95) * o.query_norm, head.directions[0]);
    return;
  }
  const RandomKey random = key_of(o, layer, kQueryHeads + query_head);
  const double theme = 0.1 + 0.5 * random_unit(random, 0, kCharacter);
  const double place = 0.1 + 0.25 * random_unit(random, 1, kCharacter);
  const auto& of = cluster_of_[layer];
  add(out, 1, head.centres[of[t]]);
  for (std::uint32_t i = 0; i < 2; ++i) {
    // Log-uniform: all scales of distance are equally likely.
    const double back = std::pow(static_cast<double>(t + 1), random_unit(random, t, kEarlier, i));
    const std::size_t earlier = t - std::min(t, static_cast<std::size_t>(back));
    add(out, 0.7, head.centres[of[earlier]]);
  }
  scale_to(out, std::sqrt(theme));
  add_place(t, std::sqrt(place), out);
  const double noise = std::max(0.05, 1 - theme - place);
  add_noise(random, t, kQuery, std::sqrt(noise), out);
  add(out, -dot(out, head.directions[0]), head.directions[0]);
  scale_to(out, head.spread);
  add(out, head.common, head.directions[0]);
  const double jitter = random_unit(random, t, kQuery, 0xffff) - 0.5;
  scale_to(out, o.query_norm * (1 + 0.2 * jitter));
}

void Synth::read(Part part, std::size_t layer, std::size_t head, std::size_t first,
                 MutableMatrix out) const {
  const std::size_t heads = part == Part::query ? shape_.heads : shape_.kv_heads;
  require(layer < shape_.layers && head < heads && first <= shape_.tokens &&
              out.rows <= shape_.tokens - first && out.cols == options_.dim,
          "{}: layer {}, head {}, tokens {} to {} are not in it", name_, layer, head, first,
          first + out.rows);
  const Head made = make_head(layer, part == Part::query ? head / shape_.group() : head);
  constexpr std::size_t kRun = 128;
  parallel_for((out.rows + kRun - 1) / kRun, [&](std::size_t run) {
    for (std::size_t i = run * kRun; i < std::min(out.rows, (run + 1) * kRun); ++i) {
      if (part == Part::query) make_query(made, layer, head, first + i, out[i]);
      if (part == Part::key) make_key(made, layer, first + i, out[i]);
      if (part == Part::value) make_value(made, layer, first + i, out[i]);
    }
  });
}

namespace {

std::map<std::string, std::string> describe(const Synth& synth) {
  const SynthOptions& o = synth.options();
  std::map<std::string, std::string> out = {
      {"generator", "ballast synth"},
      {"seed", std::to_string(o.seed)},
      {"clusters", std::to_string(o.clusters)},
      {"sink", std::to_string(o.sink)},
      {"query_norm", fmt::format("{}", o.query_norm)},
      {"key_norm", fmt::format("{}", o.key_norm)},
      {"value_norm", fmt::format("{}", o.value_norm)},
  };
  if (synth.needle() < o.tokens) out["needle_position"] = std::to_string(synth.needle());
  return out;
}

}  // namespace

void write_synth(const Synth& synth, const std::filesystem::path& path, TensorType type,
                 const Advance& advance) {
  write_source(synth, describe(synth), path, type, advance);
}

void write_source(const KvSource& source, const std::map<std::string, std::string>& metadata,
                  const std::filesystem::path& path, TensorType type, const Advance& advance) {
  using Part = KvSource::Part;
  const KvShape& s = source.shape();
  std::vector<SafetensorsWriter::Declaration> tensors;
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (Part part : {Part::query, Part::key, Part::value}) {
      const std::size_t heads = part == Part::query ? s.heads : s.kv_heads;
      tensors.push_back(
          {fmt::format("layer.{}.{}", l, to_string(part)), type, {heads, s.tokens, s.key_dim}});
    }
  }
  SafetensorsWriter writer(path, tensors, metadata);
  constexpr std::size_t kRows = 4096;
  const double total =
      static_cast<double>(s.layers) * static_cast<double>((s.heads + 2 * s.kv_heads) * s.tokens);
  double done = 0;
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (Part part : {Part::query, Part::key, Part::value}) {
      for (std::size_t h = 0; h < (part == Part::query ? s.heads : s.kv_heads); ++h) {
        for (std::size_t t = 0; t < s.tokens; t += kRows) {
          const std::size_t count = std::min(kRows, s.tokens - t);
          const Matrix rows = source.read(part, l, h, t, count);
          writer.write(std::span<const float>(rows.data(), rows.rows() * rows.cols()));
          if (advance) advance((done += static_cast<double>(count)) / total);
        }
      }
    }
  }
  writer.commit();
}

}  // namespace ballast
