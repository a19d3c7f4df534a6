// Turning heads by their position.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>

#include "ballast/matrix.h"
#include "ballast/rotary.h"

namespace ballast {

/// Cosine and sine of each rotation at one position, side by side: 2 · frequencies.size() numbers.
void rotation_at(const Rotary& rotary, double position, std::span<float> table);

/// Turns each head of `head_dim` numbers in the row by the rotations of one position.
void rotate(const Rotary& rotary, std::span<const float> table, std::size_t head_dim,
            std::span<float> row);

/// The rotations of positions 0, 1, 2, …, each computed once. Any thread may grow and read it.
class RotaryTable {
 public:
  explicit RotaryTable(const Rotary& rotary) : rotary_(rotary) {}

  const Rotary& rotary() const { return rotary_; }
  /// Makes positions below `count` ready.
  void reach(std::size_t count);
  /// See rotation_at(); the position must be ready.
  std::span<const float> at(std::size_t position) const;
  std::size_t bytes() const;
  /// Of a table that has reached `count` positions of so many rotations.
  static std::size_t bytes_for(std::size_t count, std::size_t frequencies);

 private:
  /// Block b holds kFirst · 2^b positions, so that growing moves nothing.
  static constexpr std::size_t kFirst = 256;
  static std::size_t block_of(std::size_t position, std::size_t& begin);
  std::size_t width() const { return 2 * rotary_.frequencies.size(); }

  Rotary rotary_;
  std::array<AlignedArray<float>, 32> blocks_;
  std::atomic<std::size_t> ready_ = 0;
  std::mutex growing_;
};

}  // namespace ballast
