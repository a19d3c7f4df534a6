// A few at once; the others wait, and clients take turns.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/interruption.h"

namespace ballast::serve {

/// Safe to use from many threads; outlives its places.
class Gate {
 public:
  /// A place of those within, given up at the end.
  class Place {
   public:
    Place() = default;
    ~Place() { leave(); }
    Place(Place&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Place& operator=(Place&& other) noexcept {
      leave();
      gate_ = std::exchange(other.gate_, nullptr);
      return *this;
    }
    void leave() {
      if (gate_ != nullptr) std::exchange(gate_, nullptr)->leave();
    }

   private:
    friend class Gate;
    explicit Place(Gate& gate) : gate_(&gate) {}
    Gate* gate_ = nullptr;
  };

  /// `most`: that are within at once.
  explicit Gate(std::size_t most) : most_(most) {}

  /// Waits for a place. One that a client asks for first comes before another's second, and so on.
  /// Throws Interrupted.
  Place enter(const std::string& client);

 private:
  struct Turn {
    std::uint64_t round, number;
    auto operator<=>(const Turn&) const = default;
  };
  void leave();

  std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t within_ = 0;
  std::uint64_t round_ = 0, number_ = 0;
  std::map<Turn, std::string> waiting_;
};

inline Gate::Place Gate::enter(const std::string& client) {
  std::unique_lock lock(mutex_);
  Turn turn{round_ + 1, ++number_};
  for (const auto& [other, whose] : waiting_) {
    if (whose == client) turn.round = other.round + 1;  // behind its last one
  }
  const auto at = waiting_.emplace(turn, client).first;
  try {
    while (within_ == most_ || waiting_.begin() != at) {
      Interruption::check();
      changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
  } catch (...) {
    waiting_.erase(at);
    changed_.notify_all();
    throw;
  }
  waiting_.erase(at);
  round_ = turn.round - 1;
  ++within_;
  changed_.notify_all();
  return Place(*this);
}

inline void Gate::leave() {
  {
    const std::scoped_lock lock(mutex_);
    --within_;
  }
  changed_.notify_all();
}

}  // namespace ballast::serve
