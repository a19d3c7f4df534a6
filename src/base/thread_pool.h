// Parallel loops over a ThreadPool; exceptions leave them.
//
// Loops take no pool as an argument. Entry points (LayerCache, Engine) name theirs in a PoolScope,
// and every loop below uses it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "ballast/threads.h"

namespace ballast {

/// Loops that this thread starts run on `pool` while the scope lives. Null: nothing changes, so
/// loops use the pool of the scope around this one, or else the shared pool.
class PoolScope {
 public:
  explicit PoolScope(ThreadPool* pool);
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  ThreadPool* before_;
};

/// Threads that a loop started here would use at most, this one included. 1 inside a loop.
std::size_t loop_threads();

/// A loop's body, whatever its type: body(context, i).
using LoopBody = void (*)(void* context, std::size_t i);

/// Calls body(context, i), which may not throw, for i in [0, count), on up to loop_threads()
/// threads.
void run_loop(std::size_t count, LoopBody body, void* context);

/// Calls body(i) once for each i in [0, count), in no order, on up to loop_threads() threads when
/// `parallel`. Throws the first exception of a body after all calls have ended.
template <typename Body>
void parallel_for(std::size_t count, Body&& body, bool parallel = true) {
  if (!parallel || count < 2) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::exception_ptr failure;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  auto safe = [&](std::size_t i) {
    try {
      body(i);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  };
  run_loop(
      count, [](void* context, std::size_t i) { (*static_cast<decltype(safe)*>(context))(i); },
      &safe);
  if (failure) std::rethrow_exception(failure);
}

/// A range of indices; one thread takes the first ones, in order, other threads the last ones.
class WorkRange {
 public:
  /// begin <= end < 2³².
  void set(std::size_t begin, std::size_t end) { left_ = begin | std::uint64_t{end} << 32; }
  bool take_first(std::size_t& i) {
    return take([&](std::uint64_t left) {
      i = left & kLow;
      return left + 1;
    });
  }
  bool take_last(std::size_t& i) {
    return take([&](std::uint64_t left) {
      i = (left >> 32) - 1;
      return left - (std::uint64_t{1} << 32);
    });
  }

 private:
  static constexpr std::uint64_t kLow = 0xffffffff;

  template <typename Taken>
  bool take(const Taken& taken) {
    std::uint64_t left = left_.load(std::memory_order_relaxed);
    do {
      if ((left & kLow) == left >> 32) return false;
    } while (!left_.compare_exchange_weak(left, taken(left), std::memory_order_relaxed));
    return true;
  }

  alignas(64) std::atomic<std::uint64_t> left_ = 0;  ///< the first; in the upper half the end
};

/// As parallel_for(), for items of equal work. Each thread takes consecutive items in order, so
/// that memory is prefetched usefully; then it takes the last items of other threads. After an
/// exception some items may be left out.
template <typename Body>
void parallel_ranges(std::size_t count, Body&& body, bool parallel = true) {
  constexpr std::size_t kMost = 64;
  const std::size_t workers = parallel ? std::min({loop_threads(), count, kMost}) : 1;
  if (workers < 2) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  WorkRange ranges[kMost];
  for (std::size_t w = 0; w < workers; ++w) {
    ranges[w].set(count * w / workers, count * (w + 1) / workers);
  }
  parallel_for(workers, [&](std::size_t w) {
    std::size_t i = 0;
    while (ranges[w].take_first(i)) body(i);
    for (std::size_t other = 1; other < workers; ++other) {
      while (ranges[(w + other) % workers].take_last(i)) body(i);
    }
  });
}

}  // namespace ballast
