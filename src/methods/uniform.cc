// A uniformly random sample of the tokens. Each entry has the weight seen / kept.
//
// Every token draws a ticket by its position; the lowest tickets are kept. That is a sample without
// replacement at any moment, however the text is cut. Two samples unite by the same rule.
//
// from=oldest is the baseline of BalanceKV's Table 5. To evict m tokens of a prompt it draws m of
// the 2m oldest and keeps the rest exactly, as balancekv does.
#include <algorithm>
#include <cmath>

#include "ballast/entry_store.h"
#include "ballast/random.h"
#include "ballast/serialize.h"
#include "base/fail.h"
#include "methods/registry.h"

namespace ballast {
namespace {

class Uniform : public Summary {
 public:
  explicit Uniform(const SummarySetup& setup)
      : random_(setup.random),
        capacity_(setup.capacity),
        oldest_(setup.policy.choice("from") == "oldest"),
        store_(setup, setup.capacity) {
    require(!oldest_ || setup.protocol == Protocol::prefill,
            "method uniform: from=oldest keeps tokens for ever, which no stream has room for; use "
            "the prefill protocol");
    heap_.reserve(capacity_);
  }

  void absorb(const Block& block) override {
    const std::size_t drawn_from = block.size() - keep_newest(block);
    for (std::size_t i = 0; i < drawn_from; ++i) {
      const std::size_t slot = slot_for(block.first + static_cast<Position>(i));
      if (slot == store_.size()) {
        store_.push(block, i);
      } else if (slot < store_.size()) {
        store_.replace(slot, block, i);
      }
    }
    seen_ += drawn_from;
    weigh();
  }

  void segments(std::vector<Segment>& out) const override {
    if (store_.size() != 0) out.push_back(store_.segment(Role::both, seen_ > sampled()));
  }

  void merge(const Summary& other) override {
    const auto* that = dynamic_cast<const Uniform*>(&other);
    require(that != nullptr && that->capacity_ == capacity_ && that->random_ == random_,
            "a uniform summary unites only with one of the same setup");
    require(!oldest_ && !that->oldest_, "method uniform: with from=oldest summaries do not unite");
    for (std::size_t i = 0; i < that->store_.size(); ++i) {
      const std::size_t slot = slot_for(that->store_.position(i));
      if (slot == store_.size()) {
        store_.push(that->store_, i);
      } else if (slot < store_.size()) {
        store_.replace(slot, that->store_, i);
      }
    }
    seen_ += that->seen_;
    weigh();
  }

  std::size_t entries() const override { return store_.size(); }
  std::size_t bytes() const override { return store_.bytes() + capacity_ * sizeof(Ticket); }

  std::vector<KeptEntry> kept() const override {
    std::vector<KeptEntry> out;
    for (std::size_t i = 0; i < store_.size(); ++i) {
      const float w = i < exact_ ? 1.0f : weight();
      out.push_back({store_.position(i), w, w});
    }
    return out;
  }

  void save(ByteWriter& out) const override {
    store_.save(out);
    out.put<std::uint64_t>(seen_);
    if (oldest_) out.put<std::uint64_t>(exact_);
  }

  void load(ByteReader& in) override {
    store_.load(in);
    seen_ = in.get<std::uint64_t>();
    exact_ = oldest_ ? in.get_count(store_.size(), "the number of tokens beside a sample") : 0;
    require(seen_ >= sampled() && (seen_ == sampled() || store_.full()) &&
                (exact_ == 0 || exact_ < store_.size()),
            "{}: a sample of {} tokens from {}, and {} beside it", in.what(), sampled(), seen_,
            exact_);
    heap_.clear();
    for (std::size_t i = exact_; i < store_.size(); ++i) {
      heap_.push_back(ticket(store_.position(i), i));
      std::ranges::push_heap(heap_);
    }
    weigh();
  }

 private:
  struct Ticket {
    std::uint64_t number;
    Position position;  ///< decides between equal numbers
    std::uint32_t slot;
    auto operator<=>(const Ticket&) const = default;
  };

  std::size_t sampled() const { return store_.size() - exact_; }

  /// from=oldest: keeps the newest tokens of a prompt that exceeds the budget, so many that half of
  /// the others fit. Returns how many.
  std::size_t keep_newest(const Block& prompt) {
    if (!oldest_ || store_.size() != 0 || prompt.size() <= capacity_) return 0;
    const std::size_t lost = prompt.size() - capacity_;
    exact_ = prompt.size() - std::min(prompt.size(), 2 * lost);
    for (std::size_t i = prompt.size() - exact_; i < prompt.size(); ++i) store_.push(prompt, i);
    return exact_;
  }

  Ticket ticket(Position position, std::size_t slot) const {
    const auto bits = random_bits(random_, static_cast<std::uint64_t>(position));
    return {std::uint64_t{bits[0]} << 32 | bits[1], position, static_cast<std::uint32_t>(slot)};
  }

  /// Where the token goes: a slot, size() for a new one, or more for nowhere.
  std::size_t slot_for(Position position) {
    if (capacity_ == 0) return 1;
    if (!store_.full()) {
      heap_.push_back(ticket(position, store_.size()));
      std::ranges::push_heap(heap_);
      return store_.size();
    }
    const std::uint32_t slot = heap_.front().slot;
    const Ticket drawn = ticket(position, slot);
    if (!(drawn < heap_.front())) return capacity_ + 1;
    std::ranges::pop_heap(heap_);
    heap_.back() = drawn;
    std::ranges::push_heap(heap_);
    return slot;
  }

  float weight() const {
    return sampled() == 0
               ? 1.0f
               : static_cast<float>(static_cast<double>(seen_) / static_cast<double>(sampled()));
  }

  void weigh() {
    const float log_weight = std::log(weight());
    for (std::size_t i = exact_; i < store_.size(); ++i) store_.set_log_weight(i, log_weight);
  }

  RandomKey random_;
  std::size_t capacity_;
  bool oldest_;
  EntryStore store_;          ///< tokens that are kept as they are, then the sample
  std::size_t exact_ = 0;     ///< of the former
  std::vector<Ticket> heap_;  ///< the highest ticket first
  std::uint64_t seen_ = 0;    ///< what the sample stands for
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<Uniform>(setup);
}

}  // namespace

const MethodInfo& uniform_method() {
  static const MethodInfo info = {
      .name = "uniform",
      .title = "a uniformly random sample",
      .paper = "BalanceKV, section 4 (baseline); Vitter 1985",
      .parameters = {{"from", Parameter::Kind::choice, "all", 0, 0, "all|oldest",
                      "oldest (prefill): to lose m tokens, draw from the 2m oldest only"}},
      .sink = 32,
      .merges = true,
      .needs = {},
      .make = make,
  };
  return info;
}

}  // namespace ballast
