#include "base/thread_pool.h"

#include <array>
#include <chrono>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/os/process.h"

namespace ballast {
namespace {

constexpr std::size_t kMostThreads = 1024;

/// One for each core if `count` is below 1.
std::size_t threads_of(int count) {
  return std::min(count < 1 ? usable_cores() : static_cast<std::size_t>(count), kMostThreads);
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/// Spins for 30 µs at most: waking a sleeper takes longer than most loops, but a thread that spins
/// keeps its core from others.
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
thread_local ThreadPool* current_pool = nullptr;

}  // namespace

/// The workers, and the loops that they join.
///
/// A caller works on its loop and then waits only for workers inside it: a worker without a core
/// delays nobody.
///
/// A small model's loop takes microseconds, and a core needs about a tenth of one to read a line
/// that another core has written. So a waiting worker looks at one line only: that of the first
/// loop, which a sole caller always gets. It joins with one addition, which also takes an item.
class ThreadPool::Loops {
 public:
  /// set_threads() may allow up to `most` threads later.
  Loops(std::size_t threads, std::size_t most)
      : limit_(threads), workers_(std::make_unique<Worker[]>(most)), forks_at_start_(forks_) {}
  ~Loops();

  std::size_t threads() const { return limit_.load(std::memory_order_relaxed); }
  void set_threads(std::size_t count) { limit_ = count; }
  bool forked() const { return forks_.load(std::memory_order_relaxed) != forks_at_start_; }
  /// Returns false if all loops are taken.
  bool run(std::size_t count, LoopBody body, void* context, std::size_t threads);

 private:
  struct Worker {
    std::atomic<int> asleep = 0;
  };

  struct Loop {
    // Written once a loop.
    alignas(64) std::atomic<std::uint32_t> number = 0;
    /// Of the first loop: how often another one has begun, and 1 when the pool ends.
    std::atomic<std::uint32_t> others = 0;
    /// Workers [first, first + wanted) may join.
    std::atomic<std::uint32_t> first = 0;
    std::atomic<std::uint32_t> wanted = 0;
    std::atomic<std::size_t> count = 0;
    std::atomic<LoopBody> body = nullptr;
    std::atomic<void*> context = nullptr;
    /// In kWorker's bits the workers inside; below them the next item, at least kClosed between
    /// loops, when there is none.
    alignas(64) std::atomic<std::uint64_t> state = kClosed;
    alignas(64) std::atomic<int> caller_asleep = 0;
    std::atomic<bool> in_use = false;

    bool wants(std::uint32_t worker, std::uint32_t seen) const {
      return number.load() != seen && worker - first.load(std::memory_order_relaxed) <
                                          wanted.load(std::memory_order_relaxed);
    }
  };

  static constexpr std::size_t kLoops = 8;
  static constexpr std::uint64_t kWorker = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kItem = kWorker - 1;
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 47;

  Loop* take_loop();
  void start_workers(std::size_t wanted);
  void begin(Loop& loop, std::uint32_t first, std::uint32_t wanted);
  void help(std::uint32_t worker);
  static void join(Loop& loop, std::uint32_t& seen);
  static void work(Loop& loop, std::size_t item);
  static void wait_for_workers(Loop& loop);

  std::array<Loop, kLoops> loops_;
  alignas(64) std::atomic<std::size_t> limit_;
  std::atomic<std::size_t> started_ = 0;  ///< workers
  std::atomic<bool> ending_ = false;
  const std::unique_ptr<Worker[]> workers_;
  const std::atomic<unsigned>& forks_ = forks();
  const unsigned forks_at_start_;
  std::mutex starting_;
  std::vector<std::thread> threads_;  ///< of the workers; behind starting_
};

ThreadPool::Loops::~Loops() {
  if (forked()) {
    // The threads are the parent's: they can be neither joined nor detached here.
    static_cast<void>(new std::vector<std::thread>(std::move(threads_)));
    return;
  }
  ending_ = true;
  loops_[0].others.fetch_add(1);
  for (std::size_t w = 0; w < threads_.size(); ++w) {
    workers_[w].asleep = 0;
    workers_[w].asleep.notify_one();
    threads_[w].join();
  }
}

ThreadPool::Loops::Loop* ThreadPool::Loops::take_loop() {
  for (Loop& loop : loops_) {
    if (!loop.in_use.exchange(true, std::memory_order_acquire)) return &loop;
  }
  return nullptr;
}

void ThreadPool::Loops::start_workers(std::size_t wanted) {
  if (started_.load(std::memory_order_acquire) >= wanted) return;
  const std::lock_guard lock(starting_);
  try {
    threads_.reserve(wanted);
    while (threads_.size() < wanted) {
      const auto worker = static_cast<std::uint32_t>(threads_.size());
      threads_.emplace_back([this, worker] { help(worker); });
      started_.store(threads_.size(), std::memory_order_release);
    }
  } catch (const std::system_error&) {  // the system has no more threads; fewer do the same
  } catch (const std::bad_alloc&) {
  }
}

bool ThreadPool::Loops::run(std::size_t count, LoopBody body, void* context, std::size_t threads) {
  Loop* const loop = take_loop();
  if (loop == nullptr) return false;
  const bool sole = loop == &loops_[0];
  // A second caller starts all workers, so that loops of two items get different ones.
  const std::size_t all = sole ? threads - 1 : std::max(this->threads(), threads) - 1;
  start_workers(all);
  const std::size_t started = std::min(all, started_.load(std::memory_order_acquire));
  const std::size_t wanted = std::min(threads - 1, started);
  loop->count.store(count, std::memory_order_relaxed);
  loop->body.store(body, std::memory_order_relaxed);
  loop->context.store(context, std::memory_order_relaxed);
  begin(*loop, static_cast<std::uint32_t>(sole ? 0 : started - wanted),
        static_cast<std::uint32_t>(wanted));
  work(*loop, 0);
  wait_for_workers(*loop);
  loop->in_use.store(false, std::memory_order_release);
  return true;
}

void ThreadPool::Loops::begin(Loop& loop, std::uint32_t first, std::uint32_t wanted) {
  loop.first.store(first, std::memory_order_relaxed);
  loop.wanted.store(wanted, std::memory_order_relaxed);
  // Item 0 is the caller's. Workers too late for the last loop may not have left yet.
  std::uint64_t state = loop.state.load();
  while (!loop.state.compare_exchange_weak(state, (state & ~kItem) + 1)) {
  }
  loop.number.fetch_add(1);
  if (&loop != &loops_[0]) loops_[0].others.fetch_add(1);
  for (std::size_t w = first; w < first + wanted; ++w) {
    if (workers_[w].asleep.load() == 0) continue;
    workers_[w].asleep = 0;
    workers_[w].asleep.notify_one();
  }
}

void ThreadPool::Loops::work(Loop& loop, std::size_t item) {
  const std::size_t count = loop.count.load(std::memory_order_relaxed);
  if (item >= count) return;
  const LoopBody body = loop.body.load(std::memory_order_relaxed);
  void* const context = loop.context.load(std::memory_order_relaxed);
  for (; item < count; item = loop.state.fetch_add(1, std::memory_order_relaxed) & kItem) {
    body(context, item);
  }
}

// … and closes the loop.
void ThreadPool::Loops::wait_for_workers(Loop& loop) {
  std::uint64_t state = 0;
  const auto closed = [&] {
    state = loop.state.load();
    return state < kWorker && loop.state.compare_exchange_strong(state, kClosed);
  };
  while (!spin(closed)) {
    loop.caller_asleep = 1;
    if (loop.state.load() >= kWorker) loop.caller_asleep.wait(1);
    loop.caller_asleep = 0;
  }
}

void ThreadPool::Loops::join(Loop& loop, std::uint32_t& seen) {
  seen = loop.number.load();
  work(loop, loop.state.fetch_add(kWorker + 1) & kItem);
  const bool last = loop.state.fetch_sub(kWorker) < 2 * kWorker;
  if (last && loop.caller_asleep.load() != 0) {
    loop.caller_asleep = 0;
    loop.caller_asleep.notify_one();
  }
}

void ThreadPool::Loops::help(std::uint32_t worker) {
  in_loop = true;
  Loop& first = loops_[0];
  std::atomic<int>& asleep = workers_[worker].asleep;
  std::array<std::uint32_t, kLoops> seen = {};
  std::uint32_t others = 0;
  const auto called = [&] { return first.wants(worker, seen[0]) || first.others.load() != others; };
  while (true) {
    while (!spin(called)) {
      asleep = 1;
      if (!called()) asleep.wait(1);
      asleep = 0;
    }
    if (first.wants(worker, seen[0])) join(first, seen[0]);
    const std::uint32_t now = first.others.load();
    if (now == others) continue;
    if (ending_) return;
    others = now;
    for (std::size_t l = 1; l < kLoops; ++l) {
      if (loops_[l].wants(worker, seen[l])) join(loops_[l], seen[l]);
    }
  }
}

ThreadPool::ThreadPool(int threads)
    : loops_(std::make_unique<Loops>(threads_of(threads), threads_of(threads))) {}

ThreadPool::ThreadPool(std::unique_ptr<Loops> loops) : loops_(std::move(loops)) {}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return static_cast<int>(loops_->threads()); }

ThreadPool& ThreadPool::shared() {
  // Never destroyed: loops may run while the process ends.
  static ThreadPool& pool = *new ThreadPool(std::make_unique<Loops>(threads_of(0), kMostThreads));
  return pool;
}

int threads() { return ThreadPool::shared().threads(); }

void set_threads(int count) { ThreadPool::shared().loops().set_threads(threads_of(count)); }

PoolScope::PoolScope(ThreadPool* pool) : before_(current_pool) {
  if (pool != nullptr) current_pool = pool;
}

PoolScope::~PoolScope() { current_pool = before_; }

namespace {

ThreadPool::Loops& current_loops() {
  return (current_pool != nullptr ? *current_pool : ThreadPool::shared()).loops();
}

}  // namespace

std::size_t loop_threads() {
  if (in_loop) return 1;
  const ThreadPool::Loops& loops = current_loops();
  return loops.forked() ? 1 : loops.threads();
}

void run_loop(std::size_t count, LoopBody body, void* context) {
  const std::size_t wanted = std::min(loop_threads(), count);
  if (wanted >= 2) {
    in_loop = true;
    const bool ran = current_loops().run(count, body, context, wanted);
    in_loop = false;
    if (ran) return;
  }
  for (std::size_t i = 0; i < count; ++i) body(context, i);
}

}  // namespace ballast
