#include "cache/head_cache.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "ballast/row_mean.h"
#include "ballast/serialize.h"
#include "base/fail.h"
#include "cache/global/replay_scores.h"
#include "methods/replay.h"
#include "storage/rows_bytes.h"

namespace ballast {
namespace {

/// Beyond any sum of attention, and so far below the largest float that sums stay finite.
constexpr float kMostAttention = 1e30f;

}  // namespace

Window::Window(const SummarySetup& setup, std::size_t capacity, bool attention_sums, bool as_read)
    : rows_(Rows(as_read ? ballast::as_read(setup.key_type) : setup.key_type, setup.key_dim,
                 capacity),
            Rows(as_read ? ballast::as_read(setup.value_type) : setup.value_type, setup.value_dim,
                 capacity)),
      attention_sum_(attention_sums ? capacity : 0),
      has_attention_sums_(attention_sums) {
  rows_.own_keys().set_mean(setup.key_mean);
  rows_.own_values().set_mean(setup.value_mean);
}

void Window::encode(const SummarySetup& setup, std::size_t count, std::size_t capacity,
                    Position now) {
  Window rounded(setup, std::max(capacity, size_ - count), false);
  for (std::size_t i = count; i < size_; ++i) rounded.push(*this, i, now);
  rounded.has_attention_sums_ = has_attention_sums_;
  rounded.lead_ = has_attention_sums_ ? count : 0;
  if (has_attention_sums_) {
    rounded.attention_sum_ = std::move(attention_sum_);
    rounded.attention_sum_.resize(count + rounded.capacity());
  }
  *this = std::move(rounded);
}

void Window::reserve(std::size_t count) {
  if (size_ + count <= capacity()) return;
  reserve_exactly(std::max(count, capacity() + rows_.moved() / 2 - size_));
}

void Window::reserve(std::size_t count, std::size_t most) {
  const std::size_t wanted = size_ + count;
  if (wanted <= capacity()) return;
  const std::size_t spare =
      std::max(wanted, capacity() + std::max<std::size_t>(capacity() / 2, 16));
  reserve_exactly(std::max(wanted, std::min(spare, most)) - size_);
}

void Window::reserve_exactly(std::size_t count) {
  if (size_ + count <= capacity()) return;
  const std::size_t wanted = size_ + count;
  rows_.grow(wanted, size_);
  if (!has_attention_sums_) return;
  attention_sum_.reserve(lead_ + wanted);  // resize() would take up to twice as much
  attention_sum_.resize(lead_ + wanted);
}

void Window::drop_room() {
  rows_.drop_room(size_);
  if (has_attention_sums_) attention_sum_.resize(lead_ + capacity());
  attention_sum_.shrink_to_fit();
}

void Window::push(std::span<const float> key, std::span<const float> value, Position position) {
  const std::size_t slot = (begin_ + size_) % capacity();
  rows_.set(slot, key, value, position);
  if (has_attention_sums_) attention_sum_[lead_ + slot] = 0.0f;
  ++size_;
}

void Window::push(const Window& other, std::size_t i, Position now) {
  const std::size_t from = (other.begin_ + i) % other.capacity();
  const std::size_t slot = (begin_ + size_) % capacity();
  rows_.copy(slot, other.rows_, from, now - static_cast<Position>(other.size_ - i));
  if (has_attention_sums_) attention_sum_[lead_ + slot] = other.attention_sum_[other.lead_ + from];
  ++size_;
}

void Window::drop_oldest(std::size_t count) {
  begin_ = (begin_ + count) % capacity();
  size_ -= count;
}

void Window::drop_newest(std::size_t count) {
  size_ -= count;
  rows_.cut(begin_ + size_);
}

void Window::forget_attention_sums() {
  attention_sum_ = std::vector<float>();  // {} would keep the memory
  has_attention_sums_ = false;
  lead_ = 0;
}

Block Window::run(std::size_t i, std::size_t count, Position now) const {
  const std::size_t slot = (begin_ + i) % capacity();
  count = std::min(count, rows_.run(slot));
  Block block;
  block.first = now - static_cast<Position>(size_ - i);
  block.keys = rows_.keys(slot, count, block.first);
  block.values = rows_.values(slot, count, block.first);
  block.now = now;
  if (has_attention_sums_) block.attention_sum = {attention_sum_.data() + lead_ + slot, count};
  return block;
}

std::vector<Block> Window::blocks(std::size_t i, std::size_t count, Position now) const {
  std::vector<Block> out;
  while (count > 0) {
    out.push_back(run(i, count, now));
    i += out.back().size();
    count -= out.back().size();
  }
  return out;
}

void Window::add_attention_sum(std::span<const float> attention_sum) {
  const std::size_t first = std::min(size_, capacity() - begin_);
  for (std::size_t i = 0; i < first; ++i) attention_sum_[begin_ + i] += attention_sum[i];
  for (std::size_t i = first; i < size_; ++i) attention_sum_[i - first] += attention_sum[i];
}

void Window::copy(const SummarySetup& setup, const Window& other, bool ring, bool as_read,
                  bool shares) {
  *this = Window(setup, ring ? other.capacity() : shares ? 0 : other.size_, false, as_read);
  begin_ = other.begin_;
  if (shares) {
    rows_.share(other.rows_, other.size_);
    size_ = other.size_;
  }
  for (std::size_t i = size_; i < other.size_; ++i)
    push(other, i, static_cast<Position>(other.size_));
  lead_ = other.lead_;
  has_attention_sums_ = other.has_attention_sums_;
  if (!has_attention_sums_) return;
  attention_sum_.assign(
      other.attention_sum_.begin(),
      other.attention_sum_.begin() + static_cast<std::ptrdiff_t>(lead_ + capacity()));
}

void Window::save(ByteWriter& out, bool attention_sums, bool ring) const {
  // Spare room depends on how the text came, and is not kept.
  out.put<std::uint64_t>(ring ? capacity() : size_);
  out.put<std::uint64_t>(begin_);
  out.put<std::uint64_t>(size_);
  if (attention_sums && has_attention_sums_) out.put_all<float>({attention_sum_.data(), lead_});
  const std::vector<Block> runs = blocks(0, size_, static_cast<Position>(size_));
  // What copies share is written as one run.
  const std::size_t together = rows_.in_parts() ? runs.size() : 1;
  for (std::size_t i = 0; i < runs.size(); i += together) {
    const std::span<const Block> run = std::span(runs).subspan(i, together);
    for (const Block& block : run) save_rows(out, block.keys);
    for (const Block& block : run) save_rows(out, block.values);
    for (const Block& block : run)
      if (attention_sums) out.put_all<float>(block.attention_sum);
  }
}

std::size_t Window::load(const SummarySetup& setup, bool attention_sums, bool ring, bool as_read,
                         std::size_t lead, std::size_t most, ByteReader& in) {
  // A window that is no ring was once saved with its spare room, which it does not get again.
  const std::size_t saved = in.get_count(ring ? most : std::numeric_limits<std::size_t>::max(),
                                         "the capacity of a window");
  const std::size_t begin = in.get_count(saved, "the begin of a window");
  const std::size_t size = in.get_count(std::min({saved, most, in.left()}), "the size of a window");
  require(ring ? begin < saved : begin == 0, "{}: a window of {} rows begins at {}", in.what(),
          saved, begin);
  const std::size_t capacity = ring ? saved : size;
  *this = Window(setup, capacity, attention_sums, as_read);
  begin_ = begin;
  size_ = size;
  const auto load_sums = [&](std::size_t first, std::size_t count) {
    const std::span<float> sums(attention_sum_.data() + first, count);
    in.get_all<float>(sums);
    for (float sum : sums) {
      require(sum >= 0 && sum < kMostAttention, "{}: an attention sum is {}", in.what(), sum);
    }
  };
  if (has_attention_sums_ && lead > 0) {
    lead_ = lead;
    attention_sum_.resize(lead + capacity);
    load_sums(0, lead);
  }
  for (std::size_t done = 0; done < size_;) {
    const std::size_t slot = (begin_ + done) % capacity;
    const std::size_t run = std::min(size_ - done, capacity - slot);
    load_rows(in, rows_.own_keys(), slot, run);
    load_rows(in, rows_.own_values(), slot, run);
    if (has_attention_sums_) load_sums(lead_ + slot, run);
    done += run;
  }
  return capacity;
}

namespace {

/// The first `count` of those rows, in as much memory.
Rows copied(const Rows& from, std::size_t count) {
  Rows out(from.type(), from.dim(), count);
  out.set_mean(from.mean());
  for (std::size_t i = 0; i < count; ++i) out.copy(i, from.view(0, count), i);
  return out;
}

}  // namespace

void HeadCache::copy(const HeadCache& other, bool ring, bool as_read, bool shares,
                     bool same_summary) {
  const SummarySetup own = setup;
  setup = other.setup;
  setup.shared = own.shared;
  queries.copy(other.queries);
  first = other.first;
  first_keys = copied(other.first_keys, first);
  first_values = copied(other.first_values, first);
  sink = other.sink;
  sink_keys = copied(other.sink_keys, sink);
  sink_values = copied(other.sink_values, sink);
  if (same_summary) {
    summary = other.summary;
  } else if (other.summary) {
    summary = make_summary(setup);
    copy_saved(*other.summary, *summary);
  }
  window.copy(setup, other.window, ring, as_read, shares);
}

void HeadCache::copy_prompt(const HeadCache& other, bool attention_sums, bool as_read) {
  setup.key_mean = other.setup.key_mean;
  setup.value_mean = other.setup.value_mean;
  first = other.first;
  first_keys = copied(other.first_keys, first);
  first_values = copied(other.first_values, first);
  window.copy(setup, other.window, false, as_read);
  if (!attention_sums) window.forget_attention_sums();
}

void HeadCache::find_means(Position now, const Rotary& rotary, std::span<const Tier> tiers) {
  if (setup.key_mean != nullptr || setup.value_mean != nullptr) return;
  const auto needed = [&](StorageType own, StorageType Tier::*type) {
    return is_low_bit(own) ||
           std::ranges::any_of(tiers, [&](const Tier& tier) { return takes_mean(tier.*type); });
  };
  const std::size_t skipped = window.size() > kFirstTokens ? kFirstTokens : 0;
  const Block block = window.run(skipped, std::min(window.size() - skipped, kMeanTokens), now);
  if (needed(setup.key_type, &Tier::key_type)) {
    setup.key_mean = std::make_shared<const RowMean>(RowMean::of_keys(block.keys, rotary));
  }
  if (needed(setup.value_type, &Tier::value_type)) {
    setup.value_mean = std::make_shared<const RowMean>(RowMean::of_values(block.values));
  }
}

void HeadCache::encode(std::size_t capacity, Position now, const Rotary& rotary) {
  find_means(now, rotary);
  first = std::min(window.size(), kFirstTokens);
  first_keys = Rows(as_read(setup.key_type), setup.key_dim, first);
  first_values = Rows(as_read(setup.value_type), setup.value_dim, first);
  const Block block = window.run(0, first, now);
  for (std::size_t i = 0; i < first; ++i) {
    first_keys.copy(i, block.keys, i);
    first_values.copy(i, block.values, i);
  }
  window.encode(setup, first, capacity, now);
}

VectorInOwnPages<Position> HeadCache::summary_positions() const {
  VectorInOwnPages<Position> out;
  if (!summary) return out;
  out.reserve(summary->entries());
  for (const KeptEntry& entry : summary->kept()) out.push_back(entry.position);
  return out;
}

std::size_t HeadCache::entries() const {
  return ahead() + (summary ? summary->entries() : 0) + window.size();
}

CacheBytes HeadCache::bytes() const {
  CacheBytes bytes;
  bytes.sink = first_keys.bytes() + first_values.bytes() + sink_keys.bytes() + sink_values.bytes();
  for (const auto* mean : {setup.key_mean.get(), setup.value_mean.get()}) {
    if (mean != nullptr) bytes.sink += mean->bytes();
  }
  bytes.summary = summary ? summary->bytes() : 0;
  bytes.window = window.bytes();
  bytes.room = window.room_bytes();
  bytes.attention_stats = window.attention_sum_bytes() + queries.bytes();
  return bytes;
}

void HeadCache::segments(Position now, std::vector<Segment>& out) const {
  const auto add = [&out](const Rows& keys, const Rows& values, std::size_t count,
                          std::size_t first_position) {
    if (count == 0) return;
    Segment segment;
    segment.first_position = static_cast<Position>(first_position);
    segment.keys = keys.view(0, count, segment.first_position);
    segment.values = values.view(0, count);
    out.push_back(segment);
  };
  add(first_keys, first_values, first, 0);
  add(sink_keys, sink_values, sink, first);
  if (summary) summary->segments(out);
  for (std::size_t i = 0; i < window.size();) {
    const Block block = window.run(i, window.size() - i, now);
    Segment segment;
    segment.keys = block.keys;
    segment.values = block.values;
    segment.first_position = block.first;
    out.push_back(segment);
    i += block.size();
  }
}

namespace {

void absorb_blocks(Summary& summary, std::vector<Block> blocks, const Observed& observed) {
  for (Block& block : blocks) {
    block.observed = &observed;
    summary.absorb(block);
  }
}

}  // namespace

std::vector<float> HeadCache::scores(const Budget& budget, Position now,
                                     const Observed& observed) const {
  const std::size_t all = first + window.size();
  const std::size_t before = std::max(std::min(budget.sink, all), first);
  const std::size_t middle = all - before - std::min(budget.window, all - before);
  std::vector<float> out(middle);
  if (middle == 0) return out;
  SummarySetup empty = setup;
  empty.capacity = 0;
  empty.sink = before;
  Block block = window.run(before - first, middle, now);
  require(block.size() == middle, "a window that holds everything wraps");
  block.observed = &observed;
  make_summary(empty)->scores(block, out);
  return out;
}

void HeadCache::summarize(const Budget& budget, std::size_t room, Position now,
                          const Observed& observed) {
  const std::size_t all = first + window.size();
  const std::size_t kept = std::min(budget.sink, all);
  const std::size_t before = std::max(kept, first);  // tokens held apart that no sink keeps leave
  const std::size_t last = std::min(budget.window, all - before);
  const std::size_t middle = all - before - last;
  // Rows that `observed` sees stay where they are.
  const Window everything = std::move(window);
  Rows held_keys, held_values;
  const std::size_t gone = first;  // from the window
  if (first > kept) {
    first = kept;
    held_keys = std::move(first_keys);
    held_values = std::move(first_values);
    first_keys = copied(held_keys, first);
    first_values = copied(held_values, first);
  }
  sink = kept - first;
  sink_keys = Rows(setup.key_type, setup.key_dim, sink);
  sink_values = Rows(setup.value_type, setup.value_dim, sink);
  sink_keys.set_mean(setup.key_mean);
  sink_values.set_mean(setup.value_mean);
  for (const Block& block : everything.blocks(0, sink, now)) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      sink_keys.copy(i, block.keys, i);
      sink_values.copy(i, block.values, i);
    }
  }
  setup.capacity = budget.summary;
  setup.sink = before;
  if (setup.tokens == 0 && setup.protocol == Protocol::prefill) setup.tokens = middle;
  summary = make_summary(setup);
  if (summary && middle > 0) {
    absorb_blocks(*summary, everything.blocks(before - gone, middle, now), observed);
  }
  window = Window(setup, std::max(room, last), everything.attention_sum_bytes() != 0);
  for (std::size_t i = 0; i < last; ++i) window.push(everything, before + middle - gone + i, now);
}

void HeadCache::summarize(std::span<const std::uint8_t> tiers, std::size_t means, std::size_t room,
                          Position now, const Rotary& rotary) {
  const std::vector<Tier> kinds =
      replay_tiers(setup.policy, setup.protocol, setup.key_dim, setup.value_dim);
  find_means(now, rotary, kinds);
  Window everything = std::move(window);
  const std::size_t count = kinds.size();
  setup.capacity = means + static_cast<std::size_t>(std::ranges::count_if(
                               tiers, [&](std::uint8_t t) { return t < count; }));
  summary = make_summary(setup);
  for (Block& block : everything.blocks(0, everything.size(), now)) {
    block.tiers = tiers.subspan(static_cast<std::size_t>(block.first), block.size());
    summary->absorb(block);
  }
  window = Window(setup, room, false);
}

void HeadCache::end_chunk(std::span<const std::uint8_t> tiers, Position now, const Rotary& rotary) {
  if (!summary) {
    find_means(now, rotary,
               replay_tiers(setup.policy, setup.protocol, setup.key_dim, setup.value_dim));
    summary = make_summary(setup);
  }
  {
    const Window chunk = std::move(window);
    Block block;
    if (chunk.size() > 0) block = chunk.run(0, chunk.size(), now);
    block.tiers = tiers;
    summary->absorb(block);
  }
  setup.capacity = summary->entries();
  window = Window(setup, 0, false);
}

void HeadCache::absorb_oldest(std::size_t count, Position now, const Observed& observed) {
  if (summary) {
    if (setup.policy.needs().recent_queries) summary->observe_recent(observed);
    absorb_blocks(*summary, window.blocks(0, count, now), observed);
  }
  window.drop_oldest(count);
}

std::vector<KeptEntry> HeadCache::kept(Position now) const {
  std::vector<KeptEntry> out;
  for (std::size_t i = 0; i < ahead(); ++i) out.push_back({static_cast<Position>(i), 1, 1});
  if (summary) {
    auto middle = summary->kept();
    std::ranges::sort(middle, {}, &KeptEntry::position);
    out.insert(out.end(), middle.begin(), middle.end());
  }
  for (Position p = now - static_cast<Position>(window.size()); p < now; ++p)
    out.push_back({p, 1, 1});
  return out;
}

}  // namespace ballast
