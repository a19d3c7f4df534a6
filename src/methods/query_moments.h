// Mean and covariance of the queries of a KV head's query heads before rotation.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/attention.h"
#include "ballast/rotary.h"

namespace ballast {

class ByteReader;
class ByteWriter;

class QueryMoments {
 public:
  /// Tokens at the start of a text whose queries are left out: they are unlike all others.
  static constexpr Position kSkipped = 4;

  QueryMoments() = default;
  /// `rotary`: by which queries were turned to their positions; nothing turns: they were not.
  QueryMoments(std::size_t query_heads, std::size_t dim, const Rotary& rotary);

  /// Takes in the query of a query head of the KV head. Sums grow in the order of the calls.
  void add(std::size_t query_head, std::span<const float> query, Position position);

  struct Moments {
    std::vector<double> mean;        ///< dim
    std::vector<double> covariance;  ///< dim × dim; of the population
  };
  /// Of the queries once they are turned to positions: the mean of the rotations at `from`,
  /// from + 1, … (`count` of them) turns both. Zeros when there were no queries.
  Moments turned(std::size_t query_head, Position from, std::size_t count) const;

  /// Before rotation.
  struct Elements {
    std::vector<double> mean, square;  ///< of each element, and of its square; dim
  };
  /// Zeros when there were no queries.
  Elements elements(std::size_t query_head) const;
  const Rotary& rotary() const { return rotary_; }

  std::size_t query_heads() const { return query_heads_; }
  std::size_t bytes() const;  ///< nothing before the first query
  /// Numbers that save() writes: 1 + dim + dim (dim + 1) / 2 a query head, f64.
  std::size_t saved_numbers() const;
  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  struct Head {
    double count = 0;
    std::vector<double> sum;
    std::vector<double> squares;  ///< sums of products, rows of the lower triangle
  };

  void allocate();

  std::size_t query_heads_ = 0;
  std::size_t dim_ = 0;
  Rotary rotary_;
  std::vector<Head> heads_;  ///< none before the first query
};

}  // namespace ballast
