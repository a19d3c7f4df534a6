// One struct for each quantized type: how the integer kernels unpack its codes. Included after
// avx2-inl.h, avx512-inl.h or neon-inl.h, inside a region of that target. formats/quant_blocks.h
// has the layouts.
//
// The structs serve two ways of loading. GEMV loads the codes of one row: a vector holds
// consecutive elements. Small batches and GEMM load a row into each lane: a vector holds four
// elements of kLanes rows, Vectors<4> sixteen elements. The operations on bytes are the same.
#pragma once

#include "gemm/kernels.h"

namespace ballast::gemm::BALLAST_ISA {

template <int N>
struct Vectors {
  Vector v[N];
};

/// Bits [at, at + bits) of each byte. The mask removes what the 16-bit shift carries in from the
/// neighbouring byte.
template <int at, int bits, int N>
BALLAST_INLINE Vectors<N> bit_field(const Vectors<N>& a) {
  Vectors<N> out;
  unroll<N>([&](auto i) BALLAST_INLINE_LAMBDA {
    out.v[i] = and_bits(shift_right_16<at>(a.v[i]), broadcast_8((1 << bits) - 1));
  });
  return out;
}

/// Inserts bits [from, from + bits) of `high` into `low` at bit `to`.
template <int from, int bits, int to, int N>
BALLAST_INLINE Vectors<N> insert_bits(const Vectors<N>& low, const Vectors<N>& high) {
  constexpr int kUp = to > from ? to - from : 0, kDown = from > to ? from - to : 0;
  Vectors<N> out;
  unroll<N>([&](auto i) BALLAST_INLINE_LAMBDA {
    const Vector moved = shift_right_16<kDown>(shift_left_16<kUp>(high.v[i]));
    out.v[i] = or_masked(low.v[i], moved, broadcast_8(((1 << bits) - 1) << to));
  });
  return out;
}

/// Maps int8 to uint8 by adding 128.
template <int N>
BALLAST_INLINE Vectors<N> add_128(const Vectors<N>& a) {
  Vectors<N> out;
  unroll<N>([&](auto i) BALLAST_INLINE_LAMBDA { out.v[i] = xor_bits(a.v[i], broadcast_8(-128)); });
  return out;
}

/// Looks up each byte, 0 to 15, in a table of 16 bytes.
template <int N>
BALLAST_INLINE Vectors<N> lookup(Bits128 table, const Vectors<N>& index) {
  Vectors<N> out;
  unroll<N>([&](auto i)
                BALLAST_INLINE_LAMBDA { out.v[i] = shuffle_8(broadcast_128(table), index.v[i]); });
  return out;
}

#if defined(__x86_64__)
/// Sums four vectors horizontally: element i of each 128-bit lane is the lane's sum of v[i].
BALLAST_INLINE Vector hadd_4(const Vector (&v)[4]) {
  const Vector a = add_32(unpack_low_32(v[0], v[1]), unpack_high_32(v[0], v[1]));
  const Vector b = add_32(unpack_low_32(v[2], v[3]), unpack_high_32(v[2], v[3]));
  return add_32(unpack_low_64(a, b), unpack_high_64(a, b));
}
#endif

// Block32 types: blocks of 32 elements, each a fold.
//   kCodes         byte offsets of the 16-byte pieces that hold the codes
//   kFifthBits     byte offset of the fifth bits, 0 if there are none
//   codes<h>(raw, fifth)   elements 16h to 16h + 15 as uint8, kZeroPoint too high; raw[i] is the
//                          piece at kCodes[i], fifth.at<h>() yields the fifth bits as bit 4

template <quant::BlockLayout L>
struct Block32Type {
  static constexpr bool kIsBlock32 = true, kIsFloat = false, kHasMin = L.has_min();
  static constexpr std::size_t kElements = 32;
  static constexpr int kBytes = L.bytes, kScale = L.scale, kMin = L.min;
  static constexpr int kFolds = 8, kZeroPoint = L.zero_point, kCodes[] = {L.codes};
  static constexpr int kFifthBits = L.has_high_bits() ? L.high_bits : 0;
};

template <quant::BlockLayout L>
struct FourBitType : Block32Type<L> {
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto codes(const Raw& raw, const Fifth&) {
    return bit_field<4 * h, 4>(raw[0]);
  }
};
struct TypeQ4_0 : FourBitType<quant::kQ4_0> {};
struct TypeQ4_1 : FourBitType<quant::kQ4_1> {};

template <quant::BlockLayout L>
struct FiveBitType : Block32Type<L> {
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto codes(const Raw& raw, const Fifth& fifth) {
    return insert_bits<4, 1, 4>(bit_field<4 * h, 4>(raw[0]), fifth.template at<h>());
  }
};
struct TypeQ5_0 : FiveBitType<quant::kQ5_0> {};
struct TypeQ5_1 : FiveBitType<quant::kQ5_1> {};

/// Codes are signed: 128 makes them uint8.
struct TypeQ8_0 : Block32Type<quant::kQ8_0> {
  static constexpr int kZeroPoint = 128, kCodes[] = {quant::kQ8_0.codes, quant::kQ8_0.codes + 16};
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto codes(const Raw& raw, const Fifth&) {
    return add_128(raw[h]);
  }
};
/// 128 above the values of a table, which are signed.
struct Table128 {
  std::uint8_t values[16] = {};
  constexpr explicit Table128(const std::int8_t (&table)[16]) {
    for (int i = 0; i < 16; ++i) values[i] = static_cast<std::uint8_t>(table[i] + 128);
  }
};
template <quant::BlockLayout L, const std::int8_t (&table)[16]>
struct TableType : Block32Type<L> {
  static constexpr int kZeroPoint = 128;
  template <int h, typename Raw, typename Fifth>
  static BALLAST_INLINE auto codes(const Raw& raw, const Fifth&) {
    static constexpr Table128 kTable(table);
    return lookup(load_128(kTable.values), bit_field<4 * h, 4>(raw[0]));
  }
};
struct TypeIq4Nl : TableType<quant::kIq4Nl, quant::kIq4Values> {};
struct TypeFp4 : TableType<quant::kFp4, quant::kFp4Values> {};

// K types: blocks of 256 elements in eight chunks of 32. Each group of kGroup elements has an int8
// scale, and a uint8 minimum if kHasMin. Chunks are unpacked in pairs: chunk<j>() and the one
// kPartner behind it; the first ones are called half 0, their partners half 1.
//   kCodes         byte offsets of the 32-byte pieces that hold the codes, of half 0 and half 1
//   codes<j>(raw)  a chunk of each half as uint8 below 64, kZeroPoint too high
//   group_scales() scales and minima of the groups, a byte each
//   kFolds         2 where an int32 sum cannot hold 256 elements

template <quant::BlockLayout L>
struct KType {
  static constexpr bool kIsBlock32 = false, kIsFloat = false, kHasMin = L.has_min();
  static constexpr std::size_t kElements = 256;
  static constexpr int kBytes = L.bytes, kGroup = L.group, kScale = L.scale, kMin = L.min;
  static constexpr int kFolds = 1, kZeroPoint = L.zero_point, kPartner = 4;
};

template <typename Type>
constexpr int chunk(int j) {
  return Type::kPartner == 4 ? j : j / 2 * 4 + j % 2;
}

/// The loaded codes of one half. GEMV with AVX-512 has both in a vector instead (RowCodes).
template <typename Type, int half, int N>
struct HalfCodes {
  const Vectors<N>* v;
  BALLAST_INLINE const Vectors<N>& operator[](int i) const { return v[i]; }
  /// Piece i with the high bits of this half moved to where half 0 has them.
  BALLAST_INLINE Vectors<N> high_bits(int i) const {
    Vectors<N> out;
    unroll<N>([&](auto d) BALLAST_INLINE_LAMBDA {
      out.v[d] = shift_right_16<half * Type::kPartner>(v[i].v[d]);
    });
    return out;
  }
};

struct GroupScales {
  Bits128 scales, mins;
};

BALLAST_INLINE std::int64_t pack_64(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::int64_t>(low | std::uint64_t{high} << 32);
}

struct TypeQ2_K : KType<quant::kQ2_K> {
  static constexpr int kCodes[][2] = {{quant::kQ2_K.codes, quant::kQ2_K.codes + 32}};
  template <int j, typename Raw>
  static BALLAST_INLINE auto codes(const Raw& raw) {
    return bit_field<2 * j, 2>(raw[0]);
  }
  static BALLAST_INLINE GroupScales group_scales(Bytes p) {
    const Bits128 both = load_128(p + quant::kQ2_K.group_scales);
    return {low_4(both), high_4(both)};
  }
};

/// Bit j of a byte of high bits belongs to chunk j: half 1 uses the bits four above those of half
/// 0.
struct TypeQ3_K : KType<quant::kQ3_K> {
  static constexpr int kCodes[][2] = {{quant::kQ3_K.codes, quant::kQ3_K.codes + 32},
                                      {quant::kQ3_K.high_bits, quant::kQ3_K.high_bits}};
  template <int j, typename Raw>
  static BALLAST_INLINE auto codes(const Raw& raw) {
    return insert_bits<j, 1, 2>(bit_field<2 * j, 2>(raw[0]), raw.high_bits(1));
  }
  static BALLAST_INLINE GroupScales group_scales(Bytes p) {
    p += quant::kQ3_K.group_scales;
    const auto a = load<std::uint32_t>(p), b = load<std::uint32_t>(p + 4),
               c = load<std::uint32_t>(p + 8);
    constexpr std::uint32_t kFour = 0x0f0f0f0f, kTwo = 0x30303030;
    const Bits128 six =
        make_128(pack_64(((a >> 4) & kFour) | (c & kTwo), ((b >> 4) & kFour) | ((c >> 2) & kTwo)),
                 pack_64((a & kFour) | ((c << 4) & kTwo), (b & kFour) | ((c << 2) & kTwo)));
    return {sub_from_each_8(six, 32), zero_128()};
  }
};

/// unpack_6bit() takes all 16 bytes at the start of a block.
static_assert(quant::kQ4_K.group_scales == 4 && quant::kQ5_K.group_scales == 4);
BALLAST_INLINE GroupScales group_scales_6bit(Bytes p) {
  const Bits128 all = unpack_6bit_at(p);
  return {all, upper_64(all)};
}

struct TypeQ4_K : KType<quant::kQ4_K> {
  static constexpr int kCodes[][2] = {{quant::kQ4_K.codes, quant::kQ4_K.codes + 32},
                                      {quant::kQ4_K.codes + 64, quant::kQ4_K.codes + 96}};
  static constexpr int kPartner = 2;
  template <int j, typename Raw>
  static BALLAST_INLINE auto codes(const Raw& raw) {
    return bit_field<j % 2 * 4, 4>(raw[j / 2]);
  }
  static BALLAST_INLINE GroupScales group_scales(Bytes p) { return group_scales_6bit(p); }
};

struct TypeQ5_K : KType<quant::kQ5_K> {
  static constexpr int kCodes[][2] = {{quant::kQ5_K.codes, quant::kQ5_K.codes + 32},
                                      {quant::kQ5_K.codes + 64, quant::kQ5_K.codes + 96},
                                      {quant::kQ5_K.high_bits, quant::kQ5_K.high_bits}};
  static constexpr int kPartner = 2;
  template <int j, typename Raw>
  static BALLAST_INLINE auto codes(const Raw& raw) {
    const auto low = bit_field<j % 2 * 4, 4>(raw[j / 2]);
    return insert_bits<chunk<TypeQ5_K>(j), 1, 4>(low, raw.high_bits(2));
  }
  static BALLAST_INLINE GroupScales group_scales(Bytes p) { return group_scales_6bit(p); }
};

/// Two folds: codes up to 32, scales up to 128 and activations up to 4,095 fit int32 for 128
/// elements.
struct TypeQ6_K : KType<quant::kQ6_K> {
  static constexpr int kFolds = 2;
  static constexpr int kCodes[][2] = {{quant::kQ6_K.codes, quant::kQ6_K.codes + 64},
                                      {quant::kQ6_K.codes + 32, quant::kQ6_K.codes + 96},
                                      {quant::kQ6_K.high_bits, quant::kQ6_K.high_bits + 32}};
  template <int j, typename Raw>
  static BALLAST_INLINE auto codes(const Raw& raw) {
    return insert_bits<2 * j, 2, 4>(bit_field<j / 2 * 4, 4>(raw[j % 2]), raw[2]);
  }
  static BALLAST_INLINE GroupScales group_scales(Bytes p) {
    return {load_128(p + quant::kQ6_K.group_scales), zero_128()};
  }
};

template <typename Type>
constexpr int kCodeLoads = static_cast<int>(std::size(Type::kCodes));
/// Bytes of a row's super-block.
template <typename Type>
constexpr std::size_t kSuperblockBytes = kSuperblock / Type::kElements* Type::kBytes;

/// Calls `action` with the type's struct.
template <typename Action>
auto with_type(TensorType type, Action&& action) {
  switch (type) {
    case TensorType::q4_0:
      return action(TypeQ4_0());
    case TensorType::q4_1:
      return action(TypeQ4_1());
    case TensorType::q5_0:
      return action(TypeQ5_0());
    case TensorType::q5_1:
      return action(TypeQ5_1());
    case TensorType::q8_0:
      return action(TypeQ8_0());
    case TensorType::q2_k:
      return action(TypeQ2_K());
    case TensorType::q3_k:
      return action(TypeQ3_K());
    case TensorType::q4_k:
      return action(TypeQ4_K());
    case TensorType::q5_k:
      return action(TypeQ5_K());
    case TensorType::q6_k:
      return action(TypeQ6_K());
    case TensorType::iq4_nl:
      return action(TypeIq4Nl());
    case TensorType::fp4:
      return action(TypeFp4());
    default:
      fail("weights of type {} are not quantized", to_string(type));
  }
}

}  // namespace ballast::gemm::BALLAST_ISA
