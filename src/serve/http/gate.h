// A few at once; the others wait, and clients take turns.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/interruption.h"
#include "serve/http/api_error.h"
#include "serve/http/memory.h"

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

/// What a handler has while it works on a body.
struct TextWork {
  Gate::Place place;
  Lease memory;
};

/// Safe to use from many threads; outlives what it gives.
class Bodies {
 public:
  /// `ever`: bytes of the memory that there may be for a body.
  Bodies(Memory& memory, std::size_t ever) : memory_(memory), ever_(ever) {}

  /// Waits until a body of so many bytes may be read; `document`: a text that may be a file's.
  /// Throws ApiError where there is no memory, or too many wait; Interrupted.
  TextWork enter(const std::string& client, std::size_t body, bool document);
  /// The same for other work that takes so many bytes.
  TextWork enter_large(const std::string& client, std::size_t bytes) {
    return enter(large_, client, bytes);
  }

 private:
  TextWork enter(Gate& gate, const std::string& client, std::size_t bytes);

  Memory& memory_;
  std::size_t ever_;
  Gate small_{4}, large_{2}, documents_{2};
};

}  // namespace ballast::serve
