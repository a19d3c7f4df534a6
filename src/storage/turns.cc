#include "storage/turns.h"

#include <bit>
#include <cmath>
#include <vector>

namespace ballast {

std::shared_ptr<const Turns> Turns::of(const Rotary& rotary) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<const Turns>> known;
  if (rotary.frequencies.empty()) return nullptr;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& turns) { return turns.expired(); });
  for (const auto& turns : known) {
    if (auto held = turns.lock(); held != nullptr && held->rotary() == rotary) return held;
  }
  auto made = std::make_shared<const Turns>(rotary);
  known.push_back(made);
  return made;
}

Turns::Turns(const Rotary& rotary)
    : rotary_(rotary),
      columns_(allocate_aligned<float>(2 * count() * kTogether)),
      near_(allocate_aligned<float>(2 * count() * kTogether)) {
  for (std::size_t f = 0; f < count(); ++f) {
    for (std::size_t j = 0; j < kTogether; ++j) {
      const double angle = static_cast<double>(j) * double{rotary.frequencies[f]};
      const auto cosine = static_cast<float>(std::cos(angle));
      const auto sine = static_cast<float>(std::sin(angle));
      columns_[2 * f * kTogether + j] = cosine;
      columns_[(2 * f + 1) * kTogether + j] = sine;
      near_[2 * j * count() + f] = cosine;
      near_[(2 * j + 1) * count() + f] = sine;
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
