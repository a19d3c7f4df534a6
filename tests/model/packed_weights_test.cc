// Matrices of folders whose scales lie beside them, against the formulas of their formats.
#include "model/packed_weights.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/error.h"

namespace ballast {
namespace {

using Shape = std::vector<std::size_t>;

/// The tensors of one matrix, "w", and the numbers that they mean.
class Folder {
 public:
  template <typename T>
  void add(const std::string& suffix, TensorType type, const Shape& shape,
           const std::vector<T>& numbers) {
    std::vector<std::byte>& bytes = bytes_["w" + suffix];
    bytes.resize(numbers.size() * sizeof(T));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    tensors_["w" + suffix] = {"w" + suffix, type, shape, bytes};
  }
  void add_floats(const std::string& suffix, const Shape& shape, const std::vector<float>& x) {
    add(suffix, TensorType::f32, shape, x);
  }
  std::optional<UnpackedMatrix> unpack(bool less_one = true) const {
    return unpack_matrix(
        [this](const std::string& name) {
          const auto found = tensors_.find(name);
          return found == tensors_.end() ? nullptr : &found->second;
        },
        "w", [less_one] { return less_one; }, "model");
  }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, TensorView> tensors_;
};

std::vector<std::uint32_t> codes_of(std::size_t count, std::uint32_t below) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> out(count);
  for (auto& code : out) code = random() % below;
  return out;
}

std::vector<float> scales_of(std::size_t count) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = 0.25f + 0.125f * static_cast<float>(i % 7);
  return out;
}

/// `within`: of the largest magnitude in a block of 32.
void expect_numbers(const UnpackedMatrix& got, TensorType type, const Shape& shape,
                    const std::function<double(std::size_t, std::size_t)>& expected,
                    double within = 1e-3) {
  EXPECT_EQ(got.type, type);
  ASSERT_EQ(got.shape, shape);
  const std::vector<float> numbers = to_float({"w", got.type, got.shape, got.data});
  for (std::size_t r = 0; r < shape[0]; ++r) {
    for (std::size_t begin = 0; begin < shape[1]; begin += 32) {
      double most = 0;
      for (std::size_t c = begin; c < begin + 32; ++c)
        most = std::max(most, std::abs(expected(r, c)));
      for (std::size_t c = begin; c < begin + 32; ++c) {
        EXPECT_NEAR(double{numbers[r * shape[1] + c]}, expected(r, c), within * most + 1e-9)
            << r << " " << c;
      }
    }
  }
}

/// 4 signs and exponents written out, since the formula is the test.
double e4m3(std::uint8_t bits) {
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  const int exponent = (bits & 0x78) / 8, fraction = bits % 8;
  return sign * (exponent == 0 ? fraction / 8.0 * std::pow(2.0, -6)
                               : (1 + fraction / 8.0) * std::pow(2.0, exponent - 7));
}

std::vector<std::uint8_t> e4m3_codes(std::size_t count) {
  std::vector<std::uint8_t> out;
  for (std::uint32_t code : codes_of(count, 256)) {
    out.push_back(static_cast<std::uint8_t>((code & 0x7f) == 0x7f ? code - 1 : code));
  }
  return out;
}

TEST(PackedWeights, Fp8HasAScaleForEachBlock) {
  const std::size_t rows = 160, columns = 192;  // in blocks of 128, the last ones smaller
  Folder folder;
  const auto codes = e4m3_codes(rows * columns);
  const auto scales = scales_of(4);
  folder.add(".weight", TensorType::f8_e4m3, {rows, columns}, codes);
  folder.add_floats(".weight_scale_inv", {2, 2}, scales);
  expect_numbers(
      *folder.unpack(), TensorType::q8_0, {rows, columns},
      [&](std::size_t r, std::size_t c) {
        return e4m3(codes[r * columns + c]) * double{scales[r / 128 * 2 + c / 128]};
      },
      0.5 / 127 + 1e-3);
}

TEST(PackedWeights, Fp8HasAScaleForEachRowOrOne) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{6}, Shape{6, 1}}) {
    Folder folder;
    const auto codes = e4m3_codes(6 * 32);
    const auto scales = scales_of(element_count(shape));
    folder.add(".weight", TensorType::f8_e4m3, {6, 32}, codes);
    folder.add_floats(".weight_scale", shape, scales);
    expect_numbers(
        *folder.unpack(), TensorType::q8_0, {6, 32},
        [&](std::size_t r, std::size_t c) {
          return e4m3(codes[r * 32 + c]) * double{scales[scales.size() == 1 ? 0 : r]};
        },
        0.5 / 127 + 1e-3);
  }
}

TEST(PackedWeights, Int8KeepsItsCodes) {
  Folder folder;
  std::vector<std::int8_t> codes;
  for (std::uint32_t code : codes_of(4 * 64, 255)) {
    codes.push_back(static_cast<std::int8_t>(static_cast<int>(code) - 127));
  }
  const auto scales = scales_of(4);
  folder.add(".weight", TensorType::i8, {4, 64}, codes);
  folder.add_floats(".weight_scale", {4, 1}, scales);
  expect_numbers(*folder.unpack(), TensorType::q8_0, {4, 64}, [&](std::size_t r, std::size_t c) {
    return codes[r * 64 + c] * double{scales[r]};
  });
}

/// compressed-tensors' words: `bits` a code, from the lowest, of each row.
std::vector<std::uint32_t> pack_rows(const std::vector<std::uint32_t>& codes, std::size_t columns,
                                     std::size_t bits) {
  const std::size_t each = 32 / bits, rows = codes.size() / columns,
                    words = (columns + each - 1) / each;
  std::vector<std::uint32_t> out(rows * words);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      out[r * words + c / each] |= codes[r * columns + c] << bits * (c % each);
    }
  }
  return out;
}

TEST(PackedWeights, CompressedTensorsOfFourBits) {
  for (bool zeros : {false, true}) {
    const std::size_t rows = 16, columns = 128, groups = 2;
    Folder folder;
    const auto codes = codes_of(rows * columns, 16), zero = codes_of(rows * groups, 16);
    const auto scales = scales_of(rows * groups);
    folder.add(".weight_packed", TensorType::i32, {rows, columns / 8},
               pack_rows(codes, columns, 4));
    folder.add_floats(".weight_scale", {rows, groups}, scales);
    folder.add(".weight_shape", TensorType::i64, {2}, std::vector<std::int64_t>{rows, columns});
    if (zeros) {
      std::vector<std::uint32_t> words(rows / 8 * groups);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t g = 0; g < groups; ++g) {
          words[r / 8 * groups + g] |= zero[r * groups + g] << 4 * (r % 8);
        }
      }
      folder.add(".weight_zero_point", TensorType::i32, {rows / 8, groups}, words);
    }
    expect_numbers(*folder.unpack(), zeros ? TensorType::q4_1 : TensorType::q4_0, {rows, columns},
                   [&](std::size_t r, std::size_t c) {
                     const std::size_t group = r * groups + c / 64;
                     const double at = zeros ? zero[group] : 8;
                     return (codes[r * columns + c] - at) * double{scales[group]};
                   });
  }
}

TEST(PackedWeights, CompressedTensorsOfEightBits) {
  Folder folder;
  const auto codes = codes_of(4 * 64, 255);
  const auto scales = scales_of(4);
  folder.add(".weight_packed", TensorType::i32, {4, 16}, pack_rows(codes, 64, 8));
  folder.add_floats(".weight_scale", {4, 1}, scales);
  folder.add(".weight_shape", TensorType::i64, {2}, std::vector<std::int64_t>{4, 64});
  expect_numbers(
      *folder.unpack(), TensorType::q8_0, {4, 64},
      [&](std::size_t r, std::size_t c) { return (codes[r * 64 + c] - 128.0) * double{scales[r]}; },
      0.5 / 127 + 1e-3);
}

TEST(PackedWeights, Nvfp4) {
  const std::size_t rows = 4, columns = 64;
  Folder folder;
  const auto codes = codes_of(rows * columns, 16);
  std::vector<std::uint8_t> packed;
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    packed.push_back(static_cast<std::uint8_t>(codes[i] | codes[i + 1] << 4));
  }
  std::vector<std::uint8_t> scales;
  for (std::size_t i = 0; i < rows * columns / 16; ++i)
    scales.push_back(static_cast<std::uint8_t>(0x30 + i));
  folder.add(".weight_packed", TensorType::u8, {rows, columns / 2}, packed);
  folder.add(".weight_scale", TensorType::f8_e4m3, {rows, columns / 16}, scales);
  folder.add_floats(".weight_global_scale", {1}, {48.0f});
  expect_numbers(
      *folder.unpack(), TensorType::q8_0, {rows, columns},
      [&](std::size_t r, std::size_t c) {
        constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        const std::uint32_t code = codes[r * columns + c];
        return (code >= 8 ? -1 : 1) * kNumbers[code % 8] * e4m3(scales[(r * columns + c) / 16]) /
               48;
      },
      0.5 / 127 + 1e-3);
}

struct Gptq {
  std::size_t rows = 16, columns = 64, groups = 2, bits = 4;
  std::vector<std::uint32_t> codes = codes_of(rows * columns, 16);  ///< [columns, rows]
  std::vector<std::uint32_t> zeros = codes_of(groups * rows, 15);
  std::vector<float> scales = scales_of(groups * rows);

  Folder folder(bool awq, std::uint32_t less) const {
    // AutoAWQ's order of eight outputs in a word, from its lowest bits.
    constexpr std::size_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
    Folder out;
    std::vector<std::uint32_t> words(rows * columns / 8), zero_words(groups * rows / 8);
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t r = 0; r < rows; ++r) {
        if (!awq) words[c / 8 * rows + r] |= codes[c * rows + r] << 4 * (c % 8);
      }
      for (std::size_t w = 0; awq && w < rows / 8; ++w) {
        for (std::size_t i = 0; i < 8; ++i)
          words[c * rows / 8 + w] |= codes[c * rows + w * 8 + kOrder[i]] << 4 * i;
      }
    }
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t w = 0; w < rows / 8; ++w) {
        for (std::size_t i = 0; i < 8; ++i) {
          const std::uint32_t zero = zeros[g * rows + w * 8 + (awq ? kOrder[i] : i)];
          zero_words[g * rows / 8 + w] |= ((zero - less) & 15) << 4 * i;
        }
      }
    }
    if (awq) {
      out.add(".qweight", TensorType::i32, {columns, rows / 8}, words);
    } else {
      out.add(".qweight", TensorType::i32, {columns / 8, rows}, words);
    }
    out.add(".qzeros", TensorType::i32, {groups, rows / 8}, zero_words);
    out.add_floats(".scales", {groups, rows}, scales);
    return out;
  }
  double number(std::size_t r, std::size_t c, std::size_t group) const {
    return (double(codes[c * rows + r]) - zeros[group * rows + r]) *
           double{scales[group * rows + r]};
  }
};

TEST(PackedWeights, GptqAndAwqKeepTheirCodes) {
  const Gptq of;
  const auto expected = [&](std::size_t r, std::size_t c) { return of.number(r, c, c / 32); };
  const Shape shape = {of.rows, of.columns};
  expect_numbers(*of.folder(true, 0).unpack(), TensorType::q4_1, shape, expected);
  expect_numbers(*of.folder(false, 1).unpack(true), TensorType::q4_1, shape, expected);
  expect_numbers(*of.folder(false, 0).unpack(false), TensorType::q4_1, shape, expected);
}

TEST(PackedWeights, GptqInTheOrderOfActivationsIsDecoded) {
  const Gptq of;
  Folder folder = of.folder(false, 1);
  std::vector<std::int32_t> groups;
  for (std::size_t c = 0; c < of.columns; ++c) groups.push_back(c * 7 % 3 == 0);
  folder.add(".g_idx", TensorType::i32, {of.columns}, groups);
  expect_numbers(
      *folder.unpack(), TensorType::q8_0, {of.rows, of.columns},
      [&](std::size_t r, std::size_t c) {
        return of.number(r, c, static_cast<std::size_t>(groups[c]));
      },
      0.5 / 127 + 1e-3);
}

TEST(PackedWeights, OthersAreLeftAlone) {
  Folder folder;
  EXPECT_FALSE(folder.unpack());
  folder.add_floats(".weight", {2, 32}, std::vector<float>(64));
  EXPECT_FALSE(folder.unpack());
  folder.add_floats(".weight_scale", {1}, {1.0f});
  EXPECT_FALSE(folder.unpack());
}

std::string refusal(const Folder& folder) {
  try {
    folder.unpack();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PackedWeights, ShapesThatDoNotGoTogetherAreRefused) {
  using testing::HasSubstr;
  Gptq of;
  Folder folder = of.folder(false, 1);
  folder.add_floats(".scales", {3, of.rows}, std::vector<float>(3 * of.rows));
  EXPECT_THAT(refusal(folder), HasSubstr("model: the tensor 'w.qweight'"));
  folder = of.folder(false, 1);
  folder.add(".g_idx", TensorType::i32, {of.columns}, std::vector<std::int32_t>(of.columns, 2));
  EXPECT_THAT(refusal(folder), HasSubstr("names group 2 of 2"));
  folder = {};
  folder.add(".weight", TensorType::f8_e4m3, {2, 40}, e4m3_codes(80));
  folder.add_floats(".weight_scale", {1}, {1.0f});
  EXPECT_THAT(refusal(folder), HasSubstr("40 columns"));
  folder.add_floats(".weight_scale", {3}, {1, 1, 1});
  EXPECT_THAT(refusal(folder), HasSubstr("w.weight"));
  folder = {};
  folder.add(".weight_packed", TensorType::i32, {2, 4}, std::vector<std::uint32_t>(8));
  folder.add_floats(".weight_scale", {1}, {1.0f});
  EXPECT_THAT(refusal(folder), HasSubstr("'w.weight_shape' is missing"));
}

}  // namespace
}  // namespace ballast
