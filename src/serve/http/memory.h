// The memory that the server may take, and who has it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace ballast::serve {

class Lease;

/// A number of bytes to be leased. Safe to use from many threads; outlives its leases.
class Memory {
 public:
  explicit Memory(std::size_t total) : total_(total) {}

  std::size_t total() const { return total_; }
  std::size_t taken() const;
  std::size_t left() const;
  /// Whether so many bytes were free; they then belong to `lease`, in place of what it had.
  bool take(std::size_t bytes, Lease& lease);
  /// Asks those who keep what they can do without to give so many bytes back soon.
  void want(std::size_t bytes);
  /// What was asked for and is not free yet; 0: nothing.
  std::size_t wanted() const;

 private:
  friend class Lease;
  void give_back(std::size_t bytes);

  std::size_t total_;
  mutable std::mutex mutex_;
  std::size_t taken_ = 0;
  std::size_t wanted_ = 0;
};

/// Bytes of a Memory, given back at the end.
class Lease {
 public:
  Lease() = default;
  ~Lease() { shrink(0); }
  Lease(Lease&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Lease& operator=(Lease&& other) noexcept {
    if (this == &other) return *this;
    shrink(0);
    memory_ = std::exchange(other.memory_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  std::size_t bytes() const { return bytes_; }
  /// Gives back what is above `bytes`.
  void shrink(std::size_t bytes);
  /// Another lease of so many of these bytes, or of all.
  Lease split(std::size_t bytes);

 private:
  friend class Memory;
  Memory* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

inline std::size_t Memory::taken() const {
  const std::scoped_lock lock(mutex_);
  return taken_;
}

inline std::size_t Memory::left() const {
  const std::scoped_lock lock(mutex_);
  return total_ - taken_;
}

inline bool Memory::take(std::size_t bytes, Lease& lease) {
  lease.shrink(0);
  const std::scoped_lock lock(mutex_);
  if (bytes > total_ - taken_) return false;
  taken_ += bytes;
  wanted_ = 0;
  lease.memory_ = this;
  lease.bytes_ = bytes;
  return true;
}

inline void Memory::want(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes <= total_) wanted_ = std::max(wanted_, bytes);
}

inline std::size_t Memory::wanted() const {
  const std::scoped_lock lock(mutex_);
  return wanted_ > total_ - taken_ ? wanted_ : 0;
}

inline void Memory::give_back(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  taken_ -= bytes;
}

inline void Lease::shrink(std::size_t bytes) {
  if (memory_ == nullptr || bytes >= bytes_) return;
  memory_->give_back(bytes_ - bytes);
  bytes_ = bytes;
}

inline Lease Lease::split(std::size_t bytes) {
  Lease out;
  out.memory_ = memory_;
  out.bytes_ = std::min(bytes, bytes_);
  bytes_ -= out.bytes_;
  return out;
}

}  // namespace ballast::serve
