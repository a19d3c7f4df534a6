// Parallel loops that let exceptions out.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>

namespace ballast {

/// A loop's body, whatever its type: body(context, i).
using LoopBody = void (*)(void* context, std::size_t i);

/// Calls body(context, i), which may not throw, for i in [0, count), on threads() threads.
void run_loop(std::size_t count, LoopBody body, void* context);

/// Calls body(i) for i in [0, count), on threads() threads when `parallel`, each i once and in no
/// order. Inside another such loop, or while another thread runs one, the caller does it alone; so
/// does a child process (fork). The first exception is thrown again once all have ended.
template <typename Body>
void parallel_for(std::size_t count, Body&& body, bool parallel = true) {
  if (!parallel || count < 2) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::exception_ptr failure;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  auto safe = [&](std::size_t i) {
    try {
      body(i);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  };
  run_loop(
      count, [](void* context, std::size_t i) { (*static_cast<decltype(safe)*>(context))(i); },
      &safe);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ballast
