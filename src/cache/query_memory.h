// What a cache remembers of the queries of one KV head.
#pragma once

#include <cstddef>
#include <vector>

#include "ballast/heads.h"
#include "ballast/matrix.h"
#include "ballast/serialize.h"
#include "methods/query_moments.h"

namespace ballast {

/// The queries of the last tokens, and the moments of all. One that was made by default remembers
/// nothing.
class QueryMemory {
 public:
  QueryMemory() = default;
  /// Queries of the last `tokens` tokens, `group` rows of `dim` elements a token. `moments`: of no
  /// query heads unless they are wanted.
  QueryMemory(std::size_t tokens, std::size_t group, std::size_t dim, QueryMoments moments);

  /// Takes in the queries of KV head `head`, the first of token `first`.
  void add(const HeadsView& queries, std::size_t head, std::size_t first);

  /// Tokens whose queries are remembered, at most.
  std::size_t most() const { return most_; }
  /// The rows remembered after `seen` tokens; the order is that of the ring.
  Matrix rows(std::size_t seen) const;
  /// Where each stands.
  std::vector<Position> positions(std::size_t seen) const;
  /// Null unless they are wanted.
  const QueryMoments* moments() const { return moments_.query_heads() > 0 ? &moments_ : nullptr; }
  void forget_moments() { moments_ = {}; }

  /// Becomes that of another sequence with the same options.
  void copy(const QueryMemory& other);
  /// The tokens from `tokens` on, of `seen`, never came.
  void truncate(std::size_t tokens, std::size_t seen);
  /// Takes what this one wants of the memory of another method after `seen` tokens.
  void copy_prompt(const QueryMemory& other, std::size_t seen);

  std::size_t bytes() const {
    return rows_.rows() * rows_.cols() * sizeof(float) + moments_.bytes();
  }
  void save(ByteWriter& out) const;
  /// Throws Error on elements that are not finite.
  void load(ByteReader& in);

 private:
  std::size_t most_ = 0;
  std::size_t group_ = 0;
  Matrix rows_;  ///< token t is in slot t mod most_, group_ rows each
  QueryMoments moments_;
};

}  // namespace ballast
