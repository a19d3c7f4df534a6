#include "cache/query_memory.h"

#include <algorithm>

#include "base/checks.h"
#include "base/fail.h"
#include "cache/head_elements.h"

namespace ballast {

QueryMemory::QueryMemory(std::size_t tokens, std::size_t group, std::size_t dim,
                         QueryMoments moments)
    : most_(tokens), group_(group), moments_(std::move(moments)) {
  if (tokens > 0) rows_ = Matrix(tokens * group, dim);
}

void QueryMemory::add(const HeadsView& queries, std::size_t head, std::size_t first) {
  float buffer[kMaxHeadDim];
  for (std::size_t t = 0; moments_.query_heads() > 0 && t < queries.tokens; ++t) {
    for (std::size_t g = 0; g < group_; ++g) {
      moments_.add(g, read_head(queries, t, head * group_ + g, buffer),
                   static_cast<Position>(first + t));
    }
  }
  for (std::size_t t = queries.tokens - std::min(queries.tokens, most_); t < queries.tokens; ++t) {
    for (std::size_t g = 0; g < group_; ++g) {
      std::ranges::copy(read_head(queries, t, head * group_ + g, buffer),
                        rows_[(first + t) % most_ * group_ + g].begin());
    }
  }
}

Matrix QueryMemory::rows(std::size_t seen) const {
  Matrix out(std::min(most_, seen) * group_, rows_.cols());
  std::copy_n(rows_.data(), out.rows() * out.cols(), out.data());
  return out;
}

std::vector<Position> QueryMemory::positions(std::size_t seen) const {
  std::vector<Position> out;
  // Slot s holds the last token t with t mod most_ = s.
  for (std::size_t s = 0; s < std::min(most_, seen); ++s) {
    out.insert(out.end(), group_, static_cast<Position>(seen - 1 - (seen - 1 - s) % most_));
  }
  return out;
}

void QueryMemory::copy(const QueryMemory& other) {
  moments_ = other.moments_;
  std::copy_n(other.rows_.data(), other.rows_.rows() * other.rows_.cols(), rows_.data());
}

void QueryMemory::truncate(std::size_t tokens, std::size_t seen) {
  for (std::size_t t = tokens; most_ > 0 && t < seen; ++t) {
    for (std::size_t g = 0; g < group_; ++g) std::ranges::fill(rows_[t % most_ * group_ + g], 0.0f);
  }
}

void QueryMemory::copy_prompt(const QueryMemory& other, std::size_t seen) {
  if (moments_.query_heads() > 0) moments_ = other.moments_;
  for (std::size_t t = seen - std::min(seen, most_); t < seen; ++t) {
    for (std::size_t g = 0; g < group_; ++g) {
      std::ranges::copy(other.rows_[t % other.most_ * group_ + g],
                        rows_[t % most_ * group_ + g].begin());
    }
  }
}

void QueryMemory::save(ByteWriter& out) const {
  out.put_all<float>({rows_.data(), rows_.rows() * rows_.cols()});
  moments_.save(out);
}

void QueryMemory::load(ByteReader& in) {
  const std::span<float> rows(rows_.data(), rows_.rows() * rows_.cols());
  in.get_all<float>(rows);
  require(first_not_finite(rows) == rows.size(), "{}: a query is not finite", in.what());
  moments_.load(in);
}

}  // namespace ballast
