#include "cache/window_rows.h"

#include <utility>

#include "attention/kernels/attention_kernels.h"

namespace ballast {
namespace {

/// A part of which less than one in so many rows is used is copied: the rest would stay as long.
constexpr std::size_t kLeastUsed = 4;

}  // namespace

WindowRows::WindowRows(Rows keys, Rows values)
    : own_(new Held{std::move(keys), std::move(values)}) {}

std::size_t WindowRows::bytes() const {
  std::size_t sum = own_ ? own_->bytes() : 0;
  for (const Part& part : parts_) sum += part.held->bytes();
  return sum;
}

std::size_t WindowRows::row_bytes() const {
  return stored_row_bytes(own_->keys.type(), own_->keys.dim()) +
         stored_row_bytes(own_->values.type(), own_->values.dim());
}

std::size_t WindowRows::moved() const {
  return own_->lent > 0 ? kernels::kEntryBlock : capacity() - shared_;
}

WindowRows::Part WindowRows::at(std::size_t& slot) const {
  if (slot >= shared_) {
    slot -= shared_;
    return {own_, own_->keys.capacity()};
  }
  auto part = parts_.begin();
  for (; slot >= part->rows; ++part) slot -= part->rows;
  return *part;
}

std::size_t WindowRows::run(std::size_t slot) const {
  const std::size_t rows = at(slot).rows;
  return rows - slot;
}

RowsView WindowRows::keys(std::size_t slot, std::size_t count, Position first) const {
  const Part part = at(slot);
  return part.held->keys.view(slot, count, first);
}

RowsView WindowRows::values(std::size_t slot, std::size_t count, Position first) const {
  const Part part = at(slot);
  return part.held->values.view(slot, count, first);
}

void WindowRows::set(std::size_t slot, std::span<const float> key, std::span<const float> value,
                     Position position) {
  own_->keys.set(slot - shared_, key, position);
  own_->values.set(slot - shared_, value, position);
}

void WindowRows::copy(std::size_t slot, const WindowRows& other, std::size_t from,
                      Position position) {
  own_->keys.copy(slot - shared_, other.keys(from, 1, position), 0);
  own_->values.copy(slot - shared_, other.values(from, 1, position), 0);
}

std::shared_ptr<WindowRows::Held> WindowRows::empty_like(const Held& held, std::size_t capacity) {
  const auto rows = [&](const Rows& of) {
    Rows out(of.type(), of.dim(), capacity);
    out.set_mean(of.mean());
    return out;
  };
  return std::shared_ptr<Held>(new Held{rows(held.keys), rows(held.values)});
}

void WindowRows::take(const std::shared_ptr<Held>& from, std::size_t rows) {
  std::size_t whole = rows / kernels::kEntryBlock * kernels::kEntryBlock;
  if (whole * kLeastUsed < from->keys.capacity()) whole = 0;
  auto own = empty_like(*from, rows - whole);
  for (std::size_t i = whole; i < rows; ++i) {
    own->keys.copy(i - whole, from->keys.view(i, 1), 0);
    own->values.copy(i - whole, from->values.view(i, 1), 0);
  }
  if (whole > 0) {
    std::size_t lent = from->lent;
    while (lent < whole && !from->lent.compare_exchange_weak(lent, whole)) {
    }
    parts_.push_back({from, whole});
    shared_ += whole;
  }
  own_ = std::move(own);
}

void WindowRows::grow(std::size_t capacity, std::size_t used) {
  if (own_->lent > 0) take(own_, used - shared_);
  own_->keys.grow(capacity - shared_, used - shared_);
  own_->values.grow(capacity - shared_, used - shared_);
}

void WindowRows::drop_room(std::size_t used) {
  if (own_.use_count() > 1) return;
  std::size_t kept = parts_.size(), begin = shared_;
  while (kept > 0 && parts_[kept - 1].held.use_count() == 1) begin -= parts_[--kept].rows;
  if (kept == parts_.size() && capacity() == used) return;
  auto own = empty_like(*own_, used - begin);
  for (std::size_t i = begin; i < used; ++i) {
    own->keys.copy(i - begin, keys(i, 1, -1), 0);
    own->values.copy(i - begin, values(i, 1, -1), 0);
  }
  parts_.resize(kept);
  shared_ = begin;
  own_ = std::move(own);
}

void WindowRows::cut(std::size_t used) {
  std::shared_ptr<Held> last = own_;
  if (used >= shared_ && own_->lent <= used - shared_) return;
  while (used < shared_) {
    shared_ -= parts_.back().rows;
    last = std::move(parts_.back().held);
    parts_.pop_back();
  }
  take(last, used - shared_);
}

void WindowRows::share(const WindowRows& other, std::size_t used) {
  parts_ = other.parts_;
  shared_ = other.shared_;
  take(other.own_, used - shared_);
}

void WindowRows::list(std::vector<HeldMemory>& out) const {
  const auto add = [&out](const Held& held) { out.push_back({&held, held.bytes()}); };
  for (const Part& part : parts_) add(*part.held);
  if (own_) add(*own_);
}

}  // namespace ballast
