// Asking memory for rows ahead of their use, evenly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/kernels/attention_kernels.h"
#include "ballast/storage.h"
#include "simd/cpu.h"
#include "simd/inline.h"

namespace ballast::kernels {

inline constexpr std::size_t kLine = 64;  // bytes that memory moves at once

/// The cache that lines are asked into. The second one drops requests when it has many; the first
/// has places for fewer at a time. Which is faster depends on the processor (asks_first_cache()).
enum class Into {
  first,
  second,  ///< and, shortly before their use, from there into the first, or anew what was dropped
  either,  ///< decided at each request: for kernels of which there should not be two
};

/// Calls run.operator()<Into::first or Into::second>(), as this processor has it.
template <typename Run>
void for_cache(const Run& run) {
  if (asks_first_cache()) {
    run.template operator()<Into::first>();
  } else {
    run.template operator()<Into::second>();
  }
}

/// float32 is worked on faster than memory brings it, and what is asked for a block ahead is then
/// lost again in part: of such rows only kLead bytes are, and the others while the same block is
/// worked on.
inline constexpr std::size_t kLead = std::size_t{8} << 10;
inline bool has_lead(const RowsView& rows) { return rows.type == StorageType::f32; }

/// Rows of a block that are here together, so that they may be gone over several times: of those
/// with a lead half of it, so that the next half is on its way meanwhile.
inline std::size_t rows_together(const RowsView& rows) {
  if (!has_lead(rows)) return kEntryBlock;
  return std::max<std::size_t>(kLead / 2 / std::max<std::size_t>(rows.stride, 1), 1);
}

/// Asks for rows ahead of their use, a line for each line of work: all of the next block, or of its
/// lead, while the present one is worked on.
class Upcoming {
 public:
  static constexpr std::size_t kSoon = std::size_t{3} << 10;  // bytes ahead of their use

  /// ahead: or null, when nothing is asked for: what is asked for is here already. work: lines of
  /// the present rows; what is more than that is asked for at once, and so are scales.
  Upcoming(const RowsView& present, const Ahead* ahead, std::size_t work) {
    const auto here = reinterpret_cast<std::uintptr_t>(this);
    now_ = then_ = {here, here};
    if (ahead == nullptr || ahead->asked.rows == 0) return;
    const RowsView& rows = ahead->asked;
    ask_all(rows.scales, rows.rows * row_scales(rows.type, rows.dim) * sizeof(std::uint16_t));
    const std::size_t bytes = row_bytes(rows.type, rows.dim);
    // Rows with lines between them are asked for at once, row by row.
    const std::size_t present_bytes = size(present);
    to_soon_ = address(present.data) + kSoon - address(rows.data);
    later_ = address(rows.data) + present_bytes - std::min(present_bytes, kSoon);
    to_later_ = address(ahead->next.data) + kSoon - present_bytes - address(rows.data);
    const bool apart = rows.stride >= bytes + kLine;
    for (std::size_t r = 0; apart && r < rows.rows; ++r) {
      ask_all(rows.data + r * rows.stride, bytes);
    }
    std::size_t first = apart ? 0 : size(rows), rest = 0;
    if (has_lead(rows)) first = std::min(first, kLead);
    if (has_lead(present)) {
      rest = present_bytes - std::min(present_bytes, kLead);
      now_ = from(present.data, present_bytes - rest, present_bytes);
    }
    const std::size_t at_once =
        std::min(first, rest + first - std::min(rest + first, work * kLine));
    if (at_once > 0) ask_all(rows.data, at_once);
    then_ = from(rows.data, at_once, first);
    if (rest == 0) now_ = then_;
  }
  /// The next n lines. They should be asked for one by one, evenly over the work: memory rests
  /// between bursts, and all that reads waits for a burst.
  template <Into kInto = Into::either>
  BALLAST_INLINE std::uintptr_t lines(std::size_t n) {
    const std::uintptr_t begin = now_.begin;
    if (kInto == Into::second && begin >= later_) to_soon_ = to_later_;
    now_.begin += n * kLine;
    if (now_.begin >= now_.end) [[unlikely]] {
      now_ = then_;
      then_.begin = then_.end;
    }
    return begin;
  }
  /// What is read kSoon bytes later, when `line`, of those that lines<Into::second>() has given, is
  /// asked for: of the present rows, or behind their end of those that are read after them.
  BALLAST_INLINE std::uintptr_t soon(std::uintptr_t line) const { return line + to_soon_; }
  template <Into kInto = Into::either>
  BALLAST_INLINE void ask(std::uintptr_t lines, std::size_t i) const {
    const auto* line = reinterpret_cast<const void*>(lines + i * kLine);
    if (kInto == Into::first || (kInto == Into::either && first_)) {
      __builtin_prefetch(line, 0, 3);
    } else {
      __builtin_prefetch(line, 0, 2);
    }
    if constexpr (kInto == Into::second) {
      __builtin_prefetch(reinterpret_cast<const void*>(soon(lines + i * kLine)), 0, 3);
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
  void ask_all(const void* data, std::size_t bytes) const {
    auto at = reinterpret_cast<std::uintptr_t>(data);
    const std::uintptr_t end = at + bytes;
    for (; at + 4 * kLine <= end; at += 4 * kLine) {
      for (std::size_t i = 0; i < 4; ++i) ask(at, i);
      kept();
    }
    for (; at < end; at += kLine) {
      ask(at, 0);
      kept();
    }
  }
  // GCC removes loops that do nothing but ask.
  BALLAST_INLINE static void kept() { asm volatile(""); }

  Bytes now_, then_;
  std::uintptr_t to_soon_ = 0;  // from a line that is asked for to what is needed soon
  std::uintptr_t later_ = ~std::uintptr_t{0}, to_later_ = 0;  // from this line on, and then
  bool first_ = asks_first_cache();
};

}  // namespace ballast::kernels
