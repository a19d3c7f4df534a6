// Signals that interrupt a thread while it works with tiles.
#pragma once

#if defined(__x86_64__) && defined(__linux__)

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "simd/amx_tiles.h"

namespace ballast::test {

/// Eight tiles of `rows` rows of 64 bytes.
inline TileConfig eight_tiles(int rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = static_cast<std::uint8_t>(rows);
  }
  return config;
}

/// While it lives, SIGUSR1 has a handler that configures, loads, zeroes and releases tiles of its
/// own. Linux saves the tiles of what a signal interrupts in the signal's frame, starts the handler
/// without any, and restores them from the frame when it returns. The emulation saves nothing:
/// there the handler must leave tiles alone.
class TileSignals {
 public:
  explicit TileSignals(bool handler_uses_tiles) {
    uses_tiles_ = handler_uses_tiles;
    count_ = 0;
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGUSR1, &action, &before_);
  }
  ~TileSignals() {
    sender_ = {};
    ::sigaction(SIGUSR1, &before_, nullptr);
  }
  TileSignals(const TileSignals&) = delete;
  TileSignals& operator=(const TileSignals&) = delete;

  /// Interrupts this thread every 50 µs from now on.
  void send() {
    sender_ = std::jthread([to = ::pthread_self()](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        ::pthread_kill(to, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  /// Signals that have been handled.
  int count() const { return count_; }

 private:
  static void handle(int) {
    if (uses_tiles_) {
      alignas(64) const std::byte ones[64] = {std::byte{1}};
      alignas(64) std::byte stored[64];
      const TileScope<AmxTiles> scope(eight_tiles(1));
      AmxTiles::load<0>(ones, 64);
      AmxTiles::load<6>(ones, 64);
      AmxTiles::zero<7>();
      AmxTiles::store<0>(stored, 64);
    }
    ++count_;
  }

  static inline std::atomic<bool> uses_tiles_ = false;
  static inline std::atomic<int> count_ = 0;
  struct sigaction before_ = {};
  std::jthread sender_;
};

}  // namespace ballast::test

#endif
