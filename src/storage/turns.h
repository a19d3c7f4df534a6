// The rotations of one rotary embedding at every position, from two small tables.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include "ballast/matrix.h"
#include "ballast/rotary.h"
#include "ballast/storage.h"

namespace ballast {

/// With n = kTogether · h + j the rotation of position n is that of kTogether · h, with the
/// magnitude, after that of j, without. All caches of a process share these tables: they belong to
/// the model, and take 4 bytes · dimension · (2 kTogether + n / kTogether).
class Turns {
 public:
  static constexpr std::size_t kTogether = 64;
  static constexpr std::size_t kMost = 128;  ///< pairs

  /// The tables of this rotation; null where nothing turns.
  static std::shared_ptr<const Turns> of(const Rotary& rotary);
  explicit Turns(const Rotary& rotary);

  const Rotary& rotary() const { return rotary_; }
  /// Pairs of elements that turn.
  std::size_t count() const { return rotary_.frequencies.size(); }
  /// The two elements of pair f.
  std::size_t first(std::size_t f) const { return rotary_.pairs ? 2 * f : f; }
  std::size_t second(std::size_t f) const { return rotary_.pairs ? 2 * f + 1 : f + count(); }

  /// Pairs from fast() on turn by kSlow or less a position. Their cosines and sines at j <
  /// kTogether are sums of kBasis Chebyshev polynomials, within 1e-6.
  static constexpr std::size_t kBasis = 8;
  static constexpr float kSlow = 0.035f;
  std::size_t fast() const { return fast_; }
  /// Rows of kTogether positions j: the cosines of the fast pairs, their sines, the polynomials.
  const float* columns() const { return columns_.get(); }
  /// Of each slow pair the kBasis factors of its cosine, then those of its sine.
  const float* factors() const { return factors_.get(); }
  /// The cosines of all pairs at position n times the magnitude, and the sines; count() of each.
  void at(Position n, float* cosines, float* sines) const;

 private:
  /// Part b of the table holds kFirst · 2^b rows, so that growing moves nothing.
  static constexpr std::size_t kFirst = 16;
  /// Rows of the table at most: positions from a million on are computed each time.
  static constexpr std::size_t kMostFar = std::size_t{1} << 14;

  /// The cosines, then the sines of position kTogether · h, with the magnitude.
  const float* far(std::size_t h) const;

  Rotary rotary_;
  std::size_t fast_;
  AlignedArray<float> columns_, factors_, near_;
  mutable std::array<AlignedArray<float>, 32> far_;
  mutable std::atomic<std::size_t> ready_ = 0;
  mutable std::mutex growing_;
};

}  // namespace ballast
