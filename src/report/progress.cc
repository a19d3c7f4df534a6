#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "report/units.h"

namespace ballast {

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  --visible_;
}

std::string Progress::line(const std::string& label, double done, double seconds) {
  std::string text = fmt::format("{}  {:3.0f}%", label, 100 * done);
  // Below 1% the extrapolation is too coarse.
  if (done >= 0.01) text += fmt::format("  {} left", format_seconds(seconds * (1 - done) / done));
  return text;
}

void Progress::update(double done) {
  if (!terminal_) return;
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  if (!shown_) ++visible_;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::string text = line(label_, std::clamp(done, 0.0, 1.0), seconds);
  std::fprintf(stderr, "\r%s\033[K", text.c_str());
  std::fflush(stderr);
}

}  // namespace ballast
