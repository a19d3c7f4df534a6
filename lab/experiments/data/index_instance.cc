#include "experiments/data/index_instance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ballast/random.h"
#include "base/fail.h"

namespace ballast {
namespace {

enum Purpose : std::uint32_t { kDeal, kKey, kSign, kAsked };

}  // namespace

IndexInstance::IndexInstance(const IndexOptions& options) : options_(options) {
  require(options.tokens >= 1 && options.tokens <= (std::size_t{1} << 24),
          "the INDEX instance: {} tokens; possible: 1 to {}", options.tokens, 1 << 24);
  require(options.dim >= 1 && options.dim <= 256,
          "the INDEX instance: a head dimension of {}; possible: 1 to 256", options.dim);
  require(std::isfinite(options.radius) && options.radius > 0,
          "the INDEX instance: a radius of {}; a positive number was expected", options.radius);
  shape_ = {1, 1, 1, options.tokens, options.dim, options.dim};
  name_ = "the INDEX instance";
  const std::size_t groups = (2 * options.tokens + options.dim - 1) / options.dim;
  bits_.resize(groups * options.dim);
  std::iota(bits_.begin(), bits_.end(), 0u);
  const RandomKey random{options.seed, 0, 0};
  for (std::size_t i = bits_.size(); i > 1; --i) {
    const std::uint64_t bits = random_bits(random, i, kDeal, 0)[0];
    std::swap(bits_[i - 1], bits_[bits * i >> 32]);
  }
}

void IndexInstance::read(Part part, std::size_t layer, std::size_t head, std::size_t first,
                         MutableMatrix out) const {
  require(layer == 0 && head == 0 && first <= shape_.tokens && out.rows <= shape_.tokens - first,
          "{}: tokens {} to {} of layer {}, head {} are not in it", name_, first, first + out.rows,
          layer, head);
  const std::size_t d = options_.dim;
  const auto each = static_cast<float>(options_.radius / std::sqrt(static_cast<double>(d)));
  const RandomKey random{options_.seed, 0, 0};
  for (std::size_t i = 0; i < out.rows; ++i) {
    const std::size_t token = first + i;
    std::size_t bit = bits_[token];
    if (part == Part::value) {
      std::ranges::fill(out[i], 0.0f);
      const bool plus = random_bits(random, bit, kSign, 0)[0] % 2 == 0;
      out[i][bit % d] = plus ? 1.0f : -1.0f;
      continue;
    }
    if (part == Part::query) {
      const std::uint64_t asked = random_bits(random, token, kAsked, 0)[0];
      bit = asked * bits_.size() >> 32;
    }
    for (std::size_t c = 0; c < d; ++c) {
      const std::uint32_t word =
          random_bits(random, bit / d, kKey, static_cast<std::uint32_t>(c / 32))[0];
      out[i][c] = (word >> c % 32 & 1) != 0 ? each : -each;
    }
  }
}

}  // namespace ballast
