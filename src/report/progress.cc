#include "report/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/os/files.h"
#include "report/units.h"

namespace ballast {
namespace {

/// Below it the extrapolation is too coarse.
constexpr double kKnown = 0.01;

}  // namespace

Progress::Progress(std::string label, std::function<double(double)> cost)
    : label_(std::move(label)), cost_(std::move(cost)), terminal_(is_terminal(Stream::error)) {}

Progress::~Progress() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  --visible_;
}

std::string Progress::line(const std::string& label, double done, double seconds) {
  std::string text = fmt::format("{}  {:3.0f}%", label, 100 * done);
  if (done >= kKnown) {
    text += fmt::format("  {} left", format_seconds(seconds * (1 - done) / done));
  }
  return text;
}

std::string Progress::announcement(const std::string& label, double done, double seconds) {
  if (done < kKnown || seconds / done < 60) return "";
  const double minutes = seconds / done / 60;
  return minutes < 90 ? fmt::format("{}: about {:.0f} min in all", label, minutes)
                      : fmt::format("{}: about {:.1f} h in all", label, minutes / 60);
}

void Progress::update(double done) {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  done = std::clamp(done, 0.0, 1.0);
  if (cost_) done = std::clamp(cost_(done), 0.0, 1.0);
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  if (!announced_ && done >= kKnown) {
    announced_ = true;
    const std::string text = announcement(label_, done, seconds);
    if (!text.empty()) std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\033[K" : "", text.c_str());
  }
  const std::string text = line(label_, done, seconds);
  if (!terminal_) {
    if (now < next_line_) return;
    next_line_ = now + std::chrono::seconds(30);
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  if (!shown_) ++visible_;
  shown_ = true;
  std::fprintf(stderr, "\r%s\033[K", text.c_str());
  std::fflush(stderr);
}

}  // namespace ballast
