// How much work is done at once where others wait: by the time that it takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

namespace ballast::serve {

/// Seconds that others wait at a time.
inline constexpr double kPatience = 0.2;

/// Tokens to be read at once.
class ChunkPace {
 public:
  static constexpr std::size_t kLeast = 4, kMost = 256;

  /// kMost where no one waits, or as many as take kPatience by what was measured.
  std::size_t next(bool others_wait) const {
    if (!others_wait) return kMost;
    return std::clamp(static_cast<std::size_t>(tokens_per_second_ * kPatience), kLeast, kMost);
  }
  /// So many tokens took so long. Fewer than kLeast say nothing of more.
  void took(std::size_t tokens, double seconds) {
    if (tokens < kLeast) return;
    tokens_per_second_ = static_cast<double>(tokens) / std::max(seconds, 1e-6);
  }

 private:
  double tokens_per_second_ = 0;  ///< of the last chunk
};

/// Divides work in small pieces into turns of `most` seconds at most, or of one piece if that takes
/// longer.
class TurnPace {
 public:
  /// `now`: seconds of any clock. The first turn begins.
  explicit TurnPace(std::function<double()> now, double most = kPatience)
      : now_(std::move(now)), most_(most), begin_(now_()), last_(begin_) {}

  /// A piece is done. Whether the turn ends here, as one more like it would take too long.
  bool over() {
    const double time = now_();
    const double piece = time - last_;
    last_ = time;
    return time - begin_ + piece > most_;
  }
  void begin() { begin_ = last_ = now_(); }

 private:
  std::function<double()> now_;
  double most_, begin_, last_;
};

}  // namespace ballast::serve
