#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <system_error>
#include <thread>

#include "ballast/threads.h"

namespace ballast {
namespace {

std::size_t cores() {
  cpu_set_t mine;
  if (::sched_getaffinity(0, sizeof mine, &mine) == 0) {
    return static_cast<std::size_t>(std::max(CPU_COUNT(&mine), 1));
  }
  return std::max(std::thread::hardware_concurrency(), 1u);
}

std::size_t default_threads() {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  const long count = wanted != nullptr ? std::strtol(wanted, nullptr, 10) : 0;
  return count > 0 ? static_cast<std::size_t>(std::min(count, 1024L)) : cores();
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/// Waits a little for what is about to happen, since waking a sleeper takes longer than most loops.
/// No longer: on a machine with other work to do, who spins keeps the core from who would work.
template <typename Done>
bool spin(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(30);
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

thread_local bool in_loop = false;

/// Threads that wait for loops. Who calls takes part, and waits only for those that took work: a
/// thread that the system has not given a core holds nobody up.
///
/// A loop of a small model is over in microseconds, in which one core reads some ten times what
/// another has written. So helpers look at one line of memory while they wait, and join with one
/// addition to another, which also takes their first item.
class Pool {
 public:
  /// Returns false if another thread's loop runs.
  bool run(std::size_t count, LoopBody body, void* context, std::size_t threads);

 private:
  struct Helper {
    std::atomic<int> asleep = 0;
  };

  // Of state_: how many helpers have joined and not left; below, the next item, at least kClosed
  // between loops, when it is none.
  static constexpr std::uint64_t kHelper = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kItem = kHelper - 1;
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 47;

  void add_helpers(std::size_t wanted);
  void help(Helper& self, std::size_t index, std::uint32_t seen);
  void work(std::size_t item);
  void wait_for_helpers();

  // Written once a loop:
  alignas(64) std::atomic<std::uint32_t> loop_ = 0;  ///< its number
  std::atomic<std::size_t> helpers_wanted_ = 0;      ///< those of lower numbers may join
  std::atomic<std::size_t> count_ = 0;
  std::atomic<LoopBody> body_ = nullptr;
  std::atomic<void*> context_ = nullptr;
  alignas(64) std::atomic<std::uint64_t> state_ = kClosed;
  alignas(64) std::atomic<int> caller_asleep_ = 0;
  std::atomic<bool> in_use_ = false;
  std::deque<Helper> helpers_;  ///< of whoever uses the pool
};

void Pool::add_helpers(std::size_t wanted) {
  while (helpers_.size() < wanted) {
    const std::size_t index = helpers_.size();
    Helper& helper = helpers_.emplace_back();
    try {
      // Never joined: they hold nothing, and the pool is never destroyed.
      std::thread([this, &helper, index, seen = loop_.load()] {
        help(helper, index, seen);
      }).detach();
    } catch (const std::system_error&) {
      helpers_.pop_back();
      return;  // the system has no more; fewer do the same
    }
  }
}

bool Pool::run(std::size_t count, LoopBody body, void* context, std::size_t threads) {
  if (in_use_.exchange(true, std::memory_order_acquire)) return false;
  add_helpers(threads - 1);
  const std::size_t helpers = std::min(threads - 1, helpers_.size());
  helpers_wanted_.store(helpers, std::memory_order_relaxed);
  count_.store(count, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  // Item 0 is the caller's. Helpers that came too late for the last loop may not have left yet.
  std::uint64_t state = state_.load();
  while (!state_.compare_exchange_weak(state, (state & ~kItem) + 1)) {
  }
  loop_.fetch_add(1);
  for (std::size_t h = 0; h < helpers; ++h) {
    if (helpers_[h].asleep.load() == 0) continue;
    helpers_[h].asleep = 0;
    helpers_[h].asleep.notify_one();
  }
  work(0);
  wait_for_helpers();
  in_use_.store(false, std::memory_order_release);
  return true;
}

void Pool::work(std::size_t item) {
  const std::size_t count = count_.load(std::memory_order_relaxed);
  if (item >= count) return;
  const LoopBody body = body_.load(std::memory_order_relaxed);
  void* const context = context_.load(std::memory_order_relaxed);
  for (; item < count; item = state_.fetch_add(1, std::memory_order_relaxed) & kItem) {
    body(context, item);
  }
}

// … and closes the loop.
void Pool::wait_for_helpers() {
  std::uint64_t state = 0;
  const auto closed = [&] {
    state = state_.load();
    return state < kHelper && state_.compare_exchange_strong(state, kClosed);
  };
  while (!spin(closed)) {
    caller_asleep_ = 1;
    if (state_.load() >= kHelper) caller_asleep_.wait(1);
    caller_asleep_ = 0;
  }
}

void Pool::help(Helper& self, std::size_t index, std::uint32_t seen) {
  in_loop = true;
  const auto called = [&] {
    return loop_.load() != seen && index < helpers_wanted_.load(std::memory_order_relaxed);
  };
  while (true) {
    while (!spin(called)) {
      self.asleep = 1;
      if (!called()) self.asleep.wait(1);
      self.asleep = 0;
    }
    seen = loop_.load();
    work(state_.fetch_add(kHelper + 1) & kItem);
    const bool last = state_.fetch_sub(kHelper) < 2 * kHelper;
    if (last && caller_asleep_.load() != 0) {
      caller_asleep_ = 0;
      caller_asleep_.notify_one();
    }
  }
}

/// A child process has none of the threads, and what they held when it was born stays held.
std::atomic<bool> forked = false;

Pool& pool() {
  static Pool& made = *[] {
    ::pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return new Pool;
  }();
  return made;
}

std::atomic<std::size_t> chosen_threads = 0;

}  // namespace

int threads() {
  static const std::size_t otherwise = default_threads();
  const std::size_t chosen = chosen_threads.load(std::memory_order_relaxed);
  return static_cast<int>(chosen > 0 ? chosen : otherwise);
}

void set_threads(int count) { chosen_threads = static_cast<std::size_t>(std::max(count, 0)); }

void run_loop(std::size_t count, LoopBody body, void* context) {
  const std::size_t wanted = std::min(static_cast<std::size_t>(threads()), count);
  if (!in_loop && wanted >= 2 && !forked) {
    in_loop = true;
    const bool ran = pool().run(count, body, context, wanted);
    in_loop = false;
    if (ran) return;
  }
  for (std::size_t i = 0; i < count; ++i) body(context, i);
}

}  // namespace ballast
