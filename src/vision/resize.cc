#include "vision/resize.h"

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"

namespace ballast {
namespace {

/// Weights are integers in units of 2^-kBits: results do not depend on the processor.
constexpr int kBits = 22;

/// What the pixels of a line become: out[i] = Σ weights[i·width + k] · in[first[i] + k].
struct Filter {
  std::vector<std::size_t> first;
  std::vector<std::size_t> count;
  std::vector<std::int32_t> weights;
  std::size_t width = 0;
};

/// Keys' cubic with a = -1/2.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

Filter filter_of(std::size_t in, std::size_t out) {
  const double step = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = std::max(step, 1.0), reach = 2.0 * stretch;
  Filter filter;
  filter.width = static_cast<std::size_t>(std::ceil(reach)) * 2 + 1;
  filter.weights.resize(out * filter.width);
  std::vector<double> exact(filter.width);
  for (std::size_t i = 0; i < out; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;
    const auto begin = static_cast<std::size_t>(std::max(centre - reach + 0.5, 0.0));
    const std::size_t end = std::min(static_cast<std::size_t>(centre + reach + 0.5), in);
    double sum = 0.0;
    for (std::size_t k = 0; k < end - begin; ++k) {
      exact[k] = cubic((static_cast<double>(begin + k) - centre + 0.5) * (1.0 / stretch));
      sum += exact[k];
    }
    for (std::size_t k = 0; k < end - begin; ++k) {
      const double weight = exact[k] / sum * (1 << kBits);
      filter.weights[i * filter.width + k] =
          static_cast<std::int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    filter.first.push_back(begin);
    filter.count.push_back(end - begin);
  }
  return filter;
}

std::uint8_t rounded(std::int64_t sum) {
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> kBits, 0, 255));
}

constexpr std::int64_t kHalf = std::int64_t{1} << (kBits - 1);

Picture resize_rows(const Picture& in, std::size_t width) {
  const Filter filter = filter_of(in.width, width);
  Picture out(width, in.height);
  parallel_for(in.height, [&](std::size_t y) {
    for (std::size_t x = 0; x < width; ++x) {
      const std::int32_t* weights = filter.weights.data() + x * filter.width;
      const std::uint8_t* from = in.at(filter.first[x], y);
      std::int64_t sums[3] = {kHalf, kHalf, kHalf};
      for (std::size_t k = 0; k < filter.count[x]; ++k) {
        for (std::size_t c = 0; c < 3; ++c) sums[c] += std::int64_t{weights[k]} * from[3 * k + c];
      }
      for (std::size_t c = 0; c < 3; ++c) out.at(x, y)[c] = rounded(sums[c]);
    }
  });
  return out;
}

Picture resize_columns(const Picture& in, std::size_t height) {
  const Filter filter = filter_of(in.height, height);
  Picture out(in.width, height);
  parallel_for(height, [&](std::size_t y) {
    std::vector<std::int64_t> sums(3 * in.width, kHalf);
    for (std::size_t k = 0; k < filter.count[y]; ++k) {
      const std::int64_t weight = filter.weights[y * filter.width + k];
      const std::uint8_t* from = in.at(0, filter.first[y] + k);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight * from[i];
    }
    std::ranges::transform(sums, out.at(0, y), rounded);
  });
  return out;
}

}  // namespace

Picture resize(const Picture& picture, std::size_t width, std::size_t height) {
  if (height == picture.height) {
    return width == picture.width ? picture : resize_rows(picture, width);
  }
  if (width == picture.width) return resize_columns(picture, height);
  return resize_columns(resize_rows(picture, width), height);
}

}  // namespace ballast
