#include "serve/texts/row_ledger.h"

namespace ballast::serve {

RowLedger::Hold RowLedger::hold(const Cache& cache, Lease& lease) {
  Hold out;
  const std::scoped_lock lock(mutex_);
  std::erase_if(all_, [](const auto& one) { return one.second.expired(); });
  for (const HeldMemory& one : held_memory(cache)) {
    auto& known = all_[one.address];
    auto held = known.lock();
    if (held == nullptr) known = held = std::make_shared<const Lease>(lease.split(one.bytes));
    out.rows.emplace_back(one, std::move(held));
  }
  return out;
}

RowLedger::Hold RowLedger::join(const Cache& cache) const {
  Hold out;
  const std::scoped_lock lock(mutex_);
  for (const HeldMemory& one : held_memory(cache)) {
    const auto at = all_.find(one.address);
    auto held = at == all_.end() ? nullptr : at->second.lock();
    if (held != nullptr) out.rows.emplace_back(one, std::move(held));
  }
  return out;
}

std::size_t RowLedger::bytes() const {
  const std::scoped_lock lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [address, lease] : all_) {
    if (const auto held = lease.lock()) sum += held->bytes();
  }
  return sum;
}

std::size_t RowLedger::Hold::bytes() const {
  std::size_t sum = 0;
  for (const auto& [memory, lease] : rows) sum += memory.bytes;
  return sum;
}

std::size_t RowLedger::Hold::shared_bytes() const {
  std::size_t sum = 0;
  for (const auto& [memory, lease] : rows) sum += lease.use_count() > 1 ? memory.bytes : 0;
  return sum;
}

}  // namespace ballast::serve
