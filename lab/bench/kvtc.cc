#include "kvtc.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "gemm/matmul.h"
#include "model/symmetric.h"
#include "storage/round.h"

namespace ballast::bench {
namespace {

constexpr std::array<std::size_t, 5> kSizes = {1, 16, 64, 256, 1024};
constexpr std::array kBits = {0, 1, 2, 3, 4, 6, 8};
constexpr std::size_t kHead = 32;  // bits of a scale and a shift

/// a · bᵀ.
Matrix product(ConstMatrix a, const Matrix& b) {
  Matrix out(a.rows, b.rows());
  Linear weights;
  weights.data = reinterpret_cast<const std::byte*>(b.data());
  weights.rows = b.rows();
  weights.cols = b.cols();
  weights.row_bytes = b.cols() * sizeof(float);
  multiply(a, weights, out.view());
  return out;
}

Matrix transposed(const Matrix& a) {
  Matrix out(a.cols(), a.rows());
  for (std::size_t r = 0; r < a.rows(); ++r) {
    for (std::size_t c = 0; c < a.cols(); ++c) out[c][r] = a[r][c];
  }
  return out;
}

float as_f16(float x) { return kernels::f16_decode(kernels::f16_encode(x)); }

/// The components of one token and group as codes, which replace them by what they stand for.
void round_group(std::span<float> y, int bits, std::vector<std::uint8_t>* codes) {
  if (bits == 0) {
    for (float& x : y) x = y.size() == 1 ? as_f16(x) : 0.0f;
    return;
  }
  const auto [least, most] = std::ranges::minmax(y);
  const float shift = as_f16(least);
  const float scale = as_f16((most - shift) / static_cast<float>((1 << bits) - 1));
  for (float& x : y) {
    const float code = scale > 0 ? std::round((x - shift) / scale) : 0.0f;
    const auto kept =
        static_cast<std::uint8_t>(std::clamp(code, 0.0f, static_cast<float>((1 << bits) - 1)));
    if (codes != nullptr) codes->push_back(kept);
    x = shift + scale * static_cast<float>(kept);
  }
}

std::size_t bits_of(std::size_t size, int bits) {
  if (bits == 0) return size == 1 ? 16 : 0;
  return kHead + size * static_cast<std::size_t>(bits);
}

void put(std::ostream& out, const Matrix& m) {
  const std::size_t sizes[] = {m.rows(), m.cols()};
  out.write(reinterpret_cast<const char*>(sizes), sizeof(sizes));
  out.write(reinterpret_cast<const char*>(m.data()),
            static_cast<std::streamsize>(m.rows() * m.cols() * sizeof(float)));
}

Matrix get(std::istream& in) {
  std::size_t sizes[2] = {};
  in.read(reinterpret_cast<char*>(sizes), sizeof(sizes));
  Matrix out(sizes[0], sizes[1]);
  in.read(reinterpret_cast<char*>(out.data()),
          static_cast<std::streamsize>(sizes[0] * sizes[1] * sizeof(float)));
  return out;
}

}  // namespace

Kvtc::Kvtc(std::vector<float> mean, ConstMatrix covariance, const Matrix& sample)
    : mean_(std::move(mean)) {
  vectors_ = leading_eigenvectors(covariance, covariance.rows / 2).vectors;
  sample_ = project(sample.view());
}

Kvtc::Kvtc(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const Matrix mean = get(in);
  mean_.assign(mean.data(), mean.data() + mean.cols());
  vectors_ = get(in);
  sample_ = get(in);
  require(in.good(), "{}: cannot be read", path.string());
}

void Kvtc::save(const std::filesystem::path& path) const {
  std::ofstream out(path, std::ios::binary);
  Matrix mean(1, mean_.size());
  std::ranges::copy(mean_, mean.data());
  for (const Matrix* m : std::initializer_list<const Matrix*>{&mean, &vectors_, &sample_}) {
    put(out, *m);
  }
}

Matrix Kvtc::project(ConstMatrix rows) const {
  Matrix centred(rows.rows, rows.cols);
  for (std::size_t t = 0; t < rows.rows; ++t) {
    for (std::size_t i = 0; i < rows.cols; ++i) centred[t][i] = rows[t][i] - mean_[i];
  }
  return product(centred.view(), vectors_);
}

std::vector<Kvtc::Group> Kvtc::divide(std::size_t budget) const {
  const std::size_t k = vectors_.rows();
  // The error of each group that could be.
  struct Choice {
    std::size_t size = 0;
    int bits = 0;
    double error = 0;
  };
  std::vector<std::vector<Choice>> choices(k);
  parallel_for(k, [&](std::size_t begin) {
    for (std::size_t size : kSizes) {
      if (begin + size > k) break;
      for (int bits : kBits) {
        double error = 0;
        for (std::size_t t = 0; t < sample_.rows(); t += 4) {
          std::vector<float> y(sample_[t].begin() + std::ptrdiff_t(begin),
                               sample_[t].begin() + std::ptrdiff_t(begin + size));
          round_group(y, bits, nullptr);
          for (std::size_t i = 0; i < size; ++i) {
            error += std::pow(double{y[i]} - sample_[t][begin + i], 2);
          }
        }
        choices[begin].push_back({size, bits, error});
      }
    }
  });
  // best[i][b]: the least error of the components from i on within b bits.
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(k + 1, std::vector<double>(budget + 1, kNone));
  std::vector<std::vector<std::uint8_t>> chosen(k, std::vector<std::uint8_t>(budget + 1));
  std::ranges::fill(best[k], 0.0);
  for (std::size_t i = k; i-- > 0;) {
    for (std::size_t c = 0; c < choices[i].size(); ++c) {
      const Choice& choice = choices[i][c];
      const std::size_t cost = bits_of(choice.size, choice.bits);
      for (std::size_t b = cost; b <= budget; ++b) {
        const double error = choice.error + best[i + choice.size][b - cost];
        if (error < best[i][b]) {
          best[i][b] = error;
          chosen[i][b] = static_cast<std::uint8_t>(c);
        }
      }
    }
  }
  std::vector<Group> out;
  for (std::size_t i = 0, b = budget; i < k;) {
    const Choice& choice = choices[i][chosen[i][b]];
    out.push_back({i, choice.size, choice.bits});
    b -= bits_of(choice.size, choice.bits);
    i += choice.size;
  }
  return out;
}

Kvtc::Coded Kvtc::code(ConstMatrix rows, std::size_t bits) const {
  Matrix y = project(rows);
  std::vector<std::uint8_t> stream;
  std::size_t heads = 0;  // bytes of scales and shifts, and of f16 components
  for (const Group& group : divide(bits)) {
    std::vector<std::uint8_t> codes;
    for (std::size_t t = 0; t < y.rows(); ++t) {
      round_group(y[t].subspan(group.begin, group.size), group.bits, &codes);
    }
    if (group.bits > 0 || group.size == 1) heads += y.rows() * (group.bits > 0 ? kHead / 8 : 2);
    // A byte has as many whole codes as it holds, which DEFLATE likes better than codes across.
    const std::size_t at_once = group.bits == 0 ? 1 : std::size_t(8 / group.bits);
    for (std::size_t i = 0; i < codes.size(); i += at_once) {
      unsigned byte = 0;
      for (std::size_t j = i; j < std::min(codes.size(), i + at_once); ++j) {
        byte = byte << group.bits | codes[j];
      }
      stream.push_back(static_cast<std::uint8_t>(byte));
    }
  }
  std::vector<Bytef> small(compressBound(stream.size()));
  uLongf size = small.size();
  require(compress2(small.data(), &size, stream.data(), stream.size(), 9) == Z_OK, "zlib failed");
  Coded out{product(y.view(), transposed(vectors_)), heads + size};
  for (std::size_t t = 0; t < out.rows.rows(); ++t) {
    for (std::size_t i = 0; i < mean_.size(); ++i) out.rows[t][i] += mean_[i];
  }
  return out;
}

}  // namespace ballast::bench
