// The threads of the test's process.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

namespace ballast::test {

/// Threads of this process, once they are `expected`; after `wait` those that there are.
inline std::size_t process_threads(std::size_t expected,
                                   std::chrono::seconds wait = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + wait;
  while (true) {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    const auto count =
        static_cast<std::size_t>(std::distance(begin(tasks), std::filesystem::end(tasks)));
    // A thread that was joined is listed for a moment longer.
    if (count == expected || std::chrono::steady_clock::now() > end) return count;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Threads of this process, once those that tests before this one joined are gone.
inline std::size_t process_threads() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return process_threads(0, std::chrono::seconds(0));
}

}  // namespace ballast::test
