#include "methods/query_moments.h"

#include <algorithm>
#include <cmath>

#include "attention/rotary.h"
#include "ballast/serialize.h"
#include "base/fail.h"

namespace ballast {
namespace {

/// Turns the pairs of `row` by cosines and sines, as rotate() does, in float64.
void turn(const Rotary& rotary, std::span<const double> table, std::span<double> row) {
  const std::size_t count = rotary.frequencies.size();
  for (std::size_t i = 0; i < count; ++i) {
    double& a = row[rotary.pairs ? 2 * i : i];
    double& b = row[rotary.pairs ? 2 * i + 1 : i + count];
    const double cosine = table[2 * i], sine = table[2 * i + 1], x = a;
    a = x * cosine - b * sine;
    b = x * sine + b * cosine;
  }
}

}  // namespace

QueryMoments::QueryMoments(std::size_t query_heads, std::size_t dim, const Rotary& rotary)
    : query_heads_(query_heads), dim_(dim), rotary_(rotary) {}

void QueryMoments::allocate() {
  heads_.resize(query_heads_);
  for (Head& head : heads_) {
    head.sum.resize(dim_);
    head.squares.resize(dim_ * (dim_ + 1) / 2);
  }
}

void QueryMoments::add(std::size_t query_head, std::span<const float> query, Position position) {
  if (position < kSkipped) return;
  if (heads_.empty()) allocate();
  std::vector<double> row(query.begin(), query.end());
  if (!rotary_.frequencies.empty()) {
    std::vector<double> back;
    for (float frequency : rotary_.frequencies) {
      const double angle = -double{frequency} * position;
      back.push_back(std::cos(angle) / double{rotary_.magnitude});
      back.push_back(std::sin(angle) / double{rotary_.magnitude});
    }
    turn(rotary_, back, row);
  }
  Head& head = heads_[query_head];
  ++head.count;
  double* squares = head.squares.data();
  for (std::size_t a = 0; a < dim_; ++a) {
    head.sum[a] += row[a];
    for (std::size_t b = 0; b <= a; ++b) *squares++ += row[a] * row[b];
  }
}

QueryMoments::Moments QueryMoments::turned(std::size_t query_head, Position from,
                                           std::size_t count) const {
  Moments out{std::vector<double>(dim_), std::vector<double>(dim_ * dim_)};
  if (heads_.empty() || heads_[query_head].count == 0) return out;
  const Head& head = heads_[query_head];
  for (std::size_t a = 0; a < dim_; ++a) out.mean[a] = head.sum[a] / head.count;
  const double* squares = head.squares.data();
  for (std::size_t a = 0; a < dim_; ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      const double both = *squares++ / head.count - out.mean[a] * out.mean[b];
      out.covariance[a * dim_ + b] = out.covariance[b * dim_ + a] = both;
    }
  }
  if (rotary_.frequencies.empty() || count == 0) return out;
  std::vector<double> table;
  for (float frequency : rotary_.frequencies) {
    double cosine = 0, sine = 0;
    for (std::size_t t = 0; t < count; ++t) {
      const double angle = double{frequency} * (double(from) + static_cast<double>(t));
      cosine += std::cos(angle);
      sine += std::sin(angle);
    }
    const double scale = double{rotary_.magnitude} / static_cast<double>(count);
    table.push_back(cosine * scale);
    table.push_back(sine * scale);
  }
  turn(rotary_, table, out.mean);
  // R S R^T: the rows of S turned, then those of the transpose.
  const auto rows = [&](std::size_t a) {
    return std::span(out.covariance).subspan(a * dim_, dim_);
  };
  for (int side = 0; side < 2; ++side) {
    for (std::size_t a = 0; a < dim_; ++a) turn(rotary_, table, rows(a));
    for (std::size_t a = 0; a < dim_; ++a) {
      for (std::size_t b = 0; b < a; ++b) std::swap(rows(a)[b], rows(b)[a]);
    }
  }
  return out;
}

QueryMoments::Elements QueryMoments::elements(std::size_t query_head) const {
  Elements out{std::vector<double>(dim_), std::vector<double>(dim_)};
  if (heads_.empty() || heads_[query_head].count == 0) return out;
  const Head& head = heads_[query_head];
  for (std::size_t a = 0; a < dim_; ++a) {
    out.mean[a] = head.sum[a] / head.count;
    out.square[a] = head.squares[a * (a + 1) / 2 + a] / head.count;
  }
  return out;
}

std::size_t QueryMoments::saved_numbers() const {
  return query_heads_ * (1 + dim_ + dim_ * (dim_ + 1) / 2);
}

std::size_t QueryMoments::bytes() const {
  return heads_.empty() ? 0 : saved_numbers() * sizeof(double);
}

void QueryMoments::save(ByteWriter& out) const {
  if (heads_.empty()) out.put_all<double>(std::vector<double>(saved_numbers()));
  for (const Head& head : heads_) {
    out.put<double>(head.count);
    out.put_all<double>(head.sum);
    out.put_all<double>(head.squares);
  }
}

void QueryMoments::load(ByteReader& in) {
  require(saved_numbers() <= in.left() / sizeof(double),
          "{}: moments of queries, {} numbers, cannot be in {} bytes", in.what(), saved_numbers(),
          in.left());
  allocate();
  for (Head& head : heads_) {
    head.count = in.get<double>();
    in.get_all<double>(head.sum);
    in.get_all<double>(head.squares);
    const auto finite = [](double x) { return std::isfinite(x); };
    require(finite(head.count) && head.count >= 0 && std::ranges::all_of(head.sum, finite) &&
                std::ranges::all_of(head.squares, finite),
            "{}: the moments of queries are not numbers", in.what());
  }
  if (std::ranges::all_of(heads_, [](const Head& head) { return head.count == 0; })) heads_ = {};
}

}  // namespace ballast
