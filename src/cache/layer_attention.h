// How queries attend to the entries of a layer: at their positions, at those of the cache, behind
// documents, or beyond tokens out of reach.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/cache.h"
#include "cache/head_cache.h"
#include "cache/turn_back.h"

namespace ballast {

class JoinedDocuments;
class RotaryTable;

/// The queries that a head remembers, as they attend: queries_per_kv_head rows a token.
struct LastQueries {
  Matrix queries;
  std::vector<Position> positions;
  std::vector<float> slopes, sinks;  ///< of each row, or empty

  std::size_t size() const { return queries.rows(); }
  /// Rows [first, first + count).
  Queries rows(std::size_t first, std::size_t count) const;
};

class LayerAttention {
 public:
  /// `rotations`: null when positions are absolute.
  LayerAttention(const CacheShape& shape, const CacheOptions& options, std::size_t layer,
                 RotaryTable* rotations)
      : shape_(shape), options_(options), layer_(layer), rotations_(rotations) {}

  Logits logits() const;
  /// Of the keys as they come; of nothing with rolling positions.
  const Rotary& rotary() const;
  /// ALiBi slopes and attention sinks of the query heads of KV head h, or empty.
  std::span<const float> slopes(std::size_t h) const;
  std::span<const float> sinks(std::size_t h) const;
  bool rolls() const { return rotations_ != nullptr; }

  /// Documents before all entries, which must outlive this; null: none.
  const JoinedDocuments* documents() const { return documents_; }
  void join(const JoinedDocuments& documents) { documents_ = &documents; }
  /// Tokens behind the first ones (sink=) that are out of reach, as if they had never been.
  Position skipped() const { return skipped_.offset(); }
  void skip(Position tokens);
  /// Has the documents and the reach of another.
  void copy(const LayerAttention& other);

  /// Answers rows begin .. end of the (token, query head) pairs of KV head h. The queries are those
  /// of the last tokens of `now`. `attention_sum`: an element an entry, to which the attention is
  /// added, or empty.
  void answer(std::size_t h, const HeadCache& head, std::size_t now, const HeadsView& queries,
              std::size_t begin, std::size_t end, const MutableHeadsView& out,
              std::span<float> attention_sum) const;
  /// Over the entries of head h at their positions.
  void attend(std::size_t h, std::vector<Segment> segments, const Queries& queries,
              MutableMatrix out, std::span<float> attention_sum) const;
  /// Those that head h remembers after `now` tokens.
  LastQueries last_queries(std::size_t h, const HeadCache& head, std::size_t now) const;

 private:
  void attend_rows(std::size_t h, const Queries& queries, std::span<const Segment> segments,
                   MutableMatrix out, std::span<float> attention_sum) const;

  const CacheShape& shape_;
  const CacheOptions& options_;
  std::size_t layer_;
  RotaryTable* rotations_;
  const JoinedDocuments* documents_ = nullptr;
  TurnBack skipped_;  ///< brings the first tokens within reach
};

}  // namespace ballast
