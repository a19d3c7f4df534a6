#include "summary/sample_slots.h"

#include <algorithm>
#include <cmath>

#include "ballast/serialize.h"
#include "base/fail.h"

namespace ballast {

SampleSlots::SampleSlots(const SummarySetup& setup, std::size_t value_dim, std::size_t slots)
    : store_(setup.key_type, setup.key_dim, setup.value_type, value_dim, slots),
      entry_(slots, kNone),
      next_(slots, kNone),
      head_(slots, kNone),
      count_(slots, 0),
      tag_(slots, 0.0f) {}

std::size_t SampleSlots::bytes() const {
  return store_.bytes() + entry_.size() * (4 * sizeof(std::uint32_t) + sizeof(float));
}

void SampleSlots::link(std::size_t slot, std::uint32_t entry) {
  entry_[slot] = entry;
  next_[slot] = head_[entry];
  head_[entry] = static_cast<std::uint32_t>(slot);
  ++count_[entry];
}

void SampleSlots::release(std::size_t slot) {
  const std::uint32_t entry = entry_[slot];
  if (entry == kNone) return;
  std::uint32_t* at = &head_[entry];
  while (*at != slot) at = &next_[*at];
  *at = next_[slot];
  entry_[slot] = next_[slot] = kNone;
  if (--count_[entry] != 0) return;
  // The last entry takes the place of the one that no slot holds any more.
  const std::size_t last = store_.size() - 1;
  store_.erase(entry);
  if (entry == last) return;
  head_[entry] = head_[last];
  count_[entry] = count_[last];
  tag_[entry] = tag_[last];
  for (std::uint32_t s = head_[entry]; s != kNone; s = next_[s]) entry_[s] = entry;
}

void SampleSlots::put(std::span<const std::uint32_t> slots, const Block& block, std::size_t i,
                      float tag) {
  for (std::uint32_t slot : slots) release(slot);
  const auto entry = static_cast<std::uint32_t>(store_.size());
  store_.push(block, i);
  head_[entry] = kNone;
  count_[entry] = 0;
  tag_[entry] = tag;
  for (std::uint32_t slot : slots) link(slot, entry);
}

void SampleSlots::put(std::span<const std::uint32_t> slots, const SampleSlots& other,
                      std::size_t i) {
  for (std::uint32_t slot : slots) release(slot);
  const auto entry = static_cast<std::uint32_t>(store_.size());
  store_.push(other.store_, i);
  head_[entry] = kNone;
  count_[entry] = 0;
  tag_[entry] = other.tag_[i];
  for (std::uint32_t slot : slots) link(slot, entry);
}

void SampleSlots::copy(std::size_t to, std::size_t from) {
  if (entry_[to] == entry_[from]) return;
  release(to);
  link(to, entry_[from]);
}

void SampleSlots::save(ByteWriter& out, std::size_t slots) const {
  store_.save(out);
  out.put_all<float>({tag_.data(), store_.size()});
  out.put_all<std::uint32_t>({entry_.data(), slots});
}

void SampleSlots::load(ByteReader& in, std::size_t slots) {
  store_.load(in);
  const std::size_t size = store_.size();
  in.get_all<float>({tag_.data(), size});
  std::ranges::fill(entry_, kNone);
  std::ranges::fill(next_, kNone);
  std::ranges::fill(head_, kNone);
  std::ranges::fill(count_, 0u);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const auto entry = in.get<std::uint32_t>();
    require(entry < size || entry == kNone, "{}: a sample is entry {} of {}", in.what(), entry,
            size);
    if (entry != kNone) link(slot, entry);
  }
  for (std::size_t entry = 0; entry < size; ++entry) {
    require(count_[entry] != 0 && std::isfinite(tag_[entry]), "{}: entry {} is no one's sample",
            in.what(), entry);
  }
}

}  // namespace ballast
