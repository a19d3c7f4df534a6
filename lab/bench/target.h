// The environment variable BALLAST_TARGET limits the kernels: amx, avx512 or avx2. The context of
// results says so, and why bfloat16 tiles are refused.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ballast/error.h"
#include "simd/cpu.h"

namespace ballast {

inline const bool forced_target = [] {
  const char* name = std::getenv("BALLAST_TARGET");
  const std::string_view target = name == nullptr ? "" : name;
  const bool forced = !target.empty() && target != "native";
  try {
    if (forced) use_target("BALLAST_TARGET", target);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::exit(2);
  }
  if (forced) benchmark::AddCustomContext("target", name);
  const std::string refusal = amx_bf16_refusal();
  if (!refusal.empty()) benchmark::AddCustomContext("bf16_tiles_refused", refusal);
  return forced;
}();

}  // namespace ballast
