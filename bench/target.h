// The environment variable BALLAST_TARGET limits the kernels: amx, avx512 or avx2.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "ballast/error.h"
#include "simd/cpu.h"

namespace ballast {

inline const bool forced_target = [] {
  const char* name = std::getenv("BALLAST_TARGET");
  const std::string_view target = name == nullptr ? "" : name;
  if (target.empty() || target == "native") return false;
  try {
    use_target("BALLAST_TARGET", target);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::exit(2);
  }
  benchmark::AddCustomContext("target", name);
  return true;
}();

}  // namespace ballast
