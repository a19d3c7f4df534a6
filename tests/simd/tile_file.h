// Tiles of AMX in C++, by the description of each instruction in Intel's manual (volume 2): what
// the kernels' packing and loops do is checked where no processor has them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "simd/amx_tiles.h"

namespace ballast::test {

/// What a processor might do otherwise with products of bfloat16: for tests that it is found.
struct Bf16Faults {
  bool one_by_one = false;  ///< all products of a step are added one by one
  /// Subnormal elements of the first and of the second operand, sums of products on the way, and
  /// sums of a step's two halves and of steps stay as they are.
  bool keeps_first = false, keeps_second = false, keeps_products = false, keeps_sums = false;
};
inline Bf16Faults bf16_faults;

/// The tile registers of a thread. What faults on a processor throws.
class TileFile {
 public:
  static constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

  void configure(const TileConfig& config) {
    check(config.palette == 1 && config.start_row == 0, "palette");
    for (const auto byte : config.reserved) check(byte == 0, "reserved bytes");
    for (int t = 0; t < 16; ++t) {
      const bool used = t < kTiles;
      check(config.row_bytes[t] <= (used ? kRowBytes : 0), "bytes of a row");
      check(config.rows[t] <= (used ? kRows : 0), "rows");
      check((config.rows[t] == 0) == (config.row_bytes[t] == 0), "an empty tile");
    }
    config_ = config;
    configured_ = true;
    std::memset(bytes_, 0, sizeof(bytes_));
  }
  void release() {
    configured_ = false;
    std::memset(bytes_, 0, sizeof(bytes_));
  }
  bool configured() const { return configured_; }

  void zero(int tile) {
    check_tile(tile);
    std::memset(bytes_[tile], 0, sizeof(bytes_[tile]));
  }
  void load(int tile, const void* p, std::size_t stride) {
    zero(tile);
    for (int r = 0; r < config_.rows[tile]; ++r) {
      const auto* row = static_cast<const std::byte*>(p) + static_cast<std::size_t>(r) * stride;
      std::memcpy(bytes_[tile][r], row, config_.row_bytes[tile]);
    }
  }
  void store(int tile, void* p, std::size_t stride) {
    check_tile(tile);
    for (int r = 0; r < config_.rows[tile]; ++r) {
      auto* row = static_cast<std::byte*>(p) + static_cast<std::size_t>(r) * stride;
      std::memcpy(row, bytes_[tile][r], config_.row_bytes[tile]);
    }
  }
  /// tdpbssd, or tdpbusd, where a is unsigned.
  void dot_add(int sum, int a, int b, bool is_unsigned = false) {
    check_product(sum, a, b);
    const int depth = config_.row_bytes[a];
    for (int m = 0; m < config_.rows[sum]; ++m) {
      for (int n = 0; n < config_.row_bytes[sum] / 4; ++n) {
        std::int32_t total;
        std::memcpy(&total, bytes_[sum][m] + 4 * n, 4);
        for (int q = 0; q < depth / 4; ++q) {
          for (int i = 0; i < 4; ++i) {
            const std::uint8_t byte = bytes_[a][m][4 * q + i];
            const int x = is_unsigned ? byte : static_cast<std::int8_t>(byte);
            const auto y = static_cast<std::int8_t>(bytes_[b][q][4 * n + i]);
            total = static_cast<std::int32_t>(static_cast<std::uint32_t>(total) +
                                              static_cast<std::uint32_t>(x * y));
          }
        }
        std::memcpy(bytes_[sum][m] + 4 * n, &total, 4);
      }
    }
  }
  /// tdpbf16ps
  void dot_add_bf16(int sum, int a, int b) {
    check_product(sum, a, b);
    const int depth = config_.row_bytes[a];
    for (int m = 0; m < config_.rows[sum]; ++m) {
      for (int n = 0; n < config_.row_bytes[sum] / 4; ++n) {
        float parts[2] = {};
        for (int q = 0; q < depth / 4; ++q) {
          for (int i = 0; i < 2; ++i) {
            const float x = bf16(bytes_[a][m] + 4 * q + 2 * i, bf16_faults.keeps_first);
            const float y = bf16(bytes_[b][q] + 4 * n + 2 * i, bf16_faults.keeps_second);
            float& part = parts[bf16_faults.one_by_one ? 0 : i];
            part = flushed(std::fma(x, y, part), bf16_faults.keeps_products);
          }
        }
        float total;
        std::memcpy(&total, bytes_[sum][m] + 4 * n, 4);
        const bool keeps = bf16_faults.keeps_sums;
        total = flushed(flushed(total, keeps) + flushed(parts[0] + parts[1], keeps), keeps);
        std::memcpy(bytes_[sum][m] + 4 * n, &total, 4);
      }
    }
  }

 private:
  static float flushed(float x, bool keeps) {
    return std::fpclassify(x) == FP_SUBNORMAL && !keeps ? std::copysign(0.0f, x) : x;
  }
  static float bf16(const std::uint8_t* at, bool keeps) {
    const std::uint32_t bits = std::uint32_t{at[1]} << 24 | std::uint32_t{at[0]} << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return flushed(x, keeps);
  }
  void check_product(int sum, int a, int b) const {
    for (int tile : {sum, a, b}) check_tile(tile);
    check(sum != a && sum != b && a != b, "tiles of a product are the same");
    const int depth = config_.row_bytes[a];
    check(config_.rows[a] == config_.rows[sum] && config_.row_bytes[b] == config_.row_bytes[sum] &&
              config_.row_bytes[sum] % 4 == 0 && depth % 4 == 0 && config_.rows[b] == depth / 4,
          "shapes of a product");
  }
  static void check(bool right, const char* what) {
    if (!right) throw std::logic_error(std::string("tiles: wrong ") + what);
  }
  void check_tile(int tile) const {
    check(configured_ && tile >= 0 && tile < kTiles && config_.rows[tile] > 0, "configuration");
  }

  bool configured_ = false;
  TileConfig config_;
  std::uint8_t bytes_[kTiles][kRows][kRowBytes] = {};
};

/// Of this thread.
inline TileFile& tile_file() {
  thread_local TileFile file;
  return file;
}

/// In place of AmxTiles.
struct EmulatedTiles {
  static void configure(const TileConfig& config) { tile_file().configure(config); }
  static void release() { tile_file().release(); }
  template <int tile>
  static void zero() {
    tile_file().zero(tile);
  }
  template <int tile>
  static void load(const void* p, std::size_t stride) {
    tile_file().load(tile, p, stride);
  }
  template <int tile>
  static void store(void* p, std::size_t stride) {
    tile_file().store(tile, p, stride);
  }
  template <int sum, int a, int b>
  static void dot_add() {
    tile_file().dot_add(sum, a, b);
  }
  template <int sum, int a, int b>
  static void dot_add_unsigned() {
    tile_file().dot_add(sum, a, b, true);
  }
  template <int sum, int a, int b>
  static void dot_add_bf16() {
    tile_file().dot_add_bf16(sum, a, b);
  }
};

}  // namespace ballast::test
