// Runs the library's tile instructions on a processor that has none: each raises SIGILL, whose
// handler carries it out. So the compiled kernels are tested, and not their source alone.
#pragma once

#if defined(__x86_64__) && defined(__linux__)

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>

#include "simd/cpu.h"
#include "simd/tile_file.h"

namespace ballast::test {

/// While it lives, has_amx_int8() is true where has_avx512_vnni() is, has_amx_bf16() where
/// has_avx512_bf16() is, and tile instructions of all threads work. Where the processor has tiles,
/// it does the work.
class TrappedTiles {
 public:
  TrappedTiles() : real_(has_amx_int8()) {
    products_ = 0;
    if (real_) return;
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGILL, &action, &before_);
    force_amx(true);
  }
  ~TrappedTiles() {
    if (real_) return;
    force_amx({});
    ::sigaction(SIGILL, &before_, nullptr);
  }
  TrappedTiles(const TrappedTiles&) = delete;
  TrappedTiles& operator=(const TrappedTiles&) = delete;

  /// Products that have been carried out here, by all threads.
  std::size_t products() const { return products_; }
  /// Whether the processor does the work.
  bool real() const { return real_; }

 private:
  /// A decoded instruction: three-byte VEX, map 0F38, opcodes 49, 4B, 5C and 5E.
  struct Instruction {
    std::uint8_t prefix = 0;  ///< pp: none, 66, F3, F2
    std::uint8_t opcode = 0;
    int reg = 0, rm = 0, v = 0;  ///< tiles
    bool in_registers = false;
    std::size_t address = 0, index = 0;  ///< base + displacement; the index times its scale
    std::size_t bytes = 0;
  };

  static std::size_t register_of(const ucontext_t& context, int i) {
    static constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<std::size_t>(context.uc_mcontext.gregs[kOrder[i]]);
  }

  static bool decode(const ucontext_t& context, Instruction& out) {
    const auto start = static_cast<std::size_t>(context.uc_mcontext.gregs[REG_RIP]);
    const auto* p = reinterpret_cast<const std::uint8_t*>(start);
    if (p[0] != 0xc4 || (p[1] & 0x1f) != 2 || (p[2] & 0x84) != 0) return false;  // W0, L0
    const int more_reg = (p[1] & 0x80) != 0 ? 0 : 8, more_index = (p[1] & 0x40) != 0 ? 0 : 8;
    const int more_base = (p[1] & 0x20) != 0 ? 0 : 8;
    out.v = ~(p[2] >> 3) & 15;
    out.prefix = p[2] & 3;
    out.opcode = p[3];
    const int mod = p[4] >> 6, low = p[4] & 7;
    out.reg = (p[4] >> 3 & 7) + more_reg;
    out.rm = low + more_base;
    p += 5;
    out.in_registers = mod == 3;
    if (!out.in_registers) {
      bool relative = mod == 0 && low == 5;
      int base = low + more_base;
      if (low == 4) {
        const int index = (*p >> 3 & 7) + more_index;
        if (index != 4) out.index = register_of(context, index) << (*p >> 6);
        base = (*p & 7) + more_base;
        if (mod == 0 && (*p & 7) == 5) return false;  // no base: compilers do not write it
        ++p;
      }
      std::int32_t displacement = 0;
      if (mod == 1) displacement = static_cast<std::int8_t>(*p++);
      if (mod == 2 || relative) {
        std::memcpy(&displacement, p, 4);
        p += 4;
      }
      const std::size_t end = reinterpret_cast<std::size_t>(p);
      out.address = (relative ? end : register_of(context, base)) +
                    static_cast<std::size_t>(std::int64_t{displacement});
    }
    out.bytes = reinterpret_cast<std::size_t>(p) - start;
    return true;
  }

  static bool carry_out(const Instruction& i) {
    constexpr int kNone = 0, k66 = 1, kF3 = 2, kF2 = 3;
    TileFile& file = tile_file();
    switch (i.opcode << 2 | i.prefix) {
      case 0x49 << 2 | kNone: {
        if (i.in_registers) {
          file.release();
          return true;
        }
        TileConfig config;
        std::memcpy(&config, reinterpret_cast<const void*>(i.address + i.index), sizeof(config));
        file.configure(config);
        return true;
      }
      case 0x49 << 2 | kF2:
        file.zero(i.reg);
        return true;
      case 0x4b << 2 | kF2:
      case 0x4b << 2 | k66:
        file.load(i.reg, reinterpret_cast<const void*>(i.address), i.index);
        return true;
      case 0x4b << 2 | kF3:
        file.store(i.reg, reinterpret_cast<void*>(i.address), i.index);
        return true;
      case 0x5e << 2 | kF2:
      case 0x5e << 2 | k66:
        file.dot_add(i.reg, i.rm, i.v, i.prefix == k66);
        products_.fetch_add(1, std::memory_order_relaxed);
        return true;
      case 0x5c << 2 | kF3:
        file.dot_add_bf16(i.reg, i.rm, i.v);
        products_.fetch_add(1, std::memory_order_relaxed);
        return true;
      default:
        return false;
    }
  }

  static void handle(int, siginfo_t*, void* raw) {
    auto& context = *static_cast<ucontext_t*>(raw);
    Instruction instruction;
    if (decode(context, instruction)) {
      try {
        if (carry_out(instruction)) {
          context.uc_mcontext.gregs[REG_RIP] += static_cast<std::int64_t>(instruction.bytes);
          return;
        }
      } catch (const std::exception& e) {
        static_cast<void>(!::write(STDERR_FILENO, e.what(), std::strlen(e.what())));
      }
    }
    ::signal(SIGILL, SIG_DFL);  // the instruction runs again, and ends the test
  }

  const bool real_;
  struct sigaction before_ = {};
  static inline std::atomic<std::size_t> products_ = 0;
};

}  // namespace ballast::test

#endif
