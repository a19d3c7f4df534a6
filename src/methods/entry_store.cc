#include "ballast/entry_store.h"

#include <cmath>

#include "ballast/serialize.h"
#include "base/fail.h"
#include "storage/rows_bytes.h"

namespace ballast {

EntryStore::EntryStore(const SummarySetup& setup, std::size_t capacity, bool has_values)
    : keys_(setup.key_type, setup.key_dim, capacity),
      values_(setup.value_type, has_values ? setup.value_dim : 0, has_values ? capacity : 0),
      has_values_(has_values),
      positions_(capacity),
      log_weights_(capacity),
      capacity_(capacity) {
  keys_.set_mean(setup.key_mean);
  if (has_values) values_.set_mean(setup.value_mean);
}

EntryStore EntryStore::like(std::size_t capacity) const {
  SummarySetup setup;
  setup.key_type = keys_.type();
  setup.key_dim = keys_.dim();
  setup.key_mean = keys_.mean();
  setup.value_type = values_.type();
  setup.value_dim = values_.dim();
  setup.value_mean = values_.mean();
  return EntryStore(setup, capacity, has_values_);
}

std::size_t EntryStore::bytes() const {
  return keys_.bytes() + values_.bytes() + capacity_ * (sizeof(Position) + sizeof(float));
}

void EntryStore::push(const Block& block, std::size_t i, float log_weight) {
  replace(size_, block, i, log_weight);
  ++size_;
}

void EntryStore::push(const EntryStore& other, std::size_t i) {
  replace(size_, other, i);
  ++size_;
}

void EntryStore::replace(std::size_t slot, const Block& block, std::size_t i, float log_weight) {
  RowsView keys = block.keys;
  if (keys.positions == nullptr) keys.first_position = block.first;
  keys_.copy(slot, keys, i);
  if (has_values_) values_.copy(slot, block.values, i);
  positions_[slot] = block.first + static_cast<Position>(i);
  log_weights_[slot] = log_weight;
}

void EntryStore::replace(std::size_t slot, const EntryStore& other, std::size_t i) {
  keys_.copy(slot, other.keys(), i);
  if (has_values_) values_.copy(slot, other.values(), i);
  positions_[slot] = other.positions_[i];
  log_weights_[slot] = other.log_weights_[i];
}

void EntryStore::move(std::size_t to, std::size_t from) {
  if (to == from) return;
  keys_.copy(to, keys_.view(0, size_), from);
  if (has_values_) values_.copy(to, values_.view(0, size_), from);
  positions_[to] = positions_[from];
  log_weights_[to] = log_weights_[from];
}

void EntryStore::erase(std::size_t slot) {
  move(slot, size_ - 1);
  --size_;
}

void EntryStore::keep(std::span<const std::size_t> slots) {
  for (std::size_t i = 0; i < slots.size(); ++i) move(i, slots[i]);
  size_ = slots.size();
}

Segment EntryStore::segment(Role role, bool weighted) const {
  Segment segment;
  segment.keys = keys();
  segment.values = values();
  segment.log_weights = weighted ? log_weights_.data() : nullptr;
  segment.role = role;
  segment.positions = positions_.data();
  return segment;
}

void EntryStore::save(ByteWriter& out) const {
  out.put<std::uint64_t>(size_);
  save_rows(out, keys());
  if (has_values_) save_rows(out, values());
  out.put_all<Position>({positions_.data(), size_});
  out.put_all<float>({log_weights_.data(), size_});
}

void EntryStore::load(ByteReader& in) {
  size_ = 0;
  std::size_t size = in.get_count(capacity_, "the number of entries of a summary");
  load_rows(in, keys_, 0, size);
  if (has_values_) load_rows(in, values_, 0, size);
  in.get_all<Position>({positions_.data(), size});
  in.get_all<float>({log_weights_.data(), size});
  for (std::size_t i = 0; i < size; ++i) {
    require(!std::isnan(log_weights_[i]) && log_weights_[i] < 1e9f && positions_[i] >= 0,
            "{}: entry {} of a summary has position {} and log-weight {}", in.what(), i,
            positions_[i], log_weights_[i]);
  }
  size_ = size;
}

}  // namespace ballast
