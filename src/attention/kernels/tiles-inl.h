// What the QK and AV kernels of every target share: tile sizes and the reader of a storage type.
#if defined(BALLAST_KERNELS_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KERNELS_TILES_INL_H_
#undef BALLAST_KERNELS_TILES_INL_H_
#else
#define BALLAST_KERNELS_TILES_INL_H_
#endif

#include "attention/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::kernels {
namespace HWY_NAMESPACE {

// Registers limit a tile: 32 with AVX-512, 16 before.
inline constexpr bool kManyRegisters = kLanes == 16;
// Queries that share each row read, …
inline constexpr std::size_t kTile = 4;
// … more of many, whose rows are float32: then sums take all registers but a few, and what they are
// multiplied with is loaded where it is used …
inline constexpr std::size_t kManyTile = 6, kManyFrom = 2 * kManyTile;
template <template <class> class Work, class... Args>
HWY_INLINE void for_type(StorageType type, Args... args) {
  switch (type) {
    case StorageType::f32:
      return Work<ReadF32>::run(args...);
    case StorageType::bf16:
      return Work<ReadBf16>::run(args...);
    case StorageType::f16:
      return Work<ReadF16>::run(args...);
    case StorageType::int8:
      return Work<ReadInt8>::run(args...);
    case StorageType::int4:
      return Work<ReadInt4>::run(args...);
    case StorageType::q4:
    case StorageType::q3:
    case StorageType::q2:
      break;  // see codes-inl.h
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::kernels
HWY_AFTER_NAMESPACE();

#endif
