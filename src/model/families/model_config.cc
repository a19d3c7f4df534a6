#include "ballast/engine/model_config.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/fail.h"
#include "model/families/check_config.h"

namespace ballast {
namespace {

constexpr std::size_t kMostInHead = 65536, kMostLayers = 4096;

void check_rope(const Rope& rope, std::size_t key_dim, const std::string& file) {
  if (rope.style == RopeStyle::none) return;
  check_rope_dimension(rope.dimension, key_dim, file);
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

}  // namespace

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

std::vector<std::size_t> ModelConfig::attending() const {
  std::vector<std::size_t> out;
  for (std::size_t l = 0; l < layers; ++l) {
    if (kind(l) == LayerKind::attention) out.push_back(l);
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

void check_rope_dimension(std::size_t dimension, std::size_t key_dim, const std::string& file) {
  require(dimension > 0 && dimension % 2 == 0 && dimension <= key_dim && dimension <= kMostInHead,
          "{}: rotary embedding of {} numbers of heads of {}: an even number was expected", file,
          dimension, key_dim);
}

void check_groups(std::size_t groups, const std::string& file) {
  require(groups <= 1, ErrorCode::unsupported,
          "{}: {} groups of experts, of which tokens choose, are not supported", file, groups);
}

void check_config(const ModelConfig& c, const std::string& file) {
  struct {
    const char* name;
    std::size_t value, most;
  } sizes[] = {
      {"width", c.width, std::size_t{1} << 20},
      {"heads", c.heads, 65536},
      {"key-value heads", c.kv_heads, 65536},
      {"numbers of a key head", c.key_dim, kMostInHead},
      {"numbers of a value head", c.value_dim, kMostInHead},
      {"experts", std::max<std::size_t>(c.experts, 1), 4096},
      {"feed-forward width", c.ffn_width, std::size_t{1} << 24},
      {"feed-forward width of an expert", c.experts > 0 ? c.expert_width : 1, std::size_t{1} << 24},
      {"feed-forward width of the shared expert", std::max<std::size_t>(c.shared_width, 1),
       std::size_t{1} << 24},
      {"tokens of a short convolution", c.kinds.empty() ? 1 : c.conv_width, 64},
      {"vocabulary", c.vocabulary, std::size_t{1} << 28},
      {"positions", c.max_positions, std::size_t{1} << 40}};
  check_layers(c, file);
  for (const auto& size : sizes) {
    require(size.value > 0 && size.value <= size.most, "{}: {}: {} is not within 1 to {}", file,
            size.name, size.value, size.most);
  }
  require(c.experts == 0 || (c.experts_used > 0 && c.experts_used <= c.experts),
          "{}: tokens use {} of {} experts", file, c.experts_used, c.experts);
  require(c.heads % c.kv_heads == 0, "{}: {} query heads cannot share {} key-value heads evenly",
          file, c.heads, c.kv_heads);
  require(c.norm_epsilon > 0.0f && c.norm_epsilon < 1.0f,
          "{}: the epsilon of norms is {}, not between 0 and 1", file, c.norm_epsilon);
  for (float x : {c.attention_scale, c.attention_softcap, c.output_softcap, c.embedding_scale,
                  c.residual_scale, c.output_scale, c.clamp_qkv, c.alibi_max_bias, c.query_growth,
                  c.rope.magnitude, c.second_rope.magnitude}) {
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
  require(c.kinds.empty() || (c.kinds.size() == c.layers && !c.attending().empty()),
          "{}: {} kinds of {} layers, or none that attends", file, c.kinds.size(), c.layers);
  const bool delta = std::ranges::find(c.kinds, LayerKind::delta_rule) != c.kinds.end();
  for (std::size_t size :
       {c.delta_key_heads, c.delta_value_heads, c.delta_key_dim, c.delta_value_dim}) {
    require(!delta || (size > 0 && size <= 65536),
            "{}: {} heads, or numbers of a head, of the delta rule", file, size);
  }
  require(!delta || c.delta_value_heads % c.delta_key_heads == 0,
          "{}: {} value heads of the delta rule cannot share {} key heads evenly", file,
          c.delta_value_heads, c.delta_key_heads);
  require(std::isfinite(c.experts_scale) && c.experts_scale > 0.0f,
          "{}: the scale of experts is {}", file, c.experts_scale);
  require(c.takes_second_rope.empty() || c.takes_second_rope.size() == c.layers,
          "{}: rotations of {} layers, of {}", file, c.takes_second_rope.size(), c.layers);
  check_rope(c.rope, c.key_dim, file);
  check_rope(c.second_rope, c.key_dim, file);
}

}  // namespace ballast
