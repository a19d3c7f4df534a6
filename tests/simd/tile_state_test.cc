// What becomes of a thread's tiles under signals, fork() and other threads. On the emulation these
// tests check themselves and no more: there is no kernel that saves tiles.
#include <gtest/gtest.h>

#include "simd/tile_signals.h"
#include "simd/trapped_tiles.h"

#if defined(__x86_64__) && defined(__linux__)

#include <sys/wait.h>

#include <cstring>
#include <future>
#include <latch>
#include <random>
#include <utility>

#include "base/stopwatch.h"

namespace ballast {
namespace {

using test::eight_tiles;

/// The bytes of eight tiles.
struct alignas(64) TileData {
  std::byte of[8][16 * 64];

  bool operator==(const TileData& other) const {
    return std::memcmp(of, other.of, sizeof(of)) == 0;
  }
};

TileData random_data(std::uint32_t seed) {
  std::mt19937 random(seed);
  TileData data;
  for (auto& tile : data.of) {
    for (std::byte& byte : tile) byte = static_cast<std::byte>(random());
  }
  return data;
}

template <typename Use>
void for_tiles(const Use& use) {
  [&]<int... tile>(std::integer_sequence<int, tile...>) { (use.template operator()<tile>(), ...); }
  (std::make_integer_sequence<int, 8>());
}
void load(const TileData& data) {
  for_tiles([&]<int tile>() { AmxTiles::load<tile>(data.of[tile], 64); });
}
TileData stored() {
  TileData data;
  for_tiles([&]<int tile>() { AmxTiles::store<tile>(data.of[tile], 64); });
  return data;
}

class TileState : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx512_vnni()) GTEST_SKIP() << "needs AVX-512 VNNI beside the emulated tiles";
  }
};

TEST_F(TileState, ASignalsHandlerHasTilesOfItsOwn) {
  const test::TrappedTiles tiles;
  const test::TileSignals signals(tiles.real());
  for (int i = 0; i < 200; ++i) {
    const TileData data = random_data(static_cast<std::uint32_t>(i));
    const TileScope<AmxTiles> scope(eight_tiles(16));
    load(data);
    ::raise(SIGUSR1);
    ASSERT_EQ(stored(), data) << "signal " << i;
    ASSERT_EQ(signals.count(), i + 1);
  }
  if (!tiles.real()) GTEST_SKIP() << "no AMX: the handler used no tiles";
}

TEST_F(TileState, SignalsAmongProductsChangeNoSum) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer holds signals back until a system call";
#endif
  constexpr int kProducts = 500, kSignals = 100;
  const test::TrappedTiles tiles;
  const TileData data = random_data(1);
  TileData expected = data;
  test::TileFile reference;
  reference.configure(eight_tiles(16));
  for (int tile = 0; tile < 8; ++tile) reference.load(tile, data.of[tile], 64);
  for (int i = 0; i < kProducts; ++i) {
    reference.dot_add(0, 4, 6);
    reference.dot_add(1, 5, 7, true);
  }
  for (int tile = 0; tile < 2; ++tile) reference.store(tile, expected.of[tile], 64);
  test::TileSignals signals(tiles.real());
  signals.send();
  int among_products = 0;
  const Stopwatch watch;
  while (among_products < kSignals) {
    ASSERT_LT(watch.seconds(), 120) << among_products << " signals";
    const TileScope<AmxTiles> scope(eight_tiles(16));
    load(data);
    const int before = signals.count();
    for (int i = 0; i < kProducts; ++i) {
      AmxTiles::dot_add<0, 4, 6>();
      AmxTiles::dot_add_unsigned<1, 5, 7>();
    }
    among_products += signals.count() - before;
    ASSERT_EQ(stored(), expected) << "after " << signals.count() << " signals";
  }
  if (!tiles.real()) GTEST_SKIP() << "no AMX: the handler used no tiles";
}

// A child inherits the permission, and no data. What it configures is zeros, as everywhere.
TEST_F(TileState, AForkedChildHasTilesOfItsOwn) {
  const test::TrappedTiles tiles;
  const TileData data = random_data(1), of_child = random_data(2), zeros = {};
  const TileScope<AmxTiles> scope(eight_tiles(16));
  load(data);
  const pid_t child = ::fork();
  if (child == 0) {
    const TileScope<AmxTiles> own(eight_tiles(16));
    const bool begins_with_zeros = stored() == zeros;
    load(of_child);
    ::_exit(begins_with_zeros && stored() == of_child ? 0 : 1);
  }
  int status = -1;
  const pid_t ended = ::waitpid(child, &status, 0);
  EXPECT_EQ(stored(), data) << "of the parent";
  ASSERT_EQ(ended, child);
  EXPECT_EQ(status, 0) << "of the child";
  if (!tiles.real()) GTEST_SKIP() << "no AMX: the child had a copy of the emulation";
}

// The permission is the process's: ctest runs each test in a process, so this one asks first.
TEST_F(TileState, AThreadThatIsOlderThanThePermissionHasIt) {
  const auto works = [](std::uint32_t seed) {
    const TileData data = random_data(seed);
    const TileScope<AmxTiles> scope(eight_tiles(16));
    load(data);
    std::this_thread::yield();
    return stored() == data;
  };
  std::latch asked(1);
  auto older = std::async(std::launch::async, [&] {
    asked.wait();
    return works(1);
  });
  const test::TrappedTiles tiles;
  asked.count_down();
  auto younger = std::async(std::launch::async, [&] { return works(2); });
  EXPECT_TRUE(works(3));
  EXPECT_TRUE(older.get());
  EXPECT_TRUE(younger.get());
  if (!tiles.real()) GTEST_SKIP() << "no AMX: the emulation needs no permission";
}

}  // namespace
}  // namespace ballast

#endif
