#include "attention/rotary.h"

#include <bit>
#include <cmath>

#include "attention/kernels/rotate.h"

namespace ballast {

void rotation_at(const Rotary& rotary, double position, std::span<float> table) {
  for (std::size_t i = 0; i < rotary.frequencies.size(); ++i) {
    const double angle = position * double{rotary.frequencies[i]};
    table[2 * i] = rotary.magnitude * static_cast<float>(std::cos(angle));
    table[2 * i + 1] = rotary.magnitude * static_cast<float>(std::sin(angle));
  }
}

void rotate(const Rotary& rotary, std::span<const float> table, std::size_t head_dim,
            std::span<float> row) {
  const std::size_t half = rotary.frequencies.size();
  for (std::size_t at = 0; at < row.size(); at += head_dim) {
    float* head = row.data() + at;
    if (rotary.pairs) {
      kernels::rotate_adjacent(table.data(), half, head);
    } else {
      kernels::rotate_apart(table.data(), half, head, head + half);
    }
  }
}

std::size_t RotaryTable::block_of(std::size_t position, std::size_t& begin) {
  const std::size_t block = std::bit_width(position / kFirst + 1) - 1;
  begin = ((std::size_t{1} << block) - 1) * kFirst;
  return block;
}

void RotaryTable::reach(std::size_t count) {
  if (ready_.load(std::memory_order_acquire) >= count) return;
  const std::lock_guard<std::mutex> lock(growing_);
  std::size_t ready = ready_.load(std::memory_order_relaxed);
  while (ready < count) {
    std::size_t begin = 0;
    const std::size_t block = block_of(ready, begin);
    const std::size_t size = kFirst << block;
    blocks_[block] = allocate_aligned<float>(size * width());
    for (std::size_t i = 0; i < size; ++i) {
      rotation_at(rotary_, static_cast<double>(begin + i),
                  {blocks_[block].get() + i * width(), width()});
    }
    ready = begin + size;
    ready_.store(ready, std::memory_order_release);
  }
}

std::span<const float> RotaryTable::at(std::size_t position) const {
  std::size_t begin = 0;
  const std::size_t block = block_of(position, begin);
  return {blocks_[block].get() + (position - begin) * width(), width()};
}

std::size_t RotaryTable::bytes_for(std::size_t count, std::size_t frequencies) {
  std::size_t begin = 0;
  const std::size_t block = count == 0 ? 0 : block_of(count - 1, begin);
  const std::size_t ready = count == 0 ? 0 : begin + (kFirst << block);
  return ready * 2 * frequencies * sizeof(float);
}

std::size_t RotaryTable::bytes() const { return ready_.load() * width() * sizeof(float); }

}  // namespace ballast
