#include "ballast/engine/model_config.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/fail.h"
#include "formats/check_config.h"

namespace ballast {
namespace {

constexpr std::size_t kMostInHead = 65536, kMostLayers = 4096;

}  // namespace

std::string_view to_string(Family family) {
  switch (family) {
    case Family::llama:
      return "Llama";
    case Family::mistral:
      return "Mistral";
    case Family::qwen2:
      return "Qwen 2";
    case Family::qwen3:
      return "Qwen 3";
    case Family::gemma2:
      return "Gemma 2";
    case Family::phi3:
      return "Phi 3";
    case Family::opt:
      return "OPT";
    case Family::gptneox:
      return "GPT-NeoX";
    case Family::mpt:
      return "MPT";
  }
  return "";
}

std::vector<float> Rope::frequencies(std::size_t context) const {
  bool is_long = !long_divisors.empty() && context > original_positions;
  const std::vector<float>& by = is_long ? long_divisors : divisors;
  std::vector<float> out(dimension / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dimension);
    double divisor = by.empty() ? 1.0 : static_cast<double>(by[i]);
    out[i] = static_cast<float>(std::pow(static_cast<double>(base), exponent) / divisor);
  }
  return out;
}

std::vector<float> alibi_slopes(std::size_t heads, float max_bias) {
  // The first power-of-two heads n have slopes 2^-(max_bias/n), 2^-(2·max_bias/n), …; further heads
  // have every other slope of 2n heads.
  std::size_t n = std::bit_floor(heads);
  std::vector<float> slopes(heads);
  for (std::size_t h = 0; h < heads; ++h) {
    double step = static_cast<double>(max_bias) / static_cast<double>(n);
    double index = h < n ? static_cast<double>(h) + 1.0 : static_cast<double>(h - n) + 0.5;
    slopes[h] = static_cast<float>(std::exp2(-step * index));
  }
  return slopes;
}

void check_layers(const ModelConfig& c, const std::string& file) {
  require(c.layers >= 1 && c.layers <= kMostLayers,
          "{}: {} layers; expected 1 to {}: the file is damaged, download it again", file, c.layers,
          kMostLayers);
}

void check_rope_dimension(const ModelConfig& c, const std::string& file) {
  std::size_t dimension = c.rope.dimension;
  require(dimension > 0 && dimension % 2 == 0 && dimension <= c.key_dim && dimension <= kMostInHead,
          "{}: rotary embedding of {} numbers of heads of {}: an even number was expected", file,
          dimension, c.key_dim);
}

void check_config(const ModelConfig& c, const std::string& file) {
  struct {
    const char* name;
    std::size_t value, most;
  } sizes[] = {{"width", c.width, std::size_t{1} << 20},
               {"heads", c.heads, 65536},
               {"key-value heads", c.kv_heads, 65536},
               {"numbers of a key head", c.key_dim, kMostInHead},
               {"numbers of a value head", c.value_dim, kMostInHead},
               {"feed-forward width", c.ffn_width, std::size_t{1} << 24},
               {"vocabulary", c.vocabulary, std::size_t{1} << 28},
               {"positions", c.max_positions, std::size_t{1} << 40}};
  check_layers(c, file);
  for (const auto& size : sizes) {
    require(size.value > 0 && size.value <= size.most, "{}: {}: {} is not within 1 to {}", file,
            size.name, size.value, size.most);
  }
  require(c.heads % c.kv_heads == 0, "{}: {} query heads cannot share {} key-value heads evenly",
          file, c.heads, c.kv_heads);
  require(c.norm_epsilon > 0.0f && c.norm_epsilon < 1.0f,
          "{}: the epsilon of norms is {}, not between 0 and 1", file, c.norm_epsilon);
  for (float x : {c.attention_scale, c.attention_softcap, c.output_softcap, c.embedding_scale,
                  c.output_scale, c.clamp_qkv, c.alibi_max_bias, c.rope.magnitude}) {
    require(std::isfinite(x) && x >= 0.0f, "{}: a scale or limit of the model is {}", file, x);
  }
  require(c.unsure_below >= 0.0f && c.unsure_below <= 1.0f,
          "{}: ballast.unsure_below is {}, not within 0 to 1", file, c.unsure_below);
  require(c.attention_scale > 0.0f && c.embedding_scale > 0.0f && c.output_scale > 0.0f,
          "{}: a scale of the model is 0", file);
  for (const std::size_t window : c.sliding_windows) {
    require(window <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
            "{}: a sliding window of {} tokens; expected up to {}, or 0 for none", file, window,
            std::numeric_limits<std::int32_t>::max());
  }
  require(c.sliding_windows.size() == c.layers, "{}: {} sliding windows for {} layers", file,
          c.sliding_windows.size(), c.layers);
  const Rope& rope = c.rope;
  if (rope.style == RopeStyle::none) return;
  check_rope_dimension(c, file);
  require(std::isfinite(rope.base) && rope.base > 1.0f, "{}: the rotary base is {}, not above 1",
          file, rope.base);
  for (const auto* divisors : {&rope.divisors, &rope.long_divisors}) {
    require(divisors->empty() || divisors->size() == rope.dimension / 2,
            "{}: {} rotary factors for {} rotations", file, divisors->size(), rope.dimension / 2);
    for (float x : *divisors) {
      require(std::isfinite(x) && x > 0.0f, "{}: a rotary factor is {}, not above 0", file, x);
    }
  }
}

}  // namespace ballast
