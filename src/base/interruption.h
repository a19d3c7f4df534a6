// Long work that ends before its end, because nobody wants its result any more.
#pragma once

#include <chrono>
#include <functional>

namespace ballast {

/// Thrown by Interruption::check().
struct Interrupted {};

/// As long as it lives, check() on its thread throws Interrupted once `wanted` returns false, which
/// is asked at most a hundred times a second.
class Interruption {
 public:
  explicit Interruption(std::function<bool()> wanted);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  /// Called by work that may take long. Does nothing on threads that have no Interruption.
  static void check() {
    if (due()) throw Interrupted();
  }
  /// Whether check() would throw: for where nothing may be thrown.
  static bool due() { return current_ != nullptr && current_->ask(); }

 private:
  bool ask();

  static inline thread_local Interruption* current_ = nullptr;
  std::function<bool()> wanted_;
  std::chrono::steady_clock::time_point next_{};
  bool due_ = false;
  Interruption* outer_;
};

inline Interruption::Interruption(std::function<bool()> wanted)
    : wanted_(std::move(wanted)), outer_(current_) {
  current_ = this;
}

inline Interruption::~Interruption() { current_ = outer_; }

inline bool Interruption::ask() {
  const auto now = std::chrono::steady_clock::now();
  if (now >= next_) {
    next_ = now + std::chrono::milliseconds(10);
    due_ = !wanted_();
  }
  return due_;
}

}  // namespace ballast
