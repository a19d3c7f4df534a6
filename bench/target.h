// The environment variable BALLAST_TARGET=avx2 disables the AVX-512 kernels.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "simd/cpu.h"

namespace ballast {

inline const bool forced_target = [] {
  const char* name = std::getenv("BALLAST_TARGET");
  const std::string_view target = name == nullptr ? "" : name;
  if (target.empty() || target == "native") return false;
  if (target != "avx2" || !has_avx2()) {
    std::fprintf(stderr, "BALLAST_TARGET=%s: unknown or unsupported here; known: native, avx2\n", name);
    std::exit(2);
  }
  benchmark::AddCustomContext("target", name);
  forbid_avx512();
  return true;
}();

}  // namespace ballast
