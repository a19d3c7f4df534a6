// A fuzz target: bytes go in, and whatever they are, the worst that may happen is an Error.
//
//   BALLAST_FUZZ_TARGET(gguf, read_gguf)            with void read_gguf(std::string_view)
//   BALLAST_FUZZ_TARGET(gguf, read_gguf, mutate)    and std::string mutate(std::string,
//   std::uint32_t)
//
// Under libFuzzer a file is one program; otherwise all of them are one, and listed in targets().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "formats/mutate.h"

namespace ballast::fuzz {

struct Target {
  const char* name = "";
  void (*run)(std::string_view input) = nullptr;
  /// Another input like this one; the same for the same seed.
  std::string (*mutate)(const std::string& input, std::uint32_t seed) = nullptr;
};

inline std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}

struct Registration {
  Registration(const char* name, void (*run)(std::string_view),
               std::string (*mutate)(const std::string&, std::uint32_t) = ballast::mutate) {
    targets().push_back({name, run, mutate});
  }
};

/// Ends the program: a promise was broken.
#define BALLAST_FUZZ_CHECK(holds) \
  if (!(holds)) __builtin_trap()

#if defined(BALLAST_LIBFUZZER)
#define BALLAST_FUZZ_TARGET(name, ...)                                                 \
  static const ballast::fuzz::Registration registration(#name, __VA_ARGS__);           \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  \
    ballast::fuzz::targets()[0].run({reinterpret_cast<const char*>(data), size});      \
    return 0;                                                                          \
  }                                                                                    \
  extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t, std::size_t);    \
  extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, \
                                                 std::size_t most, unsigned seed) {    \
    if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, most);                      \
    const std::string made = ballast::fuzz::targets()[0].mutate(                       \
        std::string(reinterpret_cast<const char*>(data), size), seed);                 \
    const std::size_t taken = std::min(most, made.size());                             \
    std::memcpy(data, made.data(), taken);                                             \
    return taken;                                                                      \
  }
#else
#define BALLAST_FUZZ_TARGET(name, ...) \
  static const ballast::fuzz::Registration registration(#name, __VA_ARGS__);
#endif

}  // namespace ballast::fuzz
