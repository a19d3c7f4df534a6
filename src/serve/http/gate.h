// A few at once; the others wait, and clients take turns.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/interruption.h"
#include "serve/http/api_error.h"

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

  /// `most`: that are within at once; `waiting`: that wait, each on a thread.
  explicit Gate(std::size_t most, std::size_t waiting = 64) : most_(most), most_waiting_(waiting) {}

  /// Waits for a place. One that a client asks for first comes before another's second, and so on.
  /// Throws Interrupted; ApiError (429) where too many wait, to the last of the client that has
  /// most of them.
  Place enter(const std::string& client);

 private:
  struct Turn {
    std::uint64_t round, number;
    auto operator<=>(const Turn&) const = default;
  };
  struct Waiting {
    std::string client;
    bool refused = false;
  };
  void leave();
  /// Refuses one who waits, or throws.
  void make_room(const std::string& client);

  std::size_t most_, most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t within_ = 0;
  std::uint64_t round_ = 0, number_ = 0;
  std::map<Turn, Waiting*> waiting_;
};

inline void Gate::make_room(const std::string& client) {
  std::map<std::string, std::size_t> count;
  for (const auto& [turn, one] : waiting_) ++count[one->client];
  const auto most = std::ranges::max_element(count, {}, [](const auto& one) { return one.second; });
  if (most->second <= count[client] + 1) {
    throw ApiError(429, "rate_limit_exceeded",
                   "too many requests wait to be read; try again later");
  }
  const auto last = std::ranges::find_if(waiting_.rbegin(), waiting_.rend(), [&](const auto& one) {
    return one.second->client == most->first;
  });
  last->second->refused = true;
  waiting_.erase(std::next(last).base());
  changed_.notify_all();
}

inline Gate::Place Gate::enter(const std::string& client) {
  std::unique_lock lock(mutex_);
  if (waiting_.size() >= most_waiting_) make_room(client);
  Turn turn{round_ + 1, ++number_};
  for (const auto& [other, one] : waiting_) {
    if (one->client == client) turn.round = other.round + 1;  // behind its last one
  }
  Waiting own{client};
  waiting_.emplace(turn, &own);
  try {
    while (within_ == most_ || waiting_.begin()->second != &own) {
      Interruption::check();
      changed_.wait_for(lock, std::chrono::milliseconds(50));
      if (own.refused) {
        throw ApiError(429, "rate_limit_exceeded",
                       "too many of your requests wait to be read; try again later");
      }
    }
  } catch (...) {
    if (!own.refused) waiting_.erase(turn);
    changed_.notify_all();
    throw;
  }
  waiting_.erase(turn);
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
