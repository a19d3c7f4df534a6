// A progress line on the terminal.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

namespace ballast {

/// Shows "label  42%  1 min 20 s left" on standard error, in place, when that is a terminal and
/// the work has taken two seconds. Removes the line at the end. Safe to update from any thread.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// done: the fraction that is done, 0 to 1.
  void update(double done);

  /// Whether the line is visible now. Safe in signal handlers.
  static bool visible() { return visible_ > 0; }

  /// The line itself.
  static std::string line(const std::string& label, double done, double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  static inline std::atomic<int> visible_ = 0;
  static_assert(std::atomic<int>::is_always_lock_free, "signal handlers read it");

  std::string label_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_ + std::chrono::seconds(2);
  std::mutex mutex_;
};

}  // namespace ballast
