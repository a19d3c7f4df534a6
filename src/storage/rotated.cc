#include "storage/rotated.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "base/fail.h"
#include "storage/round.h"

namespace ballast {
namespace {

// Larger elements saturate here, so that decoded rows of any dimension stay finite.
constexpr float kRotatedLimit = 0x1p119f;

// The first 256 bits of the fraction of π.
constexpr std::array<std::uint64_t, 4> kSigns = {0x243F6A8885A308D3u, 0x13198A2E03707344u,
                                                 0xA4093822299F31D0u, 0x082EFA98EC4E6C89u};
constexpr auto kFactors = [] {
  std::array<float, 256> factors{};
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i] = (kSigns[i / 64] >> (i % 64) & 1) != 0 ? -1.0f : 1.0f;
  }
  return factors;
}();

// Paley's Hadamard matrix of size q + 1, q a prime of the form 4 k + 3.
template <int q>
constexpr auto paley() {
  std::array<std::array<float, q + 1>, q + 1> h{};
  const auto is_square = [](int x) {
    for (int y = 1; y < q; ++y) {
      if (y * y % q == x) return true;
    }
    return false;
  };
  for (int i = 0; i <= q; ++i) {
    for (int j = 0; j <= q; ++j) {
      if (i == 0 || i == j) {
        h[i][j] = 1.0f;
      } else if (j == 0) {
        h[i][j] = -1.0f;
      } else {
        h[i][j] = is_square((j - i + q) % q) ? 1.0f : -1.0f;
      }
    }
  }
  return h;
}
constexpr auto kHadamard12 = paley<11>();
constexpr auto kHadamard20 = paley<19>();

// H is block-diagonal; a block is the product of a matrix of size `base` and one of size `power`.
struct Blocks {
  std::size_t base, power;
  std::size_t size() const { return base * power; }
};

Blocks blocks_of(std::size_t dim) {
  for (std::size_t base : {std::size_t{1}, std::size_t{12}, std::size_t{20}}) {
    if (dim % base == 0 && std::has_single_bit(dim / base)) return {base, dim / base};
  }
  return {1, dim & (~dim + 1)};  // the largest power of two that divides dim
}

void walsh_of_eight(float* x) {
  const float a0 = x[0] + x[1], a1 = x[0] - x[1], a2 = x[2] + x[3], a3 = x[2] - x[3];
  const float a4 = x[4] + x[5], a5 = x[4] - x[5], a6 = x[6] + x[7], a7 = x[6] - x[7];
  const float b0 = a0 + a2, b1 = a1 + a3, b2 = a0 - a2, b3 = a1 - a3;
  const float b4 = a4 + a6, b5 = a5 + a7, b6 = a4 - a6, b7 = a5 - a7;
  x[0] = b0 + b4, x[1] = b1 + b5, x[2] = b2 + b6, x[3] = b3 + b7;
  x[4] = b0 - b4, x[5] = b1 - b5, x[6] = b2 - b6, x[7] = b3 - b7;
}

// Multiplies `count` elements by the Walsh-Hadamard matrix.
void walsh(float* x, std::size_t count) {
  std::size_t half = 1;
  if (count >= 8) {  // the three steps within eight elements, in registers
    for (std::size_t i = 0; i < count; i += 8) walsh_of_eight(x + i);
    half = 8;
  }
  for (; half < count; half *= 2) {
    for (std::size_t i = 0; i < count; i += 2 * half) {
      for (std::size_t j = i; j < i + half; ++j) {
        const float a = x[j], b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
}

// Multiplies the columns of `base` rows of `power` elements by a matrix or its transpose. Products
// with ±1 are exact, so the sums are the same on every processor.
template <std::size_t kBase>
void multiply_rows(const std::array<std::array<float, kBase>, kBase>& h, bool transposed,
                   std::size_t power, float* x) {
  float column[kBase];
  for (std::size_t p = 0; p < power; ++p) {
    for (std::size_t j = 0; j < kBase; ++j) column[j] = x[j * power + p];
    for (std::size_t i = 0; i < kBase; ++i) {
      float sum = 0.0f;
      for (std::size_t j = 0; j < kBase; ++j) sum += (transposed ? h[j][i] : h[i][j]) * column[j];
      x[i * power + p] = sum;
    }
  }
}

// x = H x or Hᵀ x, without the scale.
void multiply_hadamard(Blocks blocks, bool transposed, std::size_t dim, float* x) {
  for (std::size_t begin = 0; begin < dim; begin += blocks.size()) {
    float* block = x + begin;
    for (std::size_t b = 0; b < blocks.base; ++b) walsh(block + b * blocks.power, blocks.power);
    if (blocks.base == 12) multiply_rows(kHadamard12, transposed, blocks.power, block);
    if (blocks.base == 20) multiply_rows(kHadamard20, transposed, blocks.power, block);
  }
}

void flip_signs(std::size_t dim, float* x) {
  for (std::size_t begin = 0; begin < dim; begin += kFactors.size()) {
    const std::size_t count = std::min(dim - begin, kFactors.size());
    for (std::size_t i = 0; i < count; ++i) x[begin + i] *= kFactors[i];
  }
}

double scale_of(Blocks blocks) { return 1.0 / std::sqrt(static_cast<double>(blocks.size())); }

// Floats of one row; only long ones are allocated.
class RowBuffer {
 public:
  explicit RowBuffer(std::size_t dim) {
    if (dim > kOnStack) large_ = std::make_unique<float[]>(dim);
  }
  float* data() { return large_ ? large_.get() : small_; }

 private:
  static constexpr std::size_t kOnStack = 256;
  float small_[kOnStack];
  std::unique_ptr<float[]> large_;
};

// Sums of products in eight parts. A product of floats is exact in double: contraction to
// multiply-adds changes nothing.
double dot(const float* a, const float* b, std::size_t count) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += double{a[i + j]} * double{b[i + j]};
  }
  for (; i < count; ++i) sums[i % 8] += double{a[i]} * double{b[i]};
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Codeword units for an element of standard deviation 1: 127 over the largest codeword.
float unit_of(StorageType type) {
  return type == StorageType::q4   ? 127.0f / 2.7326f
         : type == StorageType::q3 ? 127.0f / 2.1520f
                                   : 127.0f / 1.5104f;
}

// The index of the codeword nearest to each element; its codeword into `words`.
template <std::size_t kLevels>
void quantize(const std::array<std::int8_t, kLevels>& book, const float* z, std::size_t dim,
              std::uint8_t* index, float* words) {
  for (std::size_t i = 0; i < dim; ++i) {
    int level = 0;
    for (std::size_t l = 0; l + 1 < kLevels; ++l) {
      level += z[i] > 0.5f * static_cast<float>(book[l] + book[l + 1]) ? 1 : 0;
    }
    index[i] = static_cast<std::uint8_t>(level);
  }
  for (std::size_t i = 0; i < dim; ++i) words[i] = book[index[i]];
}

// Calls action(begin, count, shift) for each run of elements that share a shift.
template <typename Action>
void for_each_field(std::size_t bytes, unsigned bits, std::size_t dim, const Action& action) {
  unsigned shift = 0;
  for (std::size_t begin = 0; begin < dim; begin += bytes, shift += bits) {
    action(begin, std::min(bytes, dim - begin), shift);
  }
}

// The bytes are 0 before.
void put_low_codes(StorageType type, const std::uint8_t* index, std::size_t dim, std::byte* out) {
  const unsigned bits = type == StorageType::q4 ? 4 : 2;
  const unsigned mask = (1u << bits) - 1;
  for_each_field(low_code_bytes(type, dim), bits, dim,
                 [&](std::size_t begin, std::size_t count, unsigned shift) {
                   for (std::size_t j = 0; j < count; ++j) {
                     out[j] |= static_cast<std::byte>((index[begin + j] & mask) << shift);
                   }
                 });
}

void put_high_bits(const std::uint8_t* index, std::size_t dim, std::byte* out) {
  const std::size_t bytes = low_code_bytes(StorageType::q3, dim), half = (bytes + 1) / 2;
  for_each_field(bytes, 2, dim, [&](std::size_t begin, std::size_t count, unsigned shift) {
    for (std::size_t j = 0; j < count; ++j) {
      const unsigned bit = shift + (j >= half ? 1 : 0);
      out[j >= half ? j - half : j] |= static_cast<std::byte>((index[begin + j] >> 2) << bit);
    }
  });
}

// words: the codewords of the codes.
void put_codes(StorageType type, const float* z, std::size_t dim, std::byte* codes, float* words) {
  RowBuffer buffer((dim + 3) / 4);
  auto* index = reinterpret_cast<std::uint8_t*>(buffer.data());
  switch (type) {
    case StorageType::q4:
      quantize(kCodewords4, z, dim, index, words);
      return put_low_codes(type, index, dim, codes);
    case StorageType::q3:
      quantize(kCodewords3, z, dim, index, words);
      put_low_codes(type, index, dim, codes);
      return put_high_bits(index, dim, codes + low_code_bytes(type, dim));
    default:
      quantize(kCodewords2, z, dim, index, words);
      return put_low_codes(type, index, dim, codes);
  }
}

}  // namespace

std::span<const std::int8_t> codewords(StorageType type) {
  if (type == StorageType::q4) return kCodewords4;
  if (type == StorageType::q3) return kCodewords3;
  return kCodewords2;
}

void hadamard_rotate(std::span<const float> row, float* out) {
  const Blocks blocks = blocks_of(row.size());
  std::copy(row.begin(), row.end(), out);
  flip_signs(row.size(), out);
  multiply_hadamard(blocks, false, row.size(), out);
  const auto scale = static_cast<float>(scale_of(blocks));
  for (std::size_t i = 0; i < row.size(); ++i) out[i] *= scale;
}

void hadamard_rotate_back(std::span<const float> row, float* out) {
  const Blocks blocks = blocks_of(row.size());
  std::copy(row.begin(), row.end(), out);
  multiply_hadamard(blocks, true, row.size(), out);
  flip_signs(row.size(), out);
  const auto scale = static_cast<float>(scale_of(blocks));
  for (std::size_t i = 0; i < row.size(); ++i) out[i] *= scale;
}

std::uint16_t encode_rotated(StorageType type, std::span<const float> row, bool averaged,
                             std::byte* codes) {
  const std::size_t dim = row.size();
  RowBuffer limited(dim), rotated(dim), words(dim);
  float* x = limited.data();
  float* y = rotated.data();
  float largest = 0.0f;
  for (std::size_t i = 0; i < dim; ++i) {
    x[i] = std::clamp(row[i], -kRotatedLimit, kRotatedLimit);
    largest = std::max(largest, std::abs(x[i]));
  }
  std::fill_n(codes, row_bytes(type, dim), std::byte{0});
  if (largest == 0.0f) return 0;
  // A power of two brings the largest element to 1 to 2, so that no square overflows or vanishes.
  const int exponent = std::ilogb(largest);
  const double inverse = std::ldexp(1.0, -exponent);
  for (std::size_t i = 0; i < dim; ++i) x[i] = static_cast<float>(double{x[i]} * inverse);
  hadamard_rotate({x, dim}, y);
  const double square = dot(y, y, dim);
  const auto to_unit =
      static_cast<float>(std::sqrt(static_cast<double>(dim) / square) * double{unit_of(type)});
  for (std::size_t i = 0; i < dim; ++i) x[i] = y[i] * to_unit;
  put_codes(type, x, dim, codes, words.data());
  const double product = dot(y, words.data(), dim);
  const double scale = averaged ? square / product : product / dot(words.data(), words.data(), dim);
  return kernels::bf16_encode(static_cast<float>(std::ldexp(scale, exponent)));
}

void decode_rotated(StorageType type, const std::byte* codes, std::uint16_t scale,
                    std::span<float> out) {
  const std::size_t dim = out.size();
  if (dim == 0) return;
  RowBuffer buffer((dim + 3) / 4);
  auto* words = reinterpret_cast<std::int8_t*>(buffer.data());
  unpack_codewords(type, codes, dim, words);
  std::copy_n(words, dim, out.begin());
  // Sums of codewords are integers, exact in float.
  const Blocks blocks = blocks_of(dim);
  multiply_hadamard(blocks, true, dim, out.data());
  flip_signs(dim, out.data());
  const double step = double{kernels::bf16_decode(scale)} * scale_of(blocks);
  for (std::size_t i = 0; i < dim; ++i) out[i] = static_cast<float>(double{out[i]} * step);
}

void unpack_codewords(StorageType type, const std::byte* codes, std::size_t dim, std::int8_t* out) {
  const auto book = codewords(type);
  const unsigned bits = type == StorageType::q4 ? 4 : 2, mask = (1u << bits) - 1;
  const std::size_t bytes = low_code_bytes(type, dim), half = (bytes + 1) / 2;
  const auto* at = reinterpret_cast<const std::uint8_t*>(codes);
  for_each_field(bytes, bits, dim, [&](std::size_t begin, std::size_t count, unsigned shift) {
    for (std::size_t j = 0; j < count; ++j) {
      unsigned code = at[j] >> shift & mask;
      if (type == StorageType::q3) {
        const unsigned high = at[bytes + (j >= half ? j - half : j)];
        code |= (high >> (shift + (j >= half ? 1 : 0)) & 1u) << 2;
      }
      out[begin + j] = static_cast<std::int8_t>(code);
    }
  });
  for (std::size_t n = 0; n < dim; ++n) out[n] = book[static_cast<std::uint8_t>(out[n])];
}

}  // namespace ballast
