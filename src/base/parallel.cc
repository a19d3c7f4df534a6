#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
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

struct Loop {
  std::size_t count;
  LoopBody body;
  void* context;
  std::atomic<std::size_t> next = 0;

  void work() {
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      body(context, i);
    }
  }
};

thread_local bool in_loop = false;

/// Threads that wait for loops. Who calls takes part, and waits only for those that took work: a
/// thread that the system has not given a core holds nobody up.
class Pool {
 public:
  void run(Loop& loop, std::size_t threads);

 private:
  void add_threads(std::size_t helpers);
  void help();

  std::mutex in_use_;  ///< held by the caller whose loop runs
  std::mutex mutex_;   ///< of what follows
  std::condition_variable wake_, done_;
  std::size_t helpers_ = 0;
  std::size_t asleep_ = 0;
  Loop* loop_ = nullptr;
  std::atomic<std::size_t> places_ = 0;   ///< helpers that may still join the loop
  std::atomic<std::size_t> working_ = 0;  ///< helpers that joined and have not left
};

void Pool::add_threads(std::size_t helpers) {
  while (helpers_ < helpers) {
    try {
      // Never joined: they hold nothing, and the pool is never destroyed.
      std::thread([this] { help(); }).detach();
    } catch (const std::system_error&) {
      return;  // the system has no more; fewer do the same
    }
    ++helpers_;
  }
}

void Pool::run(Loop& loop, std::size_t threads) {
  const std::unique_lock<std::mutex> in_use(in_use_, std::try_to_lock);
  if (!in_use) return loop.work();
  add_threads(threads - 1);
  std::size_t sleepers = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loop_ = &loop;
    places_ = threads - 1;
    sleepers = std::min(asleep_, threads - 1);
  }
  for (std::size_t i = 0; i < sleepers; ++i) wake_.notify_one();
  loop.work();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loop_ = nullptr;
    places_ = 0;
  }
  if (spin([this] { return working_ == 0; })) {
    // Whoever left did so under the lock: taking it makes what they wrote seen.
    const std::lock_guard<std::mutex> lock(mutex_);
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [this] { return working_ == 0; });
}

void Pool::help() {
  in_loop = true;
  while (true) {
    spin([this] { return places_.load(std::memory_order_relaxed) > 0; });
    std::unique_lock<std::mutex> lock(mutex_);
    ++asleep_;
    wake_.wait(lock, [this] { return places_ > 0; });
    --asleep_;
    --places_;
    ++working_;
    Loop& loop = *loop_;
    lock.unlock();
    loop.work();
    lock.lock();
    if (--working_ == 0) done_.notify_one();
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
  Loop loop{count, body, context};
  const std::size_t wanted = std::min(static_cast<std::size_t>(threads()), count);
  if (in_loop || wanted < 2 || forked) return loop.work();
  in_loop = true;
  pool().run(loop, wanted);
  in_loop = false;
}

}  // namespace ballast
