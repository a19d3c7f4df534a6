// The integers of packed rows as bits: rANS with static tables (Duda 2013, arXiv 1311.2540).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ballast/matrix.h"
#include "ballast/pack.h"
#include "ballast/serialize.h"

namespace ballast {

/// How widely a coefficient spreads, in steps, on a scale of three to the octave: spread s means a
/// deviation of about 2^((s - 9) / 3) steps. Coefficients of one spread share a table.
namespace pack_spread {
inline constexpr std::uint8_t kNone = 0;   ///< so little that every integer would be 0
inline constexpr std::uint8_t kLeast = 2;  ///< 2^-2.33 steps
inline constexpr std::size_t kCount = 64;

std::uint8_t of(double steps);
double steps(std::uint8_t spread);
/// Low bits of a magnitude that are written as they are: they are nearly uniform.
constexpr int low_bits(std::uint8_t spread) { return spread < 15 ? 0 : (spread - 9) / 3 - 1; }
}  // namespace pack_spread

/// The table of one spread. Magnitude class 0 is 0, class c from 1 to 15 holds 2^low_bits
/// magnitudes each, class 16 all larger ones.
struct PackTable {
  static constexpr std::size_t kClasses = 17;
  static constexpr int kBits = 14;  ///< frequencies add up to 2^kBits
  /// Of class 0, and of each sign of the others.
  std::array<std::uint16_t, kClasses> frequency{};
  /// What decoding takes from magnitudes 1, 2 and more, in 1/256 steps.
  std::array<std::int8_t, 3> less{};

  /// From how often each class was seen, both signs together. `spread` gives a little weight to
  /// what was not.
  static PackTable of(std::uint8_t spread, std::span<const std::uint64_t, kClasses> counts);
  void save(ByteWriter& out) const;
  /// Throws Error if frequencies do not add up.
  static PackTable load(ByteReader& in);
};
using PackTables = std::array<PackTable, pack_spread::kCount>;

/// Largest magnitude that is coded.
inline constexpr std::int32_t kMostPacked = 1 << 24;

/// The magnitude's class in a table, and the bits that its code has beside the class.
struct PackClass {
  std::size_t number = 0;
  std::size_t more_bits = 0;
};
PackClass pack_class(std::uint8_t spread, std::uint32_t magnitude);

/// Codes `tokens` integers of each coefficient, coefficient by coefficient; those of spread kNone
/// are left out.
std::vector<std::byte> encode_integers(std::span<const std::int32_t> integers, std::size_t tokens,
                                       std::span<const std::uint8_t> spreads,
                                       const PackTables& tables);

/// Decodes what encode_integers() made. Never changes once made; any thread may use it.
class PackDecoder {
 public:
  PackDecoder(std::span<const std::uint8_t> spreads, const PackTables& tables);
  /// Throws Error, which begins with `what`, unless the bytes are those of a block of so many
  /// tokens.
  void decode(std::span<const std::byte> bytes, std::size_t tokens,
              std::span<const std::uint8_t> spreads, std::span<std::int32_t> integers) const;

 private:
  struct Slots {
    std::array<std::uint8_t, std::size_t{1} << PackTable::kBits> symbol;
    std::array<std::uint16_t, 2 * PackTable::kClasses> start, frequency;
  };
  std::vector<Slots> slots_;
  std::array<std::uint8_t, pack_spread::kCount> slots_of_{};
};

/// Numbers of different spreads that are rounded with one step.
struct PackPlan {
  std::vector<std::uint8_t> spreads;  ///< of each number
  PackTables tables{};
  double bits = 0;  ///< that the numbers it was made from take

  /// From samples of each number, a row each. `variance`: of each number as the calibration saw it,
  /// which counts as some samples more; empty: the samples alone say.
  static PackPlan of(std::span<const float> variance, ConstMatrix samples, float step);

  PackedRows::Code code() const;
  /// Throws Error where tables are missing or do not add up.
  static PackTables tables_of(const PackedRows::Code& code);

  /// The integers of rows of numbers, number by number.
  std::vector<std::int32_t> integers(ConstMatrix rows, float step) const;
};

/// What such integers stand for: rows of as many numbers as there are spreads.
Matrix pack_values(std::span<const std::int32_t> integers, std::size_t rows,
                   std::span<const std::uint8_t> spreads, const PackTables& tables, float step);

}  // namespace ballast
