// Several processes that run one model, each with some of its layers.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ballast {

/// The processes (ranks) that a model's layers are divided among, and how they exchange bytes.
/// Every rank makes the same calls in the same order. Implementations: MPI (the program's), threads
/// (its test).
class Ranks {
 public:
  virtual ~Ranks() = default;

  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;
  bool last() const { return rank() + 1 == size(); }

  /// Returns before the other has received. Messages to one rank arrive in their order.
  virtual void send(std::size_t to, std::vector<std::byte> bytes) = 0;
  /// Waits for `bytes.size()` bytes.
  virtual void receive(std::size_t from, std::span<std::byte> bytes) = 0;
  /// What each rank gives, all equally long, in the order of ranks: all = size() × mine.size().
  virtual void gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

/// Throws Error, on every rank, unless all give the same bytes. `name`: what they are of.
void require_equal(Ranks& ranks, std::span<const std::byte> bytes, std::string_view name);

}  // namespace ballast
