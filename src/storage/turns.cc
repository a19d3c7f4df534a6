#include "storage/turns.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

namespace ballast {

namespace {

struct KnownTurns {
  std::mutex mutex;
  std::vector<std::weak_ptr<const Turns>> all;
};

/// Never destroyed: caches may outlive what is static.
KnownTurns& known_turns() {
  static KnownTurns& known = *new KnownTurns;
  return known;
}

void forget_turns(const Turns* turns) {
  delete turns;
  KnownTurns& known = known_turns();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [](const auto& one) { return one.expired(); });
}

}  // namespace

std::shared_ptr<const Turns> Turns::of(const Rotary& rotary) {
  if (rotary.frequencies.empty()) return nullptr;
  KnownTurns& known = known_turns();
  // Released, and with them forgotten, outside of the lock.
  std::shared_ptr<const Turns> made;
  std::vector<std::shared_ptr<const Turns>> seen;
  const auto find = [&]() -> std::shared_ptr<const Turns> {
    seen.reserve(known.all.size());
    for (const auto& turns : known.all) {
      if (auto held = turns.lock(); held != nullptr) seen.push_back(std::move(held));
    }
    for (const auto& held : seen) {
      if (held->rotary() == rotary) return held;
    }
    return nullptr;
  };
  {
    const std::lock_guard lock(known.mutex);
    if (auto held = find()) return held;
  }
  seen.clear();
  made = std::shared_ptr<const Turns>(new Turns(rotary), forget_turns);
  const std::lock_guard lock(known.mutex);
  if (auto held = find()) return held;  // another thread was first
  known.all.push_back(made);
  return made;
}

namespace {

/// Pairs before those that all turn slowly; all, where so few do that polynomials spare nothing.
std::size_t fast_pairs(const std::vector<float>& frequencies) {
  std::size_t fast = frequencies.size();
  while (fast > 0 && std::abs(frequencies[fast - 1]) <= Turns::kSlow) --fast;
  return frequencies.size() - fast > Turns::kBasis ? fast : frequencies.size();
}

/// Factors of the Chebyshev polynomials that make up a function of j in [0, kTogether - 1].
template <typename Function>
void fit_polynomials(const Function& function, float* factors) {
  constexpr int kNodes = 32;
  constexpr double kHalf = (Turns::kTogether - 1) / 2.0;
  for (std::size_t k = 0; k < Turns::kBasis; ++k) {
    double sum = 0;
    for (int m = 0; m < kNodes; ++m) {
      const double angle = std::numbers::pi * (m + 0.5) / kNodes;
      sum += function(kHalf * (std::cos(angle) + 1)) * std::cos(static_cast<double>(k) * angle);
    }
    factors[k] = static_cast<float>(sum * (k == 0 ? 1 : 2) / kNodes);
  }
}

}  // namespace

Turns::Turns(const Rotary& rotary)
    : rotary_(rotary),
      fast_(fast_pairs(rotary.frequencies)),
      columns_(allocate_aligned<float>((2 * fast_ + kBasis) * kTogether)),
      factors_(allocate_aligned<float>(2 * (count() - fast_) * kBasis)),
      near_(allocate_aligned<float>(2 * count() * kTogether)) {
  for (std::size_t f = 0; f < count(); ++f) {
    for (std::size_t j = 0; j < kTogether; ++j) {
      const double angle = static_cast<double>(j) * double{rotary.frequencies[f]};
      const auto cosine = static_cast<float>(std::cos(angle));
      const auto sine = static_cast<float>(std::sin(angle));
      if (f < fast_) {
        columns_[f * kTogether + j] = cosine;
        columns_[(fast_ + f) * kTogether + j] = sine;
      }
      near_[2 * j * count() + f] = cosine;
      near_[(2 * j + 1) * count() + f] = sine;
    }
  }
  for (std::size_t f = fast_; f < count(); ++f) {
    const double frequency{rotary.frequencies[f]};
    float* const factors = factors_.get() + 2 * (f - fast_) * kBasis;
    fit_polynomials([&](double j) { return std::cos(frequency * j); }, factors);
    fit_polynomials([&](double j) { return std::sin(frequency * j); }, factors + kBasis);
  }
  for (std::size_t k = 0; k < kBasis; ++k) {
    for (std::size_t j = 0; j < kTogether; ++j) {
      const double x = 2.0 * static_cast<double>(j) / (kTogether - 1) - 1;
      columns_[(2 * fast_ + k) * kTogether + j] =
          static_cast<float>(std::cos(static_cast<double>(k) * std::acos(x)));
    }
  }
}

void Turns::at(Position n, float* cosines, float* sines) const {
  const auto position = static_cast<std::size_t>(n);
  if (position / kTogether >= kMostFar) {
    for (std::size_t f = 0; f < count(); ++f) {
      const double angle = static_cast<double>(position) * double{rotary_.frequencies[f]};
      cosines[f] = rotary_.magnitude * static_cast<float>(std::cos(angle));
      sines[f] = rotary_.magnitude * static_cast<float>(std::sin(angle));
    }
    return;
  }
  const float* const far = this->far(position / kTogether);
  const float* const near = near_.get() + position % kTogether * 2 * count();
  for (std::size_t f = 0; f < count(); ++f) {
    const float a = far[f], b = far[count() + f], c = near[f], d = near[count() + f];
    cosines[f] = a * c - b * d;
    sines[f] = a * d + b * c;
  }
}

const float* Turns::far(std::size_t h) const {
  const std::size_t width = 2 * count();
  if (ready_.load(std::memory_order_acquire) <= h) {
    const std::lock_guard lock(growing_);
    std::size_t ready = ready_.load(std::memory_order_relaxed);
    while (ready <= h) {
      const std::size_t part = std::bit_width(ready / kFirst + 1) - 1, rows = kFirst << part;
      far_[part] = allocate_aligned<float>(rows * width);
      for (std::size_t i = 0; i < rows; ++i) {
        float* const row = far_[part].get() + i * width;
        for (std::size_t f = 0; f < count(); ++f) {
          const double angle =
              static_cast<double>((ready + i) * kTogether) * double{rotary_.frequencies[f]};
          row[f] = rotary_.magnitude * static_cast<float>(std::cos(angle));
          row[count() + f] = rotary_.magnitude * static_cast<float>(std::sin(angle));
        }
      }
      ready += rows;
      ready_.store(ready, std::memory_order_release);
    }
  }
  const std::size_t part = std::bit_width(h / kFirst + 1) - 1;
  const std::size_t begin = ((std::size_t{1} << part) - 1) * kFirst;
  return far_[part].get() + (h - begin) * width;
}

}  // namespace ballast
