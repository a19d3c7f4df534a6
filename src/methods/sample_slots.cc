#include "methods/sample_slots.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ballast/serialize.h"
#include "base/fail.h"

namespace ballast {

SampleSlots::SampleSlots(const SummarySetup& setup, std::size_t value_dim, std::size_t slots)
    : store_(setup, slots, value_dim != 0),
      id_(slots, kNone),
      id_of_(slots),
      entry_of_(slots),
      count_(slots, 0),
      tag_(slots, 0.0f) {
  std::iota(id_of_.begin(), id_of_.end(), 0u);
  std::iota(entry_of_.begin(), entry_of_.end(), 0u);
}

std::size_t SampleSlots::bytes() const {
  return store_.bytes() + id_.size() * (4 * sizeof(std::uint32_t) + sizeof(float));
}

void SampleSlots::link(std::size_t slot, std::uint32_t id) {
  id_[slot] = id;
  ++count_[entry_of_[id]];
}

void SampleSlots::release(std::size_t slot) {
  const std::uint32_t id = id_[slot];
  if (id == kNone) return;
  id_[slot] = kNone;
  const std::uint32_t entry = entry_of_[id];
  if (--count_[entry] != 0) return;
  // The last entry takes the place of the one that no slot holds any more; its slots know it by
  // its id, which stays. The id that is free is where the next entry looks for one.
  const std::size_t last = store_.size() - 1;
  store_.erase(entry);
  count_[entry] = count_[last];
  tag_[entry] = tag_[last];
  std::swap(id_of_[entry], id_of_[last]);
  entry_of_[id_of_[entry]] = entry;
  entry_of_[id] = static_cast<std::uint32_t>(last);
}

void SampleSlots::put(std::span<const std::uint32_t> slots, const Block& block, std::size_t i,
                      float tag) {
  for (std::uint32_t slot : slots) release(slot);
  const auto entry = static_cast<std::uint32_t>(store_.size());
  store_.push(block, i);
  count_[entry] = 0;
  tag_[entry] = tag;
  for (std::uint32_t slot : slots) link(slot, id_of_[entry]);
}

void SampleSlots::put(std::span<const std::uint32_t> slots, const SampleSlots& other,
                      std::size_t i) {
  for (std::uint32_t slot : slots) release(slot);
  const auto entry = static_cast<std::uint32_t>(store_.size());
  store_.push(other.store_, i);
  count_[entry] = 0;
  tag_[entry] = other.tag_[i];
  for (std::uint32_t slot : slots) link(slot, id_of_[entry]);
}

void SampleSlots::copy(std::size_t to, std::size_t from) {
  if (id_[to] == id_[from]) return;
  release(to);
  link(to, id_[from]);
}

void SampleSlots::save(ByteWriter& out, std::size_t slots) const {
  store_.save(out);
  out.put_all<float>({tag_.data(), store_.size()});
  for (std::size_t slot = 0; slot < slots; ++slot) out.put<std::uint32_t>(entry(slot));
}

void SampleSlots::load(ByteReader& in, std::size_t slots) {
  store_.load(in);
  const std::size_t size = store_.size();
  in.get_all<float>({tag_.data(), size});
  std::ranges::fill(id_, kNone);
  std::iota(id_of_.begin(), id_of_.end(), 0u);
  std::iota(entry_of_.begin(), entry_of_.end(), 0u);
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
