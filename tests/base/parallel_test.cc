#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ballast/threads.h"

namespace ballast {
namespace {

class Parallel : public testing::Test {
 protected:
  void TearDown() override { set_threads(0); }
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
// cores, so that some come late; two callers, of whom one finds the others in use.
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
  std::thread other(call, 1);
  call(2);
  other.join();
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

TEST(WorkRange, FirstOnesInOrderLastOnesBackwards) {
  WorkRange share;
  std::size_t i = 7;
  EXPECT_FALSE(share.take_first(i));
  EXPECT_FALSE(share.take_last(i));
  share.set(3, 8);
  for (std::size_t expected : {3u, 4u}) {
    ASSERT_TRUE(share.take_first(i));
    EXPECT_EQ(i, expected);
  }
  for (std::size_t expected : {7u, 6u}) {
    ASSERT_TRUE(share.take_last(i));
    EXPECT_EQ(i, expected);
  }
  ASSERT_TRUE(share.take_last(i));
  EXPECT_EQ(i, 5u);
  EXPECT_FALSE(share.take_first(i));
  EXPECT_FALSE(share.take_last(i));
}

TEST(WorkRange, ThreadsAtBothEndsTakeEachOnce) {
  constexpr std::size_t kCount = 20000;
  WorkRange share;
  share.set(0, kCount);
  std::vector<std::atomic<int>> seen(kCount);
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&, t] {
      std::size_t i = 0;
      while (t % 2 == 0 ? share.take_first(i) : share.take_last(i)) ++seen[i];
    });
  }
  for (std::thread& thread : all) thread.join();
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(seen[i], 1) << i;
}

TEST_F(Parallel, OfSharesEveryIndexComesOnce) {
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

TEST_F(Parallel, AnExceptionComesOutOfShares) {
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
#endif

}  // namespace
}  // namespace ballast
