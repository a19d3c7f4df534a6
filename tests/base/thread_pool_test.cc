#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ballast/threads.h"
#include "process_threads.h"

namespace ballast {
namespace {

using test::process_threads;

class Parallel : public testing::Test {
 protected:
  void TearDown() override { set_threads(0); }
};

/// Waits until `count` threads have come, for 20 s at most.
class Meeting {
 public:
  explicit Meeting(int count) : missing_(count) {}
  void come() {
    {
      const std::lock_guard lock(mutex_);
      ids_.insert(std::this_thread::get_id());
    }
    --missing_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (missing_ > 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }
  bool complete() const { return missing_ == 0; }
  std::size_t threads() const { return ids_.size(); }

 private:
  std::atomic<int> missing_;
  std::mutex mutex_;
  std::set<std::thread::id> ids_;
};

TEST_F(Parallel, EveryIndexComesOnce) {
  for (int count : {1, 2, 3, 8}) {
    set_threads(count);
    EXPECT_EQ(threads(), count);
    for (std::size_t size : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<int> seen(size);  // each written by one thread
      parallel_for(size, [&](std::size_t i) { ++seen[i]; });
      EXPECT_EQ(seen, std::vector<int>(size, 1));
    }
  }
}

TEST_F(Parallel, WhatOneLoopWroteTheNextReads) {
  set_threads(4);
  std::vector<std::size_t> row(64);
  std::iota(row.begin(), row.end(), 0u);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::size_t> next(row.size());
    parallel_for(row.size(), [&](std::size_t i) { next[i] = row[(i + 1) % row.size()]; });
    row.swap(next);
  }
  for (std::size_t i = 0; i < row.size(); ++i) EXPECT_EQ(row[i], (i + 3000) % row.size());
}

// Loops in quick succession, and after pauses in which helpers fall asleep; more threads than
// cores, so that some come late; three callers that share the workers.
TEST_F(Parallel, EveryIndexComesOnceWhoeverIsLate) {
  std::atomic<int> wrong = 0;
  const auto call = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::atomic<int>> seen(300);
    for (int round = 0; round < 20000; ++round) {
      if (round % 64 == 0) set_threads(2 + static_cast<int>(random() % 6));
      const std::size_t size = 2 + random() % (round % 8 == 0 ? 298 : 6);
      for (std::size_t i = 0; i < size; ++i) seen[i] = 0;
      const unsigned work = random() % 64;
      parallel_for(size, [&](std::size_t i) {
        for (unsigned w = 0; w < work; ++w) seen[i].fetch_add(2);
        seen[i].fetch_add(1 - 2 * static_cast<int>(work));
      });
      for (std::size_t i = 0; i < size; ++i) wrong += seen[i] != 1;
      if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    }
  };
  std::thread second(call, 1), third(call, 3);
  call(2);
  second.join();
  third.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Parallel, ThreadsTakePartAndNoMoreThanAllowed) {
  set_threads(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::size_t most = 0;
  // Loops of many threads first, so that more are there than the limit allows.
  set_threads(6);
  parallel_for(100, [](std::size_t) { std::this_thread::yield(); });
  set_threads(3);
  for (int round = 0; round < 200 && most < 3; ++round) {
    ids.clear();
    parallel_for(30, [&](std::size_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      const std::lock_guard<std::mutex> lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    EXPECT_LE(ids.size(), 3u);
    most = std::max(most, ids.size());
  }
  EXPECT_EQ(most, 3u);
}

TEST_F(Parallel, TwoCallersShareTheWorkersOfOnePool) {
  set_threads(3);
  // Each caller has two items that end only once all four have begun, on four threads.
  Meeting meeting(4);
  const auto call = [&] { parallel_for(2, [&](std::size_t) { meeting.come(); }); };
  std::thread other(call);
  call();
  other.join();
  EXPECT_TRUE(meeting.complete());
  EXPECT_EQ(meeting.threads(), 4u);
}

TEST_F(Parallel, TwoCallersBothGetTheOnlyWorker) {
  set_threads(2);
  std::atomic<int> helped = 0;
  const auto call = [&] {
    const auto self = std::this_thread::get_id();
    std::atomic<bool> mine = false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    // Goes on until both were helped.
    while (helped < 2 && std::chrono::steady_clock::now() < end) {
      parallel_for(20, [&](std::size_t) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        if (std::this_thread::get_id() != self && !mine.exchange(true)) ++helped;
      });
    }
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(helped, 2);
}

TEST(ThreadPool, TwoPoolsHaveWorkersOfTheirOwn) {
  ThreadPool pools[] = {ThreadPool(3), ThreadPool(3)};
  Meeting meeting(6);
  const auto call = [&](int p) {
    const PoolScope scope(&pools[p]);
    parallel_for(3, [&](std::size_t) { meeting.come(); });
  };
  std::thread other(call, 1);
  call(0);
  other.join();
  EXPECT_TRUE(meeting.complete());
  EXPECT_EQ(meeting.threads(), 6u);
}

TEST(ThreadPool, MoreCallersThanLoopsAreAllServed) {
  ThreadPool pool(3);
  std::atomic<int> done = 0;
  Meeting meeting(20);
  std::vector<std::thread> callers;
  for (int c = 0; c < 20; ++c) {
    callers.emplace_back([&] {
      const PoolScope scope(&pool);
      // All callers are inside their loops at the same time.
      parallel_for(10, [&](std::size_t i) {
        if (i == 0) meeting.come();
        ++done;
      });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(meeting.complete());
  EXPECT_EQ(done, 200);
}

TEST(ThreadPool, ScopesNameThePoolOfLoops) {
  ThreadPool two(2), five(5);
  const std::size_t otherwise = loop_threads();
  EXPECT_EQ(otherwise, static_cast<std::size_t>(threads()));
  {
    const PoolScope outer(&two);
    EXPECT_EQ(loop_threads(), 2u);
    {
      const PoolScope inner(&five);
      EXPECT_EQ(loop_threads(), 5u);
      const PoolScope same(nullptr);
      EXPECT_EQ(loop_threads(), 5u);
      std::thread([&] { EXPECT_EQ(loop_threads(), otherwise); }).join();
    }
    EXPECT_EQ(loop_threads(), 2u);
    parallel_for(4, [](std::size_t) { EXPECT_EQ(loop_threads(), 1u); });
  }
  EXPECT_EQ(loop_threads(), otherwise);
}

TEST(ThreadPool, SizesItIsGiven) {
  EXPECT_EQ(ThreadPool(1).threads(), 1);
  EXPECT_EQ(ThreadPool(7).threads(), 7);
  EXPECT_EQ(ThreadPool(100000).threads(), 1024);
  cpu_set_t mine;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
  const int cores = CPU_COUNT(&mine);
  // Another library's variable says nothing to this one.
  ::setenv("OMP_NUM_THREADS", std::to_string(cores + 1).c_str(), 1);
  EXPECT_EQ(ThreadPool().threads(), cores);
  ::unsetenv("OMP_NUM_THREADS");
  set_threads(9);
  EXPECT_EQ(threads(), 9);
  EXPECT_EQ(ThreadPool::shared().threads(), 9);
  set_threads(0);
  EXPECT_EQ(threads(), cores);
}

TEST(ThreadPool, EndsItsWorkersWhileTheySpinOrSleep) {
  std::thread([] {}).join();  // a sanitizer's own thread starts with the first
  const std::size_t before = process_threads();
  { const ThreadPool unused(4); }
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(4);
    const PoolScope scope(&pool);
    std::atomic<int> done = 0;
    parallel_for(8, [&](std::size_t) { ++done; });
    EXPECT_EQ(done, 8);
    EXPECT_EQ(process_threads(before + 3), before + 3);
    // Workers sleep 30 µs after a loop.
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(process_threads(before), before);
}

TEST(WorkRange, FirstOnesInOrderLastOnesBackwards) {
  WorkRange range;
  std::size_t i = 7;
  EXPECT_FALSE(range.take_first(i));
  EXPECT_FALSE(range.take_last(i));
  range.set(3, 8);
  for (std::size_t expected : {3u, 4u}) {
    ASSERT_TRUE(range.take_first(i));
    EXPECT_EQ(i, expected);
  }
  for (std::size_t expected : {7u, 6u}) {
    ASSERT_TRUE(range.take_last(i));
    EXPECT_EQ(i, expected);
  }
  ASSERT_TRUE(range.take_last(i));
  EXPECT_EQ(i, 5u);
  EXPECT_FALSE(range.take_first(i));
  EXPECT_FALSE(range.take_last(i));
}

TEST(WorkRange, ThreadsAtBothEndsTakeEachOnce) {
  constexpr std::size_t kCount = 20000;
  WorkRange range;
  range.set(0, kCount);
  std::vector<std::atomic<int>> seen(kCount);
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&, t] {
      std::size_t i = 0;
      while (t % 2 == 0 ? range.take_first(i) : range.take_last(i)) ++seen[i];
    });
  }
  for (std::thread& thread : all) thread.join();
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(seen[i], 1) << i;
}

TEST_F(Parallel, OfRangesEveryIndexComesOnce) {
  for (int count : {1, 2, 3, 8, 100}) {
    set_threads(count);
    for (std::size_t size : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<int> seen(size);  // each written by one thread
      parallel_ranges(size, [&](std::size_t i) { ++seen[i]; });
      EXPECT_EQ(seen, std::vector<int>(size, 1));
    }
  }
}

TEST_F(Parallel, WhoIsThroughTakesTheLastOnesOfOthers) {
  set_threads(2);
  std::vector<std::thread::id> by(40);
  std::vector<std::size_t> order;
  std::mutex mutex;
  std::atomic<bool> begun = false;
  parallel_ranges(by.size(), [&](std::size_t i) {
    if (i == 0) begun = true;
    while (!begun) std::this_thread::yield();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      by[i] = std::this_thread::get_id();
      order.push_back(i);
    }
    // Whoever has number 0 does nothing else until all others are done.
    while (i == 0) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (order.size() == by.size()) break;
    }
  });
  EXPECT_EQ(std::count(by.begin(), by.end(), by[0]), 1);
  order.erase(std::find(order.begin(), order.end(), 0u));
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(order[i], 20 + i);
  for (std::size_t i = 0; i < 19; ++i) EXPECT_EQ(order[20 + i], 19 - i);
}

TEST_F(Parallel, AnExceptionComesOutOfRanges) {
  set_threads(4);
  EXPECT_THROW(parallel_ranges(100,
                               [](std::size_t i) {
                                 if (i == 50) throw std::runtime_error("here");
                               }),
               std::runtime_error);
}

TEST_F(Parallel, TheFirstExceptionComesOutAndTheRestIsDone) {
  set_threads(4);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> done = 0;
    EXPECT_THROW(parallel_for(50,
                              [&](std::size_t i) {
                                ++done;
                                if (i % 7 == 3) throw std::runtime_error("seven");
                              }),
                 std::runtime_error);
    EXPECT_EQ(done, 50);
  }
}

TEST_F(Parallel, LoopsInsideLoopsRunWhereTheyAre) {
  set_threads(4);
  std::vector<int> seen(400);
  parallel_for(20, [&](std::size_t i) {
    const auto self = std::this_thread::get_id();
    parallel_for(20, [&](std::size_t j) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++seen[i * 20 + j];
    });
  });
  EXPECT_EQ(seen, std::vector<int>(400, 1));
}

TEST_F(Parallel, CallersDoNotDisturbEachOther) {
  set_threads(3);
  std::vector<std::thread> callers;
  for (std::size_t c = 0; c < 4; ++c) {
    callers.emplace_back([c] {
      for (int round = 0; round < 500; ++round) {
        std::vector<std::size_t> seen(10);
        parallel_for(10, [&](std::size_t i) { seen[i] = i + c; });
        for (std::size_t i = 0; i < 10; ++i) ASSERT_EQ(seen[i], i + c);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

#if !defined(__SANITIZE_THREAD__)  // which knows no threads after fork
TEST_F(Parallel, AChildProcessDoesItsLoopsAlone) {
  set_threads(3);
  parallel_for(10, [](std::size_t) {});
  const pid_t child = ::fork();
  if (child == 0) {
    std::atomic<int> done = 0;
    for (int round = 0; round < 100; ++round) parallel_for(10, [&](std::size_t) { ++done; });
    ::_exit(done == 1000 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(ThreadPool, AChildProcessEndsItsParentsPoolAndMakesItsOwn) {
  auto pool = std::make_unique<ThreadPool>(3);
  const auto loop = [&] {
    const PoolScope scope(pool.get());
    Meeting meeting(static_cast<int>(loop_threads()));
    parallel_for(loop_threads(), [&](std::size_t) { meeting.come(); });
    return meeting.threads();
  };
  EXPECT_EQ(loop(), 3u);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // rather than wait for threads that are not here
    const bool alone = loop() == 1;
    pool = std::make_unique<ThreadPool>(3);
    ::_exit(alone && loop() == 3 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

}  // namespace
}  // namespace ballast
