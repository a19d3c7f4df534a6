#include "cache/joined.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ballast/joined.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/cache_parts.h"
#include "storage/gap_code.h"
#include "storage/low_bits.h"

namespace ballast {
namespace {

bool same_shape(const CacheShape& a, const CacheShape& b) {
  return a.layers == b.layers && a.kv_heads == b.kv_heads &&
         a.queries_per_kv_head == b.queries_per_kv_head && a.key_dim == b.key_dim &&
         a.value_dim == b.value_dim && a.logits.scale == b.logits.scale &&
         a.logits.softcap == b.logits.softcap &&
         a.logits.sliding_window == b.logits.sliding_window &&
         a.sliding_windows == b.sliding_windows && a.alibi_slopes == b.alibi_slopes &&
         a.rotary == b.rotary && a.rotations == b.rotations;
}

/// Entries at the start of a segment that stand before `end`. What has no positions has none.
std::size_t entries_before(const Segment& segment, Position end) {
  const std::size_t rows = segment.keys.rows;
  std::size_t count = 0;
  if (segment.positions != nullptr) {
    while (count < rows && segment.positions[count] < end) ++count;
  } else if (segment.first_position >= 0) {
    count = std::min(rows, static_cast<std::size_t>(std::max(0, end - segment.first_position)));
  } else if (segment.keys.gaps != nullptr) {
    GapReader reader(segment.keys.gaps);
    while (count < rows && reader.next() < end) ++count;
  }
  return count;
}

/// Where entries stand that no query sees.
constexpr Position kNever = std::numeric_limits<Position>::max() / 2;

/// Where each entry of a segment stands in its document; empty: it is not known.
std::vector<Position> positions_of(const Segment& segment) {
  const std::size_t rows = segment.keys.rows;
  const Position* known = segment.positions ? segment.positions : segment.keys.positions;
  std::vector<Position> out;
  if (known != nullptr) {
    out.assign(known, known + rows);
  } else if (segment.first_position >= 0) {
    out.resize(rows);
    std::iota(out.begin(), out.end(), segment.first_position);
  } else if (segment.keys.gaps != nullptr) {
    out.resize(rows);
    decode_gaps(segment.keys.gaps, out);
  }
  return out;
}

}  // namespace

JoinedDocuments::JoinedDocuments(std::vector<JoinedDocument> documents) {
  require(!documents.empty(), "no documents to join");
  for (const JoinedDocument& one : documents) {
    require(one.cache != nullptr, "a document without a cache");
    const Cache& cache = *one.cache;
    const CacheShape& s = cache.shape();
    require(documents_.empty() || same_shape(s, shape()),
            "the documents are of several models, or one is so long that its positions turn "
            "otherwise");
    require(cache.options().positions == Positions::absolute && joined_tokens(cache) == 0,
            "documents are joined at absolute positions, and each is one text");
    require(CacheParts::of(cache).layers[0]->attention().skipped() == 0,
            "a document of {} tokens, the first of which are out of reach, cannot be joined",
            cache.tokens());
    require(
        s.recurrent.empty(), ErrorCode::unsupported,
        "documents of a model with recurrent layers cannot be joined: such a layer has one state");
    require(cache.tokens() > one.left_out, "a document of {} tokens, of which {} are left out",
            cache.tokens(), one.left_out);
    Document& d = documents_.emplace_back();
    d.cache = one.cache;
    d.left_out = static_cast<Position>(one.left_out);
    d.offset = static_cast<Position>(tokens_) - d.left_out;
    tokens_ += cache.tokens() - one.left_out;
    for (std::size_t l = 0; l < std::max<std::size_t>(1, s.rotations.size()); ++l) {
      d.back.emplace_back(s.rotary_of(l), d.offset);
    }
    for (std::size_t l = 0; l < s.layers; ++l) {
      require(cache.tokens(l) == cache.tokens(), "layer {} of a document has read {} tokens of {}",
              l, cache.tokens(l), cache.tokens());
      for (std::size_t h = 0; h < s.kv_heads; ++h) {
        Head& head = d.heads.emplace_back();
        for (Segment segment : cache.segments(l, h)) {
          const std::size_t out = entries_before(segment, d.left_out);
          const std::size_t rows = segment.keys.rows - out;
          if (rows == 0) continue;
          if (out > 0) {
            const RowsView whole = segment.keys;
            segment.keys = whole.slice(out, rows);
            if (whole.gaps != nullptr) {
              std::vector<Position> places(whole.rows);
              decode_gaps(whole.gaps, places);
              head.positions.push_back(std::move(places));
              segment.keys.positions = head.positions.back().data() + out;
            }
            if (segment.role != Role::normaliser) segment.values = segment.values.slice(out, rows);
            if (segment.log_weights != nullptr) segment.log_weights += out;
            if (segment.positions != nullptr) segment.positions += out;
            if (segment.first_position >= 0) segment.first_position += static_cast<Position>(out);
          }
          if (segment.role != Role::numerator) head.entries += rows;
          head.segments.push_back(segment);
        }
      }
    }
  }
}

void JoinedDocuments::hide(std::span<const Position> places) {
  require(again_.empty(), "tokens of joined documents are read again once");
  for (Document& d : documents_) {
    const auto end = static_cast<Position>(d.cache->tokens());
    if (places.empty() || d.offset + end <= places.front()) continue;  // queries see all of it
    std::vector<bool> hidden(d.cache->tokens());
    for (const Position place : places) {
      const Position own = place - d.offset;
      if (own >= d.left_out && own < end) hidden[static_cast<std::size_t>(own)] = true;
    }
    for (Head& head : d.heads) {
      for (Segment& segment : head.segments) {
        std::vector<Position> from = positions_of(segment);
        require(!from.empty() && segment.role == Role::both && segment.log_weights == nullptr,
                ErrorCode::unsupported,
                "tokens of documents in {} cannot be read again: its entries stand for several",
                d.cache->options().policy.info().name);
        for (Position& at : from) {
          if (!hidden[static_cast<std::size_t>(at)]) continue;
          at = kNever;
          --head.entries;
        }
        head.seen_from.push_back(std::move(from));
        segment.positions = head.seen_from.back().data();
      }
    }
  }
  const CacheOptions& o = options();
  again_.resize(shape().layers * shape().kv_heads);
  for (Again& again : again_) {
    again.keys = Rows(as_read(o.key_type), shape().key_dim, places.size());
    again.values = Rows(as_read(o.value_type), shape().value_dim, places.size());
    again.places.reserve(places.size());
  }
}

void JoinedDocuments::read_again(std::size_t layer, std::span<const Position> places,
                                 ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                                 MutableMatrix out) {
  const CacheShape& s = shape();
  const std::size_t group = s.queries_per_kv_head, heads = s.kv_heads;
  for (std::size_t h = 0; h < heads; ++h) {
    Again& again = again_[layer * heads + h];
    for (std::size_t t = 0; t < places.size(); ++t) {
      const std::size_t row = again.places.size();
      again.keys.set(row, keys[t].subspan(h * s.key_dim, s.key_dim));
      again.values.set(row, values[t].subspan(h * s.value_dim, s.value_dim));
      again.places.push_back(places[t]);
    }
  }
  Logits logits = s.logits;
  if (!s.sliding_windows.empty()) logits.sliding_window = s.sliding_windows[layer];
  constexpr std::size_t kTokens = 32;  // that a thread answers at once
  const std::size_t parts = (places.size() + kTokens - 1) / kTokens;
  parallel_for(heads * parts, [&](std::size_t i) {
    const std::size_t h = i % heads, first = i / heads * kTokens;
    const std::size_t tokens = std::min(kTokens, places.size() - first), rows = tokens * group;
    Matrix asked(rows, s.key_dim), answers(rows, s.value_dim);
    std::vector<Position> at(rows);
    std::vector<float> slopes(s.alibi_slopes.empty() ? 0 : rows), sinks;
    sinks.resize(s.sink_logits.empty() ? 0 : rows);
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t t = first + r / group, q = h * group + r % group;
      std::ranges::copy(queries[t].subspan(q * s.key_dim, s.key_dim), asked[r].begin());
      at[r] = places[t];
      if (!slopes.empty()) slopes[r] = s.alibi_slopes[q];
      if (!sinks.empty()) sinks[r] = s.sink_logits[layer * heads * group + q];
    }
    const Queries all{asked.view(), at, slopes, sinks};
    PartialAttention partial(rows, s.value_dim);
    attend(layer, h, all, logits, partial);
    attend_partial(all, {}, logits, partial);
    partial.finish(answers.view());
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t t = first + r / group, q = h * group + r % group;
      std::ranges::copy(answers[r], out[t].subspan(q * s.value_dim, s.value_dim).begin());
    }
  });
}

std::size_t JoinedDocuments::entries(std::size_t layer, std::size_t head) const {
  std::size_t sum = 0;
  for (const Document& d : documents_) sum += d.heads[layer * shape().kv_heads + head].entries;
  if (!again_.empty()) sum += again_[layer * shape().kv_heads + head].places.size();
  return sum;
}

CacheBytes JoinedDocuments::bytes() const {
  CacheBytes sum;
  for (const Document& d : documents_) {
    sum += d.cache->bytes();
    for (const Head& head : d.heads) {
      for (const auto& from : head.seen_from) sum.summary += from.size() * sizeof(Position);
    }
  }
  for (const Again& again : again_) {
    sum.summary +=
        again.keys.bytes() + again.values.bytes() + again.places.size() * sizeof(Position);
  }
  return sum;
}

std::vector<KeptEntry> JoinedDocuments::kept(std::size_t layer, std::size_t head) const {
  std::vector<KeptEntry> out;
  const auto again = again_.empty() ? std::span<const Position>()
                                    : std::span(again_[layer * shape().kv_heads + head].places);
  for (const Document& d : documents_) {
    for (KeptEntry entry : d.cache->kept(layer, head)) {
      if (entry.position < d.left_out) continue;
      entry.position += d.offset;
      if (!std::ranges::binary_search(again, entry.position)) out.push_back(entry);
    }
  }
  for (const Position place : again) out.push_back({.position = place});
  if (!again.empty()) std::ranges::stable_sort(out, {}, &KeptEntry::position);
  return out;
}

void JoinedDocuments::attend(std::size_t layer, std::size_t head, const Queries& queries,
                             const Logits& logits, PartialAttention& partial) const {
  // Sink logits enter with the entries behind the documents.
  const Position last = *std::ranges::max_element(queries.positions);
  for (const Document& d : documents_) {
    if (d.offset + d.left_out > last) break;
    d.back[d.back.size() == 1 ? 0 : layer].attend(
        queries, d.heads[layer * shape().kv_heads + head].segments, logits, partial);
  }
  if (again_.empty()) return;
  const Again& again = again_[layer * shape().kv_heads + head];
  Queries asked = queries;
  asked.sink_logits = {};
  const std::size_t count = again.places.size();
  const Segment segment{.keys = again.keys.view(0, count),
                        .values = again.values.view(0, count),
                        .positions = again.places.data()};
  attend_partial(asked, {&segment, 1}, logits, partial);
}

Cache join_documents(std::vector<JoinedDocument> documents) {
  auto joined = std::make_shared<JoinedDocuments>(std::move(documents));
  CacheOptions options;
  options.pool = joined->options().pool;
  options.key_type = as_read(joined->options().key_type);
  options.value_type = as_read(joined->options().value_type);
  auto out = std::make_unique<CacheParts>(joined->shape(), options, false);
  for (auto& layer : out->layers) layer->join(*joined);
  out->joined = std::move(joined);
  return CacheParts::cache_of(std::move(out));
}

std::size_t joined_tokens(const Cache& cache) {
  const auto& joined = CacheParts::of(cache).joined;
  return joined ? joined->tokens() : 0;
}

JoinedDocuments& documents_of(Cache& joined) { return *CacheParts::of(joined).joined; }

}  // namespace ballast
