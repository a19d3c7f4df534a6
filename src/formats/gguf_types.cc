#include "formats/gguf_types.h"

#include "base/fail.h"

namespace ballast {
namespace {

struct Known {
  std::uint32_t number;
  TensorType type;
};

constexpr Known kKnown[] = {
    {0, TensorType::f32},     {1, TensorType::f16},      {2, TensorType::q4_0},
    {3, TensorType::q4_1},    {6, TensorType::q5_0},     {7, TensorType::q5_1},
    {8, TensorType::q8_0},    {10, TensorType::q2_k},    {11, TensorType::q3_k},
    {12, TensorType::q4_k},   {13, TensorType::q5_k},    {14, TensorType::q6_k},
    {20, TensorType::iq4_nl}, {24, TensorType::i8},      {25, TensorType::i16},
    {26, TensorType::i32},    {27, TensorType::i64},     {28, TensorType::f64},
    {30, TensorType::bf16},   {23, TensorType::iq4_xs},  {18, TensorType::iq3_xxs},
    {21, TensorType::iq3_s},  {16, TensorType::iq2_xxs}, {17, TensorType::iq2_xs},
    {22, TensorType::iq2_s},  {19, TensorType::iq1_s},   {29, TensorType::iq1_m},
    {39, TensorType::mxfp4},  {34, TensorType::tq1_0},   {35, TensorType::tq2_0}};

}  // namespace

std::optional<TensorType> tensor_type_of_gguf(std::uint32_t number) {
  for (const Known& known : kKnown) {
    if (known.number == number) return known.type;
  }
  return std::nullopt;
}

std::uint32_t gguf_number_of(TensorType type) {
  for (const Known& known : kKnown) {
    if (known.type == type) return known.number;
  }
  fail("GGUF files cannot hold tensors of type {}", to_string(type));
}

std::string gguf_type_name(std::uint32_t number) {
  switch (number) {
    case 9:
      return "Q8_1";
    case 15:
      return "Q8_K";
    case 40:
      return "NVFP4";
    default:
      return fmt::format("number {}", number);
  }
}

std::size_t gguf_value_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      break;
  }
  return 0;
}

std::string_view to_string(GgufType type) {
  static constexpr std::string_view kNames[] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                "i32", "f32", "bool", "string", "array",
                                                "u64", "i64", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

}  // namespace ballast
