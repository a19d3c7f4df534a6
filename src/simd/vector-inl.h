// Vector functions shared by several kernels. Included once per Highway target, inside
// HWY_NAMESPACE.
#if defined(BALLAST_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KERNELS_VECTOR_INL_H_
#undef BALLAST_KERNELS_VECTOR_INL_H_
#else
#define BALLAST_KERNELS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "simd/inline.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that two vectors never exceed a quantization group.
using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());
using IntTag = hn::RebindToSigned<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;

/// action(0) … action(N − 1) with constant indices, so that arrays of vectors stay in registers.
/// Actions are lambdas with BALLAST_INLINE_LAMBDA.
template <std::size_t N, typename Action>
HWY_INLINE void unroll(const Action& action) {
  [&]<std::size_t... I>(std::index_sequence<I...>) BALLAST_INLINE_LAMBDA {
    (action(std::integral_constant<std::size_t, I>()), ...);
  }
  (std::make_index_sequence<N>());
}

/// e^x within 1.5 units in the last place; 0 below the smallest normal number, +infinity above the
/// largest, NaN for NaN; exactly 1 at 0.
HWY_INLINE FloatVec exp(FloatVec x) {
  const FloatTag d;
  const WordTag du;
  // x = n ln 2 + r. Adding 1.5·2^23 leaves the integer n in the low bits of the sum.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln 2 in two parts; the first has few bits, so that its product with n is exact without FMA.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // e^r = 1 + r + r² g(r); g interpolates at Chebyshev nodes of |r| <= ln 2 / 2.
  auto g = hn::Set(d, 0.0013926184037700295f);
  g = hn::MulAdd(g, r, hn::Set(d, 0.008363178931176662f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.041666556149721146f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.16666576266288757f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.5f));
  const auto one = hn::Set(d, 1.0f);
  const auto p = hn::MulAdd(hn::Mul(r, r), g, hn::Add(r, one));
  // Multiplies by 2^n by adding n to the exponent.
  auto y = hn::BitCast(d, hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
  y = hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.3365f)), hn::Zero(d), y);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.7228f)),
                        hn::Set(d, std::numeric_limits<float>::infinity()), y);
}

/// e^x for x below 88: less work than exp(), for weights relative to the largest of them. Relative
/// error below 2e-7 + 2e-8 |x|; without fused multiply-adds 2e-7 + 1e-7 |x|. 0 below -87.3, NaN for
/// NaN; exactly 1 at 0.
HWY_INLINE FloatVec exp_of_small(FloatVec x) {
  const FloatTag d;
  const auto log2e = hn::Set(d, 1.44269504f);
  const auto least = hn::Set(d, -87.3365f);
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  // x / ln 2 = n + r, where n is a multiple of 1/16: adding 1.5·2^19 leaves its sixteenths in the
  // lowest bits, whose last four choose among the sixteen roots, which are one vector. All of them
  // are added to the exponent, four places below it: from that the roots have their own number
  // subtracted.
  alignas(64) static constexpr auto kRoots = [] {
    constexpr float kPowers[16] = {1.0f,        1.04427378f, 1.09050773f, 1.13878863f,
                                   1.18920712f, 1.24185781f, 1.29683955f, 1.35425555f,
                                   1.41421356f, 1.47682615f, 1.54221083f, 1.61049033f,
                                   1.68179283f, 1.75625216f, 1.83400809f, 1.91520656f};
    std::array<std::uint32_t, 16> roots{};
    for (std::uint32_t i = 0; i < 16; ++i) {
      roots[i] = std::bit_cast<std::uint32_t>(kPowers[i]) - (i << 19);
    }
    return roots;
  }();
  const WordTag du;
  const auto magic = hn::Set(d, 786432.0f);
  const auto shifted = hn::MulAdd(x, log2e, magic);
  const auto n = hn::Sub(shifted, magic);
  const auto r = hn::MulSub(x, log2e, n);
  const hn::Vec<WordTag> root{
      _mm512_permutexvar_epi32(_mm512_castps_si512(shifted.raw), _mm512_load_si512(kRoots.data()))};
  // 2^n.
  const auto power = hn::BitCast(d, hn::Add(root, hn::ShiftLeft<19>(hn::BitCast(du, shifted))));
  // 2^r = 1 + r g(r) for |r| <= 1/32, with an error of 3e-9.
  auto g = hn::MulAdd(r, hn::Set(d, 0.0555054108f), hn::Set(d, 0.2402335514f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.6931471804f));
  const __mmask16 normal = _mm512_cmp_ps_mask(x.raw, least.raw, _CMP_NLT_UQ);
  return FloatVec{_mm512_maskz_fmadd_ps(normal, hn::Mul(power, r).raw, g.raw, power.raw)};
#else
  // x / ln 2 = n + r.
  const WordTag du;
  const auto magic = hn::Set(d, 12582912.0f);  // as in exp()
  const auto shifted = hn::MulAdd(x, log2e, magic);
  const auto n = hn::Sub(shifted, magic);
  const auto r = hn::MulSub(x, log2e, n);
  // 2^r = 1 + r g(r): of all g of this degree the one with the least relative error, 2.6e-9.
  auto g = hn::Set(d, 0.00015594677824992687f);
  g = hn::MulAdd(g, r, hn::Set(d, 0.0013406643411144614f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.009617692790925503f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.055503103882074356f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.24022652208805084f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.6931472420692444f));
  const auto p = hn::MulAdd(g, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const auto y = hn::BitCast(d, hn::Add(hn::BitCast(du, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, least), y);
#endif
}

/// tanh x within about 2 units in the last place.
HWY_INLINE FloatVec tanh(FloatVec x) {
  const FloatTag d;
  // Near 0 the exponential form cancels: there x + x³ g(x²).
  const auto z = hn::Mul(x, x);
  auto g = hn::Set(d, 0.002292744815349579f);
  g = hn::MulAdd(g, z, hn::Set(d, -0.008343945257365704f));
  g = hn::MulAdd(g, z, hn::Set(d, 0.02176891826093197f));
  g = hn::MulAdd(g, z, hn::Set(d, -0.053959257900714874f));
  g = hn::MulAdd(g, z, hn::Set(d, 0.13333304226398468f));
  g = hn::MulAdd(g, z, hn::Set(d, -0.3333333432674408f));
  const auto small = hn::MulAdd(hn::Mul(x, z), g, x);
  const auto one = hn::Set(d, 1.0f);
  const auto magnitude = hn::Abs(x);
  const auto e = exp(hn::Add(magnitude, magnitude));
  const auto big = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one))), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, big);
}

/// Writes the reduction of the lanes of each of four vectors to out[0..3]. The order of reduction
/// is the same for every argument.
template <class D, class V, class Combine>
HWY_INLINE void store_four_combined(D d, V v0, V v1, V v2, V v3,
                                    [[maybe_unused]] const Combine& combine, float* out) {
#if HWY_TARGET == HWY_SCALAR
  hn::StoreU(v0, d, out);
  hn::StoreU(v1, d, out + 1);
  hn::StoreU(v2, d, out + 2);
  hn::StoreU(v3, d, out + 3);
#else
  const auto v02 = combine(hn::InterleaveLower(d, v0, v2), hn::InterleaveUpper(d, v0, v2));
  const auto v13 = combine(hn::InterleaveLower(d, v1, v3), hn::InterleaveUpper(d, v1, v3));
  const auto all = combine(hn::InterleaveLower(d, v02, v13), hn::InterleaveUpper(d, v02, v13));
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(all, d, out);
  } else {
    const hn::Half<D> dh;
    const auto half = combine(hn::LowerHalf(dh, all), hn::UpperHalf(dh, all));
    if constexpr (hn::MaxLanes(D()) == 8) {
      hn::StoreU(half, dh, out);
    } else {
      const hn::Half<decltype(dh)> dq;
      hn::StoreU(combine(hn::LowerHalf(dq, half), hn::UpperHalf(dq, half)), dq, out);
    }
  }
#endif
}
template <class D, class V>
HWY_INLINE void store_four_sums(D d, V v0, V v1, V v2, V v3, float* out) {
  const auto add = [](auto a, auto b) BALLAST_INLINE_LAMBDA { return hn::Add(a, b); };
  store_four_combined(d, v0, v1, v2, v3, add, out);
}

/// Broadcasts the element at p to every lane through an integer broadcast: a float broadcast
/// occupies the shuffle unit on Zen 4.
HWY_INLINE FloatVec everywhere(const float* p) {
  std::int32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return hn::BitCast(FloatTag(), hn::Set(IntTag(), bits));
}

/// The sum of the lanes.
HWY_INLINE float sum_lanes(FloatVec v) { return hn::GetLane(hn::SumOfLanes(FloatTag(), v)); }

/// The first `count` (below kLanes) floats at p, zeros after; reads no other memory.
HWY_INLINE FloatVec load_first(const float* p, std::size_t count) {
  HWY_ALIGN float buffer[kLanes] = {};
  std::memcpy(buffer, p, count * sizeof(float));
  return hn::Load(FloatTag(), buffer);
}

/// Even and odd elements of 2 kLanes bf16 elements, as float32.
HWY_INLINE void load_bf16_pairs(const std::byte* p, FloatVec& even, FloatVec& odd) {
  const FloatTag d;
  const WordTag du;
  const auto words = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(p));
  even = hn::BitCast(d, hn::ShiftLeft<16>(words));
  odd = hn::BitCast(d, hn::And(words, hn::Set(du, 0xFFFF0000u)));
}

/// kLanes finite float16 elements, as float32.
HWY_INLINE FloatVec load_f16(const std::byte* p) {
  const FloatTag d;
#if HWY_TARGET == HWY_SCALAR
  // A multiplication corrects the exponent's bias, for subnormal elements too.
  const WordTag du;
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const auto word = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  const auto sign = hn::ShiftLeft<16>(hn::And(word, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(word, hn::Set(du, 0x7FFFu)));
  const auto scaled = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f));
  return hn::BitCast(d, hn::Or(hn::BitCast(du, scaled), sign));
#else
  const hn::Rebind<hwy::float16_t, FloatTag> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#endif
}

/// kLanes signed bytes, as float32.
HWY_INLINE FloatVec load_i8(const std::byte* p) {
  const hn::Rebind<std::int8_t, FloatTag> d8;
  const auto bytes = hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(p));
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), bytes));
}

// 2 kLanes int16 elements, for pairwise multiply-adds.
#if HWY_TARGET == HWY_SCALAR
struct ShortVec {
  std::int32_t first, second;
};
HWY_INLINE ShortVec load_i8_as_i16(const std::byte* p) {
  return {static_cast<std::int8_t>(p[0]), static_cast<std::int8_t>(p[1])};
}
HWY_INLINE ShortVec load_i16(const std::int16_t* p) { return {p[0], p[1]}; }
template <std::size_t kStep>
HWY_INLINE ShortVec load_nibbles_as_i16(const std::byte* group) {
  constexpr int kShift = kStep < 8 ? 0 : 4;
  const auto number = [&](std::size_t i) {
    return static_cast<std::int32_t>(group[kStep % 8 * 2 + i] >> kShift & std::byte{15});
  };
  return {number(0), number(1)};
}
HWY_INLINE hn::Vec<IntTag> add_products(hn::Vec<IntTag> sum, ShortVec a, ShortVec b) {
  return hn::Add(sum, hn::Set(IntTag(), a.first * b.first + a.second * b.second));
}
#else
using ShortTag = hn::Repartition<std::int16_t, FloatTag>;
using ShortVec = hn::Vec<ShortTag>;
HWY_INLINE ShortVec load_i8_as_i16(const std::byte* p) {
  const hn::Rebind<std::int8_t, ShortTag> d8;
  return hn::PromoteTo(ShortTag(), hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(p)));
}
HWY_INLINE ShortVec load_i16(const std::int16_t* p) { return hn::LoadU(ShortTag(), p); }
// Step kStep of a group of 32 elements in 16 bytes: the low nibbles of all, then the high ones.
template <std::size_t kStep>
HWY_INLINE ShortVec load_nibbles_as_i16(const std::byte* group) {
  constexpr std::size_t kCount = 2 * kLanes, kBytes = 16, kAt = kStep * kCount;
  const auto load = [](auto d, const std::byte* at) BALLAST_INLINE_LAMBDA {
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    return hn::PromoteTo(d, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(at)));
  };
  if constexpr (kCount > kBytes) {
    const hn::Half<ShortTag> half;
    const auto bytes = load(half, group);
    return hn::Combine(ShortTag(), hn::ShiftRight<4>(bytes), hn::And(bytes, hn::Set(half, 15)));
  } else {
    const auto bytes = load(ShortTag(), group + kAt % kBytes);
    return kAt < kBytes ? hn::And(bytes, hn::Set(ShortTag(), 15)) : hn::ShiftRight<4>(bytes);
  }
}
HWY_INLINE hn::Vec<IntTag> add_products(hn::Vec<IntTag> sum, ShortVec a, ShortVec b) {
#if HWY_ARCH_X86
  auto unused = hn::Zero(IntTag());
  return hn::ReorderWidenMulAccumulate(IntTag(), a, b, sum, unused);
#else
  // Elsewhere that product leaves half of the sums in `unused`, and pairs are others.
  const auto a32 = hn::BitCast(IntTag(), a), b32 = hn::BitCast(IntTag(), b);
  const auto low = [](auto x) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(x)); };
  return hn::Add(sum, hn::Add(hn::Mul(low(a32), low(b32)),
                              hn::Mul(hn::ShiftRight<16>(a32), hn::ShiftRight<16>(b32))));
#endif
}
#endif

/// The low and the high nibbles of kLanes bytes, as float32.
HWY_INLINE void load_nibbles(const std::byte* p, FloatVec& low, FloatVec& high) {
  const FloatTag d;
  const IntTag di;
  const hn::Rebind<std::uint8_t, FloatTag> d8;
  const auto word = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(p)));
  low = hn::ConvertTo(d, hn::And(word, hn::Set(di, 15)));
  high = hn::ConvertTo(d, hn::ShiftRight<4>(word));
}

/// out[i] = bf16 element i as float32.
HWY_INLINE void decode_bf16(const std::uint16_t* words, std::size_t count, float* out) {
  const FloatTag d;
  const WordTag du;
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto word = hn::PromoteTo(du, hn::LoadU(d16, words + i));
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(word)), d, out + i);
  }
  for (; i < count; ++i) {
    const std::uint32_t bits = std::uint32_t{words[i]} << 16;
    std::memcpy(out + i, &bits, sizeof(bits));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#endif
