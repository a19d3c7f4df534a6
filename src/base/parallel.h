// Parallel loops that let exceptions out.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstddef>
#include <exception>

namespace ballast {

/// Calls body(i) for i in [0, count), on OpenMP's threads when `parallel`. The first exception is
/// thrown again once all have ended.
template <typename Body>
void parallel_for(std::size_t count, Body&& body, bool parallel = true) {
  if (!parallel || count < 2 || omp_in_parallel() || omp_get_max_threads() == 1) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::exception_ptr failure;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
#pragma omp parallel for schedule(dynamic, 1)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ballast
