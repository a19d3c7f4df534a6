// Ranks that are the threads of one process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "ballast/engine/ranks.h"

namespace ballast::test {

/// What the threads of a test share: messages, and a table that all gather in.
class Exchange {
 public:
  explicit Exchange(std::size_t size) : size(size), table(size) {}

  void put(std::size_t from, std::size_t to, std::vector<std::byte> bytes) {
    const std::scoped_lock lock(mutex_);
    sent += bytes.size();
    messages_[{from, to}].push_back(std::move(bytes));
    changed_.notify_all();
  }
  std::vector<std::byte> take(std::size_t from, std::size_t to) {
    std::unique_lock lock(mutex_);
    auto& queue = messages_[{from, to}];
    changed_.wait(lock, [&] { return !queue.empty(); });
    std::vector<std::byte> bytes = std::move(queue.front());
    queue.pop_front();
    return bytes;
  }
  /// Waits until all ranks are here.
  void meet() {
    std::unique_lock lock(mutex_);
    const std::size_t round = round_;
    if (++here_ == size) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
  }

  const std::size_t size;
  std::vector<std::span<const std::byte>> table;
  std::size_t sent = 0;
  std::vector<std::size_t> gathered;  ///< bytes a rank, of each call

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::size_t, std::size_t>, std::deque<std::vector<std::byte>>> messages_;
  std::size_t here_ = 0, round_ = 0;
};

class ThreadRanks : public Ranks {
 public:
  ThreadRanks(Exchange& exchange, std::size_t rank) : exchange_(exchange), rank_(rank) {}

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return exchange_.size; }
  void send(std::size_t to, std::vector<std::byte> bytes) override {
    exchange_.put(rank_, to, std::move(bytes));
  }
  void receive(std::size_t from, std::span<std::byte> bytes) override {
    const std::vector<std::byte> got = exchange_.take(from, rank_);
    ASSERT_EQ(got.size(), bytes.size());
    std::ranges::copy(got, bytes.begin());
  }
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    exchange_.table[rank_] = mine;
    if (rank_ == 0) exchange_.gathered.push_back(mine.size());
    exchange_.meet();
    ASSERT_EQ(all.size(), size() * mine.size());
    for (std::size_t r = 0; r < size(); ++r) {
      std::ranges::copy(exchange_.table[r],
                        all.begin() + static_cast<std::ptrdiff_t>(r * mine.size()));
    }
    exchange_.meet();
  }

 private:
  Exchange& exchange_;
  std::size_t rank_;
};

}  // namespace ballast::test
