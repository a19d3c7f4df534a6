#include "cache/layer_attention.h"

#include <algorithm>
#include <optional>

#include "attention/kernels/attention_kernels.h"
#include "base/fail.h"
#include "cache/head_elements.h"
#include "cache/joined.h"
#include "cache/rolling.h"

namespace ballast {

static_assert(kMaxHeadDim == kernels::kMaxDim);

namespace {

/// What a thread works in while it attends for a head. It is kept from call to call: at short
/// contexts an allocation costs as much as a block of entries.
struct Scratch {
  /// Rows packed at once, which bounds what a thread keeps.
  static constexpr std::size_t kRows = 1024;

  std::vector<Segment> segments;
  std::vector<Position> positions;
  std::vector<float> slopes, sinks;

  /// `queries` rows of key_dim elements and `outputs` of value_dim.
  void reserve(std::size_t queries, std::size_t key_dim, std::size_t outputs,
               std::size_t value_dim) {
    const std::size_t wanted = queries * key_dim + outputs * value_dim;
    if (wanted > size_) rows_ = allocate_aligned<float>(wanted);
    size_ = std::max(size_, wanted);
    packed = {rows_.get(), queries, key_dim};
    answers = {rows_.get() + queries * key_dim, outputs, value_dim};
  }
  MutableMatrix packed, answers;

 private:
  AlignedArray<float> rows_;
  std::size_t size_ = 0;
};

/// Where its first entry stands in the text.
Position first_position(const Segment& segment) {
  if (segment.first_position >= 0) return segment.first_position;
  return segment.positions != nullptr ? segment.positions[0] : segment.keys.position(0);
}

Scratch& scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace

Logits LayerAttention::logits() const {
  Logits logits = shape_.logits;
  if (!shape_.sliding_windows.empty()) logits.sliding_window = shape_.sliding_windows[layer_];
  return logits;
}

const Rotary& LayerAttention::rotary() const {
  // With rolling positions keys and queries come as they were before rotation.
  static const Rotary none;
  return rotations_ == nullptr ? shape_.rotary_of(layer_) : none;
}

std::span<const float> LayerAttention::slopes(std::size_t h) const {
  if (shape_.alibi_slopes.empty()) return {};
  return {shape_.alibi_slopes.data() + h * shape_.queries_per_kv_head, shape_.queries_per_kv_head};
}

std::span<const float> LayerAttention::sinks(std::size_t h) const {
  if (shape_.sink_logits.empty()) return {};
  const std::size_t group = shape_.queries_per_kv_head;
  return {shape_.sink_logits.data() + (layer_ * shape_.kv_heads + h) * group, group};
}

void LayerAttention::skip(Position tokens) {
  if (tokens != skipped()) skipped_ = TurnBack(rotary(), tokens);
}

void LayerAttention::copy(const LayerAttention& other) {
  documents_ = other.documents_;
  skipped_ = other.skipped_;
}

Queries LastQueries::rows(std::size_t first, std::size_t count) const {
  const auto part = [&](std::span<const float> all) {
    return all.empty() ? all : all.subspan(first, count);
  };
  return {queries.view().slice(first, count), std::span(positions).subspan(first, count),
          part(slopes), part(sinks)};
}

LastQueries LayerAttention::last_queries(std::size_t h, const HeadCache& head,
                                         std::size_t now) const {
  LastQueries out{head.queries.rows(now), head.queries.positions(now), {}, {}};
  for (std::size_t r = 0; r < out.size(); r += shape_.queries_per_kv_head) {
    out.slopes.insert(out.slopes.end(), slopes(h).begin(), slopes(h).end());
    out.sinks.insert(out.sinks.end(), sinks(h).begin(), sinks(h).end());
  }
  return out;
}

// Rows begin .. end of the (token, query head) pairs. They are read and written where they lie if
// one stride reaches them all, and packed otherwise.
void LayerAttention::answer(std::size_t h, const HeadCache& head, std::size_t now,
                            const HeadsView& queries, std::size_t begin, std::size_t end,
                            const MutableHeadsView& out, std::span<float> attention_sum) const {
  const std::size_t group = shape_.queries_per_kv_head, first_head = h * group;
  const std::size_t rows = end - begin, first_token = now - queries.tokens;
  Scratch& s = scratch();
  s.segments.clear();
  head.segments(static_cast<Position>(now), s.segments);
  std::optional<RolledEntries> rolled;
  if (rotations_ != nullptr) rolled.emplace(*rotations_, s.segments);
  const bool packs = rolled || !are_rows(queries, group), unpacks = !are_rows(out, group);
  const std::size_t together = packs || unpacks ? std::min(rows, Scratch::kRows) : rows;
  s.reserve(packs ? together : 0, shape_.key_dim, unpacks ? together : 0, shape_.value_dim);
  const std::span<const float> slopes = this->slopes(h), sinks = this->sinks(h);
  for (std::size_t first = begin; first < end; first += together) {
    const std::size_t count = std::min(together, end - first);
    s.positions.resize(count);
    s.slopes.resize(slopes.empty() ? 0 : count);
    s.sinks.resize(sinks.empty() ? 0 : count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t t = (first + i) / group, g = (first + i) % group;
      s.positions[i] = static_cast<Position>(first_token + t);
      if (!slopes.empty()) s.slopes[i] = slopes[g];
      if (!sinks.empty()) s.sinks[i] = sinks[g];
      if (!packs) continue;
      float* const row = s.packed.row(i);
      const std::span<const float> query = read_head(queries, t, first_head + g, row);
      if (query.data() != row) std::ranges::copy(query, row);
    }
    if (rolled) rolled->place(s.positions, s.packed.slice(0, count));
    const ConstMatrix asked =
        packs ? s.packed.slice(0, count)
              : rows_of<const float>(queries, first_head, group).slice(first, count);
    const MutableMatrix answers = unpacks
                                      ? s.answers.slice(0, count)
                                      : rows_of<float>(out, first_head, group).slice(first, count);
    attend_rows(h, {asked, s.positions, s.slopes, s.sinks}, s.segments, answers, attention_sum);
    for (std::size_t i = 0; unpacks && i < count; ++i)
      write_head(answers[i], out, (first + i) / group, first_head + (first + i) % group);
  }
}

void LayerAttention::attend_rows(std::size_t h, const Queries& queries,
                                 std::span<const Segment> segments, MutableMatrix out,
                                 std::span<float> attention_sum) const {
  if (documents_ != nullptr) {
    require(attention_sum.empty(), "a joined cache does not say what its attention looks at");
    PartialAttention partial(queries.rows.rows, out.cols);
    documents_->attend(layer_, h, queries, logits(), partial);
    attend_partial(queries, segments, logits(), partial);
    partial.finish(out);
  } else if (skipped() > 0) {
    require(attention_sum.empty(),
            "a text beyond reach={} does not say what its attention looks at",
            options_.policy.integer("reach"));
    thread_local std::vector<Segment> first, later;
    first.clear();
    later.clear();
    const auto end = static_cast<Position>(options_.policy.integer("sink"));
    for (const Segment& segment : segments) {
      (first_position(segment) < end ? first : later).push_back(segment);
    }
    PartialAttention partial(queries.rows.rows, out.cols);
    skipped_.attend(queries, first, logits(), partial);
    attend_partial(queries, later, logits(), partial);
    partial.finish(out);
  } else if (attention_sum.empty()) {
    ballast::attend(queries, segments, logits(), out);
  } else {
    attend_with_attention_sum(queries, segments, logits(), out, attention_sum);
  }
}

void LayerAttention::attend(std::size_t h, std::vector<Segment> segments, const Queries& queries,
                            MutableMatrix out, std::span<float> attention_sum) const {
  if (rotations_ == nullptr) return attend_rows(h, queries, segments, out, attention_sum);
  const RolledEntries rolled(*rotations_, segments);
  Matrix rows(queries.rows.rows, queries.rows.cols);
  for (std::size_t r = 0; r < rows.rows(); ++r) std::ranges::copy(queries.rows[r], rows[r].begin());
  std::vector<Position> places(queries.positions.begin(), queries.positions.end());
  rolled.place(places, rows.view());
  attend_rows(h, {rows.view(), places, queries.alibi_slopes, queries.sink_logits}, segments, out,
              attention_sum);
}

}  // namespace ballast
