// BALLAST_TARGET=avx2 in the environment: kernels as on a processor without AVX-512.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "kernels/forced_target.h"

namespace ballast {

#if HWY_ARCH_X86
inline const auto forced_target = []() -> std::unique_ptr<test::ForcedTarget> {
  const char* name = std::getenv("BALLAST_TARGET");
  if (name == nullptr) return nullptr;
  if (std::string_view(name) != "avx2") {
    std::fprintf(stderr, "BALLAST_TARGET=%s is unknown; known: avx2\n", name);
    std::exit(2);
  }
  benchmark::AddCustomContext("target", name);
  return std::make_unique<test::ForcedTarget>(HWY_AVX2);
}();
#endif

}  // namespace ballast
