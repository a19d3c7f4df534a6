// Documents that were read each alone, and stand one behind the other.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ballast/joined.h"
#include "cache/turn_back.h"

namespace ballast {

/// The documents of a joined cache. A document at offset s answers a query at position p as its own
/// query at position p - s: keys and means of its rows stay at the positions of its own text.
/// Some tokens may be read again where they stand, so that they know the documents before theirs:
/// their rows in the documents are hidden, those read again are kept beside.
class JoinedDocuments {
 public:
  /// Throws Error as join_documents() does.
  explicit JoinedDocuments(std::vector<JoinedDocument> documents);

  /// The tokens at `places`, ascending, will be read again. Once. Throws Error if entries of
  /// a document stand for several tokens.
  void hide(std::span<const Position> places);
  /// Takes in tokens that are read again and answers their queries: float32 rows of heads side by
  /// side. Places ascend from call to call.
  void read_again(std::size_t layer, std::span<const Position> places, ConstMatrix keys,
                  ConstMatrix values, ConstMatrix queries, MutableMatrix out);

  const CacheShape& shape() const { return documents_[0].cache->shape(); }
  const CacheOptions& options() const { return documents_[0].cache->options(); }
  /// Without those left out.
  std::size_t tokens() const { return tokens_; }
  /// Of one head; not of the largest.
  std::size_t entries(std::size_t layer, std::size_t head) const;
  CacheBytes bytes() const;
  /// In order of position.
  std::vector<KeptEntry> kept(std::size_t layer, std::size_t head) const;
  /// Adds what all documents answer. Queries are at positions behind them.
  void attend(std::size_t layer, std::size_t head, const Queries& queries, const Logits& logits,
              PartialAttention& partial) const;

 private:
  struct Head {
    std::vector<Segment> segments;                 ///< without what is left out
    std::vector<std::vector<Position>> positions;  ///< of segments whose first entries are
    std::vector<std::vector<Position>> seen_from;  ///< of segments of which some are hidden
    std::size_t entries = 0;
  };
  struct Document {
    std::shared_ptr<const Cache> cache;
    Position left_out = 0;
    Position offset = 0;         ///< of its token 0, which may be left out
    std::vector<TurnBack> back;  ///< by the offset; of each layer, or of all
    std::vector<Head> heads;     ///< of each layer
  };
  /// Rows of a head that were read again, and where they stand.
  struct Again {
    Rows keys, values;
    std::vector<Position> places;
  };

  std::vector<Document> documents_;
  std::size_t tokens_ = 0;
  std::vector<Again> again_;  ///< of each head of each layer; empty: no token is read again
};

/// Those of a cache made by join_documents().
JoinedDocuments& documents_of(Cache& joined);

}  // namespace ballast
