#include "ballast/engine/tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/ranges.h>

#include "base/fail.h"
#include "formats/half.h"
#include "formats/quant.h"

namespace ballast {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie in memory");

struct TypeFacts {
  std::string_view name;
  std::size_t elements;  ///< in one block
  std::size_t bytes;     ///< of one block
};

constexpr TypeFacts facts_of(std::string_view name, const quant::BlockLayout& layout) {
  return {name, static_cast<std::size_t>(layout.elements), static_cast<std::size_t>(layout.bytes)};
}

// In the order of TensorType.
constexpr std::array<TypeFacts, 37> kTypes = {{{"F32", 1, 4},
                                               {"F64", 1, 8},
                                               {"F16", 1, 2},
                                               {"BF16", 1, 2},
                                               {"I64", 1, 8},
                                               {"I32", 1, 4},
                                               {"I16", 1, 2},
                                               {"I8", 1, 1},
                                               {"U64", 1, 8},
                                               {"U32", 1, 4},
                                               {"U16", 1, 2},
                                               {"U8", 1, 1},
                                               {"BOOL", 1, 1},
                                               {"F8_E4M3", 1, 1},
                                               facts_of("Q4_0", quant::kQ4_0),
                                               facts_of("Q4_1", quant::kQ4_1),
                                               facts_of("Q5_0", quant::kQ5_0),
                                               facts_of("Q5_1", quant::kQ5_1),
                                               facts_of("Q8_0", quant::kQ8_0),
                                               facts_of("Q2_K", quant::kQ2_K),
                                               facts_of("Q3_K", quant::kQ3_K),
                                               facts_of("Q4_K", quant::kQ4_K),
                                               facts_of("Q5_K", quant::kQ5_K),
                                               facts_of("Q6_K", quant::kQ6_K),
                                               facts_of("IQ4_NL", quant::kIq4Nl),
                                               facts_of("FP4", quant::kFp4),
                                               {"IQ4_XS", 256, 136},
                                               {"IQ3_XXS", 256, 98},
                                               {"IQ3_S", 256, 110},
                                               {"IQ2_XXS", 256, 66},
                                               {"IQ2_XS", 256, 74},
                                               {"IQ2_S", 256, 82},
                                               {"IQ1_S", 256, 50},
                                               {"IQ1_M", 256, 56},
                                               {"MXFP4", 32, 17},
                                               {"TQ1_0", 256, 54},
                                               {"TQ2_0", 256, 66}}};

const TypeFacts& facts(TensorType type) { return kTypes[static_cast<std::size_t>(type)]; }

/// Calls convert(stored number) for each; the data need not be aligned.
template <typename Stored, typename Convert>
void decode_each(const std::byte* data, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, data + i * sizeof(Stored), sizeof(Stored));
    out[i] = convert(stored);
  }
}

template <typename Stored>
void decode_as(const std::byte* data, std::span<float> out) {
  decode_each<Stored>(data, out, [](Stored x) { return static_cast<float>(x); });
}

template <typename Stored, typename Convert>
void encode_each(std::span<const float> numbers, std::byte* out, Convert convert) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Stored stored = convert(numbers[i]);
    std::memcpy(out + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

template <typename Stored>
void encode_integers(std::span<const float> numbers, std::byte* out) {
  encode_each<Stored>(numbers, out, [](float x) {
    // 2^digits is exact in floating point; the largest integer may not be.
    using Limits = std::numeric_limits<Stored>;
    if (std::isnan(x)) return Stored{0};
    float rounded = std::nearbyint(x);
    if (rounded >= std::ldexp(1.0f, Limits::digits)) return Limits::max();
    if (rounded < static_cast<float>(Limits::min())) return Limits::min();
    return static_cast<Stored>(rounded);
  });
}

}  // namespace

std::string_view to_string(TensorType type) { return facts(type).name; }
bool is_quantized(TensorType type) { return type >= TensorType::q4_0; }
TensorType loaded_as(TensorType type) {
  if (type == TensorType::f8_e4m3) return TensorType::bf16;
  if (type <= TensorType::fp4) return type;
  if (type == TensorType::iq4_xs) return TensorType::iq4_nl;
  return type == TensorType::mxfp4 ? TensorType::fp4 : TensorType::q8_0;
}
std::size_t block_size(TensorType type) { return facts(type).elements; }
std::size_t block_bytes(TensorType type) { return facts(type).bytes; }

std::size_t tensor_bytes(TensorType type, std::size_t count) {
  const TypeFacts& f = facts(type);
  require(count % f.elements == 0, "{} numbers do not fill {} blocks, which hold {} each", count,
          f.name, f.elements);
  std::size_t bytes;
  if (__builtin_mul_overflow(count / f.elements, f.bytes, &bytes)) {
    fail("{} numbers of type {} take more bytes than a machine can address", count, f.name);
  }
  return bytes;
}

std::size_t element_count(std::span<const std::size_t> shape) {
  std::size_t count = 1;
  // A dimension of zero makes the product zero, even after an overflow.
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  for (std::size_t dim : shape) {
    if (__builtin_mul_overflow(count, dim, &count)) fail("the dimensions multiply to over 2^64");
  }
  return count;
}

std::string to_string(std::span<const std::size_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::size_t TensorView::size() const { return element_count(shape); }

void decode(TensorType type, std::span<const std::byte> data, std::span<float> out) {
  std::size_t needed = tensor_bytes(type, out.size());
  require(data.size() >= needed, "{} numbers of type {} need {} bytes, not {}", out.size(),
          to_string(type), needed, data.size());
  const std::byte* p = data.data();
  if (is_quantized(type)) {
    auto decode_block = block_codec(type).decode;
    const TypeFacts& f = facts(type);
    for (std::size_t b = 0; b * f.elements < out.size(); ++b) {
      decode_block(reinterpret_cast<const std::uint8_t*>(p) + b * f.bytes,
                   out.data() + b * f.elements);
    }
    return;
  }
  switch (type) {
    case TensorType::f64:
      return decode_as<double>(p, out);
    case TensorType::f32:
      if (!out.empty()) std::memcpy(out.data(), p, needed);
      return;
    case TensorType::f16:
      return decode_each<std::uint16_t>(p, out, f16_to_float);
    case TensorType::bf16:
      return decode_each<std::uint16_t>(p, out, bf16_to_float);
    case TensorType::i64:
      return decode_as<std::int64_t>(p, out);
    case TensorType::i32:
      return decode_as<std::int32_t>(p, out);
    case TensorType::i16:
      return decode_as<std::int16_t>(p, out);
    case TensorType::i8:
      return decode_as<std::int8_t>(p, out);
    case TensorType::u64:
      return decode_as<std::uint64_t>(p, out);
    case TensorType::u32:
      return decode_as<std::uint32_t>(p, out);
    case TensorType::u16:
      return decode_as<std::uint16_t>(p, out);
    case TensorType::u8:
      return decode_as<std::uint8_t>(p, out);
    case TensorType::boolean:
      return decode_each<std::uint8_t>(p, out, [](std::uint8_t x) { return x != 0 ? 1.0f : 0.0f; });
    case TensorType::f8_e4m3:
      return decode_each<std::uint8_t>(p, out, e4m3_to_float);
    default:
      break;  // quantized, done above
  }
}

std::vector<float> to_float(const TensorView& tensor) {
  std::vector<float> out(tensor.size());
  decode(tensor.type, tensor.data, out);
  return out;
}

void decode_row(const TensorView& tensor, std::size_t i, std::span<float> out) {
  require(tensor.shape.size() == 2 && tensor.shape[1] == out.size() && i < tensor.shape[0],
          "tensor '{}' has no row {} of {} numbers", tensor.name, i, out.size());
  std::size_t bytes = tensor_bytes(tensor.type, out.size());
  decode(tensor.type, tensor.data.subspan(i * bytes, bytes), out);
}

void encode(TensorType type, std::span<const float> numbers, std::span<std::byte> out) {
  require(out.size() == tensor_bytes(type, numbers.size()),
          "{} numbers of type {} do not fill {} bytes", numbers.size(), to_string(type),
          out.size());
  std::byte* p = out.data();
  if (is_quantized(type)) {
    auto encode_block = block_codec(type).encode;
    require(encode_block != nullptr, "tensors of type {} can be read, not written",
            to_string(type));
    const TypeFacts& f = facts(type);
    for (std::size_t b = 0; b * f.elements < numbers.size(); ++b) {
      encode_block(numbers.data() + b * f.elements,
                   reinterpret_cast<std::uint8_t*>(p) + b * f.bytes);
    }
    return;
  }
  switch (type) {
    case TensorType::f64:
      return encode_each<double>(numbers, p, [](float x) { return static_cast<double>(x); });
    case TensorType::f32:
      return encode_each<float>(numbers, p, [](float x) { return x; });
    case TensorType::f16:
      return encode_each<std::uint16_t>(numbers, p, float_to_f16);
    case TensorType::bf16:
      return encode_each<std::uint16_t>(numbers, p, float_to_bf16);
    case TensorType::i64:
      return encode_integers<std::int64_t>(numbers, p);
    case TensorType::i32:
      return encode_integers<std::int32_t>(numbers, p);
    case TensorType::i16:
      return encode_integers<std::int16_t>(numbers, p);
    case TensorType::i8:
      return encode_integers<std::int8_t>(numbers, p);
    case TensorType::u64:
      return encode_integers<std::uint64_t>(numbers, p);
    case TensorType::u32:
      return encode_integers<std::uint32_t>(numbers, p);
    case TensorType::u16:
      return encode_integers<std::uint16_t>(numbers, p);
    case TensorType::u8:
      return encode_integers<std::uint8_t>(numbers, p);
    case TensorType::boolean:
      return encode_each<std::uint8_t>(
          numbers, p, [](float x) { return static_cast<std::uint8_t>(x != 0.0f); });
    default:
      fail("tensors of type {} can be read, not written", to_string(type));
  }
}

std::vector<std::byte> encode(TensorType type, std::span<const float> numbers) {
  std::vector<std::byte> out(tensor_bytes(type, numbers.size()));
  encode(type, numbers, out);
  return out;
}

}  // namespace ballast
