// Prefetching of stored rows, evenly over the work on the rows before them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/kernels/attention_kernels.h"
#include "ballast/storage.h"
#include "simd/cpu.h"
#include "simd/inline.h"
#include "simd/prefetch.h"

namespace ballast::kernels {

inline constexpr std::size_t kLine = 64;  ///< bytes of a cache line

/// The cache that lines are prefetched into. L2 drops prefetches when it has many outstanding; L1
/// has fewer miss buffers. Which is faster depends on the processor (prefetches_to_l1()).
enum class CacheLevel {
  l1,
  l2,      ///< and from L2 into L1 shortly before use, which repeats dropped prefetches
  either,  ///< decided at each prefetch: keeps one copy of a kernel instead of two
};

/// Calls run.operator()<CacheLevel::l1 or CacheLevel::l2>(), whichever suits this processor.
template <typename Run>
void for_cache_level(const Run& run) {
  if (prefetches_to_l1()) {
    run.template operator()<CacheLevel::l1>();
  } else {
    run.template operator()<CacheLevel::l2>();
  }
}

/// f32 rows are consumed faster than they arrive; lines prefetched a block ahead are partly
/// evicted. Only the first kLead bytes of the next block are prefetched, the rest during its use.
inline constexpr std::size_t kLead = std::size_t{8} << 10;
inline bool has_lead(const RowsView& rows) { return rows.type == StorageType::f32; }

/// Rows of a block that are cached together, so that several passes may read them. Half a lead for
/// rows that have one: the next half arrives meanwhile.
inline std::size_t rows_together(const RowsView& rows) {
  if (!has_lead(rows)) return kEntryBlock;
  return std::max<std::size_t>(kLead / 2 / std::max<std::size_t>(rows.stride, 1), 1);
}

/// Prefetches the next block, or its lead, one line for each line of work on the present block.
class Prefetcher {
 public:
  static constexpr std::size_t kSoon = std::size_t{3} << 10;  ///< bytes from L2→L1 prefetch to use

  /// range: null when nothing is prefetched. work: lines of the present rows. Lines beyond `work`
  /// and all scales are prefetched at once.
  Prefetcher(const RowsView& present, const PrefetchRange* range, std::size_t work) {
    const auto here = reinterpret_cast<std::uintptr_t>(this);
    now_ = then_ = {here, here};
    if (range == nullptr || range->rows.rows == 0) return;
    const RowsView& rows = range->rows;
    prefetch_all(rows.scales, rows.rows * row_scales(rows.type, rows.dim) * sizeof(std::uint16_t));
    const std::size_t bytes = row_bytes(rows.type, rows.dim);
    const std::size_t present_bytes = size(present);
    to_soon_ = address(present.data) + kSoon - address(rows.data);
    later_ = address(rows.data) + present_bytes - std::min(present_bytes, kSoon);
    to_later_ = address(range->next.data) + kSoon - present_bytes - address(rows.data);
    // Rows with gaps of a line or more are prefetched at once, row by row.
    const bool apart = rows.stride >= bytes + kLine;
    for (std::size_t r = 0; apart && r < rows.rows; ++r) {
      prefetch_all(rows.data + r * rows.stride, bytes);
    }
    std::size_t first = apart ? 0 : size(rows), rest = 0;
    if (has_lead(rows)) first = std::min(first, kLead);
    if (has_lead(present)) {
      rest = present_bytes - std::min(present_bytes, kLead);
      now_ = from(present.data, present_bytes - rest, present_bytes);
    }
    const std::size_t at_once =
        std::min(first, rest + first - std::min(rest + first, work * kLine));
    if (at_once > 0) prefetch_all(rows.data, at_once);
    then_ = from(rows.data, at_once, first);
    if (rest == 0) now_ = then_;
  }
  /// Takes the next n lines and returns the address of the first. Prefetch them one by one, evenly
  /// over the work: bursts leave memory idle between them and delay all loads behind them.
  template <CacheLevel kLevel = CacheLevel::either>
  BALLAST_INLINE std::uintptr_t lines(std::size_t n) {
    const std::uintptr_t begin = now_.begin;
    if (kLevel == CacheLevel::l2 && begin >= later_) to_soon_ = to_later_;
    now_.begin += n * kLine;
    if (now_.begin >= now_.end) [[unlikely]] {
      now_ = then_;
      then_.begin = then_.end;
    }
    return begin;
  }
  /// The address read kSoon bytes after the work at which `line`, taken with
  /// lines<CacheLevel::l2>(), is prefetched: in the present rows, or past their end in range->next.
  BALLAST_INLINE std::uintptr_t soon(std::uintptr_t line) const { return line + to_soon_; }
  /// Prefetches line i of those that lines() has returned.
  template <CacheLevel kLevel = CacheLevel::either>
  BALLAST_INLINE void fetch(std::uintptr_t lines, std::size_t i) const {
    const auto* line = reinterpret_cast<const void*>(lines + i * kLine);
    if (kLevel == CacheLevel::l1 || (kLevel == CacheLevel::either && to_l1_)) {
      prefetch_to_l1(line);
    } else {
      prefetch(line);
    }
    if constexpr (kLevel == CacheLevel::l2) {
      prefetch_to_l1(reinterpret_cast<const void*>(soon(lines + i * kLine)));
    }
  }

 private:
  struct Bytes {
    std::uintptr_t begin, end;
  };

  static std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }
  static Bytes from(const std::byte* data, std::size_t begin, std::size_t end) {
    return {address(data) + begin, address(data) + end};
  }
  // Bytes of a block.
  static std::size_t size(const RowsView& rows) {
    if (rows.rows == 0) return 0;
    return (rows.rows - 1) * rows.stride + row_bytes(rows.type, rows.dim);
  }
  void prefetch_all(const void* data, std::size_t bytes) const {
    auto at = reinterpret_cast<std::uintptr_t>(data);
    const std::uintptr_t end = at + bytes;
    for (; at + 4 * kLine <= end; at += 4 * kLine) {
      for (std::size_t i = 0; i < 4; ++i) fetch(at, i);
      keep_loop();
    }
    for (; at < end; at += kLine) {
      fetch(at, 0);
      keep_loop();
    }
  }
  // GCC removes loops that only prefetch.
  BALLAST_INLINE static void keep_loop() { asm volatile(""); }

  Bytes now_, then_;
  std::uintptr_t to_soon_ = 0;  // from a prefetched line to the bytes needed soon
  std::uintptr_t later_ = ~std::uintptr_t{0}, to_later_ = 0;  // to_soon_ from this line on
  bool to_l1_ = prefetches_to_l1();
};

/// Paces a Prefetcher over work done in steps of kBytes of the present rows, each in kParts parts:
/// one line for each line of work; shorter steps take one every few steps.
template <std::size_t kBytes, std::size_t kParts>
class PrefetchPacer {
 public:
  /// steps: of all the work.
  PrefetchPacer(const RowsView& present, const PrefetchRange* range, std::size_t steps)
      : prefetcher_(present, range, (steps + kEvery - 1) / kEvery * kLines) {}
  BALLAST_INLINE void step() {
    if (++steps_ % kEvery == 0) lines_ = prefetcher_.lines(kLines);
  }
  BALLAST_INLINE void part(std::size_t p) const {
    for (std::size_t i = p * kLines / kParts; i < (p + 1) * kLines / kParts; ++i) {
      prefetcher_.fetch(lines_, i);
    }
  }

 private:
  static constexpr std::size_t kLines = std::max<std::size_t>(kBytes / kLine, 1);
  static constexpr std::size_t kEvery = std::max<std::size_t>(kLine / kBytes, 1);

  Prefetcher prefetcher_;
  std::size_t steps_ = kEvery - 1;
  std::uintptr_t lines_ = 0;
};

}  // namespace ballast::kernels
