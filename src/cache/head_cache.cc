#include "cache/head_cache.h"

#include <algorithm>
#include <limits>

#include "ballast/serialize.h"
#include "base/fail.h"
#include "cache/replay_scores.h"
#include "storage/rows_bytes.h"
#include "summary/replay.h"

namespace ballast {
namespace {

/// Beyond any sum of attention, and so far below the largest float that sums stay finite.
constexpr float kMostAttention = 1e30f;

}  // namespace

Window::Window(const SummarySetup& setup, std::size_t capacity, bool attention_sums)
    : keys_(setup.key_type, setup.key_dim, capacity),
      values_(setup.value_type, setup.value_dim, capacity),
      attention_sum_(attention_sums ? capacity : 0),
      has_attention_sums_(attention_sums) {}

void Window::reserve(std::size_t count) {
  if (size_ + count <= capacity()) return;
  reserve_exactly(std::max(count, capacity() + capacity() / 2 - size_));
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
  keys_.grow(wanted, size_);
  values_.grow(wanted, size_);
  if (!has_attention_sums_) return;
  attention_sum_.reserve(wanted);  // resize() would take up to twice as much
  attention_sum_.resize(wanted);
}

void Window::push(std::span<const float> key, std::span<const float> value) {
  const std::size_t slot = (begin_ + size_) % capacity();
  keys_.set(slot, key);
  values_.set(slot, value);
  if (has_attention_sums_) attention_sum_[slot] = 0.0f;
  ++size_;
}

void Window::push(const Window& other, std::size_t i) {
  const std::size_t from = (other.begin_ + i) % other.capacity();
  const std::size_t slot = (begin_ + size_) % capacity();
  keys_.copy(slot, other.keys_.view(0, other.capacity()), from);
  values_.copy(slot, other.values_.view(0, other.capacity()), from);
  if (has_attention_sums_) attention_sum_[slot] = other.attention_sum_[from];
  ++size_;
}

void Window::drop_oldest(std::size_t count) {
  begin_ = (begin_ + count) % capacity();
  size_ -= count;
}

Block Window::run(std::size_t i, std::size_t count, Position now) const {
  const std::size_t slot = (begin_ + i) % capacity();
  count = std::min(count, capacity() - slot);
  Block block;
  block.keys = keys_.view(slot, count);
  block.values = values_.view(slot, count);
  block.first = now - static_cast<Position>(size_ - i);
  block.now = now;
  if (has_attention_sums_) block.attention_sum = {attention_sum_.data() + slot, count};
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

void Window::copy(const SummarySetup& setup, const Window& other, bool ring) {
  *this = Window(setup, ring ? other.capacity() : other.size_, other.has_attention_sums_);
  begin_ = other.begin_;
  for (std::size_t i = 0; i < other.size_; ++i) push(other, i);
}

void Window::save(ByteWriter& out, bool attention_sums, bool ring) const {
  // Spare room depends on how the text came, and is not kept.
  out.put<std::uint64_t>(ring ? capacity() : size_);
  out.put<std::uint64_t>(begin_);
  out.put<std::uint64_t>(size_);
  for (const Block& block : blocks(0, size_, static_cast<Position>(size_))) {
    save_rows(out, block.keys);
    save_rows(out, block.values);
    if (attention_sums) out.put_all<float>(block.attention_sum);
  }
}

std::size_t Window::load(const SummarySetup& setup, bool attention_sums, bool ring,
                         std::size_t most, ByteReader& in) {
  // A window that is no ring was once saved with its spare room, which it does not get again.
  const std::size_t saved = in.get_count(ring ? most : std::numeric_limits<std::size_t>::max(),
                                         "the capacity of a window");
  const std::size_t begin = in.get_count(saved, "the begin of a window");
  const std::size_t size = in.get_count(std::min({saved, most, in.left()}), "the size of a window");
  require(ring ? begin < saved : begin == 0, "{}: a window of {} rows begins at {}", in.what(),
          saved, begin);
  const std::size_t capacity = ring ? saved : size;
  *this = Window(setup, capacity, attention_sums);
  begin_ = begin;
  size_ = size;
  for (std::size_t done = 0; done < size_;) {
    const std::size_t slot = (begin_ + done) % capacity;
    const std::size_t run = std::min(size_ - done, capacity - slot);
    load_rows(in, keys_, slot, run);
    load_rows(in, values_, slot, run);
    if (has_attention_sums_) {
      const std::span<float> sums(attention_sum_.data() + slot, run);
      in.get_all<float>(sums);
      for (float sum : sums) {
        require(sum >= 0 && sum < kMostAttention, "{}: an attention sum is {}", in.what(), sum);
      }
    }
    done += run;
  }
  return capacity;
}

void HeadCache::copy(const HeadCache& other, bool ring) {
  const SummarySetup own = setup;
  setup = other.setup;
  setup.shared = own.shared;
  setup.query_moments = own.query_moments;
  setup.value_norms = own.value_norms;
  query_moments = other.query_moments;
  sink = other.sink;
  sink_keys = Rows(setup.key_type, setup.key_dim, sink);
  sink_values = Rows(setup.value_type, setup.value_dim, sink);
  for (std::size_t i = 0; i < sink; ++i) {
    sink_keys.copy(i, other.sink_keys.view(0, sink), i);
    sink_values.copy(i, other.sink_values.view(0, sink), i);
  }
  if (other.summary) {
    summary = make_summary(setup);
    copy_saved(*other.summary, *summary);
  }
  window.copy(setup, other.window, ring);
  std::copy_n(other.recent_queries.data(),
              other.recent_queries.rows() * other.recent_queries.cols(), recent_queries.data());
}

VectorInOwnPages<Position> HeadCache::summary_positions() const {
  VectorInOwnPages<Position> out;
  if (!summary) return out;
  out.reserve(summary->entries());
  for (const KeptEntry& entry : summary->kept()) out.push_back(entry.position);
  return out;
}

std::size_t HeadCache::entries() const {
  return sink + (summary ? summary->entries() : 0) + window.size();
}

CacheBytes HeadCache::bytes() const {
  CacheBytes bytes;
  bytes.sink = sink_keys.bytes() + sink_values.bytes();
  bytes.summary = summary ? summary->bytes() : 0;
  bytes.window = window.bytes();
  bytes.room = window.room_bytes();
  bytes.attention_stats = window.attention_sum_bytes() +
                          recent_queries.rows() * recent_queries.cols() * sizeof(float) +
                          query_moments.bytes();
  return bytes;
}

void HeadCache::segments(Position now, std::vector<Segment>& out) const {
  if (sink > 0) {
    Segment segment;
    segment.keys = sink_keys.view(0, sink);
    segment.values = sink_values.view(0, sink);
    segment.first_position = 0;
    out.push_back(segment);
  }
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

/// Hands blocks to the summary, with the attention sums of the latest queries. These replace the
/// accumulated sums unless the method uses both.
void absorb_blocks(Summary& summary, const AttentionStats& watch, std::vector<Block> blocks,
                   std::span<const float> latest, const AskedQueries& asked) {
  for (Block& block : blocks) {
    block.queries = asked.rows;
    block.query_positions = asked.positions;
    if (!latest.empty()) {
      (watch.kind == AttentionStats::Kind::both ? block.recent_attention_sum
                                                : block.attention_sum) = latest.first(block.size());
      latest = latest.subspan(block.size());
    }
    summary.absorb(block);
  }
}

}  // namespace

std::vector<float> HeadCache::scores(const Budget& budget, Position now,
                                     std::span<const float> latest) const {
  const std::size_t all = window.size();
  const std::size_t first = std::min(budget.sink, all);
  const std::size_t middle = all - first - std::min(budget.window, all - first);
  std::vector<float> out(middle);
  if (middle == 0) return out;
  SummarySetup empty = setup;
  empty.capacity = 0;
  empty.sink = first;
  Block block = window.run(first, middle, now);
  require(block.size() == middle, "a window that holds everything wraps");
  if (!latest.empty()) block.attention_sum = latest.subspan(first, middle);
  make_summary(empty)->scores(block, out);
  return out;
}

void HeadCache::summarize(const Budget& budget, std::size_t room, Position now,
                          std::span<const float> latest, const AskedQueries& asked) {
  const std::size_t all = window.size();
  const std::size_t first = std::min(budget.sink, all);
  const std::size_t last = std::min(budget.window, all - first);
  const std::size_t middle = all - first - last;
  Window everything = std::move(window);

  sink = first;
  sink_keys = Rows(setup.key_type, setup.key_dim, first);
  sink_values = Rows(setup.value_type, setup.value_dim, first);
  for (const Block& block : everything.blocks(0, first, now)) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      sink_keys.copy(i, block.keys, i);
      sink_values.copy(i, block.values, i);
    }
  }
  setup.capacity = budget.summary;
  setup.sink = first;
  if (setup.tokens == 0 && setup.protocol == Protocol::prefill) setup.tokens = middle;
  summary = make_summary(setup);
  if (summary && middle > 0) {
    absorb_blocks(*summary, setup.policy.attention_stats(), everything.blocks(first, middle, now),
                  latest.empty() ? latest : latest.subspan(first), asked);
  }
  window = Window(setup, std::max(room, last), everything.attention_sum_bytes() != 0);
  for (std::size_t i = 0; i < last; ++i) window.push(everything, first + middle + i);
}

void HeadCache::summarize(std::span<const std::uint8_t> tiers, std::size_t sample,
                          const ReplayQueries* queries, std::size_t room, Position now) {
  Window everything = std::move(window);
  const std::size_t count =
      replay_tiers(setup.policy, setup.protocol, setup.key_dim, setup.value_dim).size();
  setup.capacity = sample + static_cast<std::size_t>(std::ranges::count_if(
                                tiers, [&](std::uint8_t t) { return t < count; }));
  summary = make_summary(setup);
  for (Block& block : everything.blocks(0, everything.size(), now)) {
    block.tiers = tiers.subspan(static_cast<std::size_t>(block.first), block.size());
    if (queries != nullptr) {
      block.queries = queries->view(setup.key_dim);
      block.query_positions = queries->positions;
      block.outside_logits = queries->outside_logits;
    }
    summary->absorb(block);
  }
  window = Window(setup, room, false);
}

void HeadCache::end_chunk(std::span<const std::uint8_t> tiers, Position now) {
  if (!summary) summary = make_summary(setup);
  {
    const Window chunk = std::move(window);
    Block block = chunk.run(0, chunk.size(), now);
    block.tiers = tiers;
    summary->absorb(block);
  }
  setup.capacity = summary->entries();
  window = Window(setup, 0, false);
}

void HeadCache::absorb_oldest(std::size_t count, Position now, std::span<const float> latest,
                              const AskedQueries& asked) {
  if (summary) {
    const AttentionStats watch = setup.policy.attention_stats();
    const std::size_t middle = summary->entries();
    if (!latest.empty()) {
      const auto attention_sum = latest.subspan(sink, middle);
      watch.kind == AttentionStats::Kind::both ? summary->observe_last(attention_sum)
                                               : summary->observe(attention_sum);
      latest = latest.subspan(sink + middle);
    }
    absorb_blocks(*summary, watch, window.blocks(0, count, now), latest, asked);
  }
  window.drop_oldest(count);
}

std::vector<KeptEntry> HeadCache::kept(Position now) const {
  std::vector<KeptEntry> out;
  for (std::size_t i = 0; i < sink; ++i) out.push_back({static_cast<Position>(i), 1, 1});
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
