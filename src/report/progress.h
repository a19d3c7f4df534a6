// How far work has come and how long it will take.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>

namespace ballast {

/// Shows "label  42%  1 min 20 s left" on standard error, once the work has taken two seconds: in
/// place on a terminal, which is cleared at the end; else a line every 30 seconds. Work that will
/// take over a minute is announced by a line first, as soon as its pace is known. Safe to update
/// from any thread.
class Progress {
 public:
  /// `cost`: the share of the work that is done at a fraction of its tokens; null: the same.
  explicit Progress(std::string label, std::function<double(double)> cost = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// done: the fraction that is done, 0 to 1.
  void update(double done);

  /// Whether the line is visible now. Safe in signal handlers.
  static bool visible() { return visible_ > 0; }

  /// The line itself.
  static std::string line(const std::string& label, double done, double seconds);
  /// "label: about 3 min in all"; empty where that is no minute or not known yet.
  static std::string announcement(const std::string& label, double done, double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  static inline std::atomic<int> visible_ = 0;
  static_assert(std::atomic<int>::is_always_lock_free, "signal handlers read it");

  std::string label_;
  std::function<double(double)> cost_;
  bool terminal_;
  bool shown_ = false;
  bool announced_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_ + std::chrono::seconds(2);
  Clock::time_point next_line_ = begin_ + std::chrono::seconds(30);  ///< without a terminal
  std::mutex mutex_;
};

}  // namespace ballast
