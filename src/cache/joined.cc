#include "cache/joined.h"

#include <algorithm>

#include "base/fail.h"
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

}  // namespace

JoinedDocuments::JoinedDocuments(std::vector<Cache::Document> documents) {
  require(!documents.empty(), "no documents to join");
  for (const Cache::Document& one : documents) {
    require(one.cache != nullptr, "a document without a cache");
    const Cache& cache = *one.cache;
    const CacheShape& s = cache.shape();
    require(documents_.empty() || same_shape(s, shape()),
            "the documents are of several models, or one is so long that its positions turn "
            "otherwise");
    require(cache.options().positions == Positions::absolute && cache.joined_tokens() == 0,
            "documents are joined at absolute positions, and each is one text");
    require(cache.parts().layers[0]->skipped() == 0,
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

std::size_t JoinedDocuments::entries(std::size_t layer, std::size_t head) const {
  std::size_t sum = 0;
  for (const Document& d : documents_) sum += d.heads[layer * shape().kv_heads + head].entries;
  return sum;
}

CacheBytes JoinedDocuments::bytes() const {
  CacheBytes sum;
  for (const Document& d : documents_) sum += d.cache->bytes();
  return sum;
}

std::vector<KeptEntry> JoinedDocuments::kept(std::size_t layer, std::size_t head) const {
  std::vector<KeptEntry> out;
  for (const Document& d : documents_) {
    for (KeptEntry entry : d.cache->kept(layer, head)) {
      if (entry.position < d.left_out) continue;
      entry.position += d.offset;
      out.push_back(entry);
    }
  }
  return out;
}

void JoinedDocuments::attend(std::size_t layer, std::size_t head, const Queries& queries,
                             const Logits& logits, PartialAttention& partial) const {
  // Sink logits enter with the entries behind the documents.
  for (const Document& d : documents_) {
    d.back[d.back.size() == 1 ? 0 : layer].attend(
        queries, d.heads[layer * shape().kv_heads + head].segments, logits, partial);
  }
}

Cache Cache::join(std::vector<Document> documents) {
  auto joined = std::make_shared<const JoinedDocuments>(std::move(documents));
  CacheOptions options;
  options.pool = joined->options().pool;
  options.key_type = as_read(joined->options().key_type);
  options.value_type = as_read(joined->options().value_type);
  auto out = std::make_unique<CacheParts>(joined->shape(), options, false);
  for (auto& layer : out->layers) layer->join(*joined);
  out->joined = std::move(joined);
  return Cache(std::move(out));
}

std::size_t Cache::joined_tokens() const { return parts_->joined ? parts_->joined->tokens() : 0; }

}  // namespace ballast
