#include "serve/http/gate.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ballast::test {
namespace {

using namespace std::chrono_literals;
using serve::Gate;

TEST(Gate, ClientsTakeTurns) {
  Gate gate(1);
  std::mutex mutex;
  std::vector<std::string> order;
  std::vector<std::thread> threads;
  {
    const Gate::Place within = gate.enter("a");
    for (const char* client : {"a", "a", "a", "b", "c", "b"}) {
      threads.emplace_back([&, client] {
        const Gate::Place place = gate.enter(client);
        const std::scoped_lock lock(mutex);
        order.emplace_back(client);
      });
      std::this_thread::sleep_for(50ms);
    }
    EXPECT_EQ(order.size(), 0u);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, testing::ElementsAre("a", "b", "c", "a", "b", "a"));
}

TEST(Gate, WhoHasMostWaitingIsRefusedFirst) {
  Gate gate(1, 4);
  Gate::Place within = gate.enter("a");
  std::mutex mutex;
  std::vector<std::string> refused;
  std::vector<std::thread> threads;
  for (const char* client : {"a", "a", "a", "a", "b", "a", "c", "b"}) {
    threads.emplace_back([&, client] {
      try {
        gate.enter(client);
      } catch (const serve::ApiError& error) {
        EXPECT_EQ(error.status(), 429);
        const std::scoped_lock lock(mutex);
        refused.emplace_back(client);
      }
    });
    std::this_thread::sleep_for(60ms);
  }
  within.leave();
  for (std::thread& thread : threads) thread.join();
  // Two of a's for those of b and c, one of a's that came when four waited, one of b's likewise.
  EXPECT_THAT(refused, testing::UnorderedElementsAre("a", "a", "a", "b"));
}

TEST(Gate, WhoeverIsInterruptedWaitsNoLonger) {
  Gate gate(1);
  Gate::Place within = gate.enter("a");
  std::atomic<bool> wanted = true, interrupted = false;
  std::thread left([&] {
    const Interruption interruption([&] { return wanted.load(); });
    try {
      gate.enter("b");
    } catch (const Interrupted&) {
      interrupted = true;
    }
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(interrupted);
  wanted = false;
  left.join();
  EXPECT_TRUE(interrupted);
  within.leave();
  gate.enter("c");  // its place is not kept
}

}  // namespace
}  // namespace ballast::test
