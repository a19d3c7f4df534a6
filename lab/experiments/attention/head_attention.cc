#include "experiments/attention/head_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/row_mean.h"
#include "storage/low_bits.h"

namespace ballast {

Segment exact_segment(const RowsView& keys, const RowsView& values, std::size_t begin,
                      std::size_t count) {
  Segment segment;
  segment.keys = keys.slice(begin, count);
  segment.values = values.slice(begin, count);
  segment.first_position = static_cast<Position>(begin);
  return segment;
}

HeadAttention::HeadAttention(const KvSource& source, std::size_t layer, std::size_t kv_head,
                             float scale)
    : source_(source), layer_(layer), kv_head_(kv_head) {
  const KvShape& s = source.shape();
  logits_ = source.logits();
  if (scale > 0) logits_.scale = scale;
  keys_ = source.read(KvSource::Part::key, layer, kv_head, 0, s.tokens);
  values_ = source.read(KvSource::Part::value, layer, kv_head, 0, s.tokens);
  const std::size_t skipped = s.tokens > kFirstTokens ? kFirstTokens : 0;
  const std::size_t count = std::min(s.tokens - skipped, kMeanTokens);
  RowsView keys = view_f32(keys_.view().slice(skipped, count));
  keys.first_position = static_cast<Position>(skipped);
  key_mean_ = std::make_shared<const RowMean>(RowMean::of_keys(keys, source.rotary()));
  value_mean_ = std::make_shared<const RowMean>(
      RowMean::of_values(view_f32(values_.view().slice(skipped, count))));
}

GroupQueries HeadAttention::queries(std::size_t first, std::size_t count) const {
  const std::size_t group = source_.shape().group();
  GroupQueries out{Matrix(count * group, keys_.cols()), {}};
  for (std::size_t g = 0; g < group; ++g) {
    // This query head owns every group-th row.
    source_.read(KvSource::Part::query, layer_, kv_head_ * group + g, first,
                 {out.rows.data() + g * keys_.cols(), count, keys_.cols(), group * keys_.cols()});
  }
  for (std::size_t r = 0; r < count * group; ++r) {
    out.positions.push_back(static_cast<Position>(first + r / group));
  }
  return out;
}

SummarySetup HeadAttention::setup(const SummaryPlan& plan) const {
  SummarySetup setup;
  setup.policy = plan.policy;
  setup.protocol = plan.protocol;
  setup.capacity = plan.capacity;
  setup.tokens = plan.tokens;
  setup.sink = plan.sink;
  setup.key_dim = keys_.cols();
  setup.value_dim = values_.cols();
  setup.key_type = plan.key_type;
  setup.value_type = plan.value_type;
  setup.key_mean = key_mean_;
  setup.value_mean = value_mean_;
  setup.logits = logits_;
  setup.random = {plan.seed, static_cast<std::uint32_t>(layer_),
                  static_cast<std::uint32_t>(kv_head_)};
  return setup;
}

Segment HeadAttention::segment(std::size_t tokens) const {
  return exact_segment(view_f32(keys_.view()), view_f32(values_.view()), 0, tokens);
}

Matrix HeadAttention::exact(const GroupQueries& queries, std::size_t tokens) const {
  const Segment all = segment(tokens);
  Matrix out(queries.rows.rows(), values_.cols());
  attend(queries.view(), {&all, 1}, logits_, out.view());
  return out;
}

std::vector<float> HeadAttention::attention_sum(std::size_t first, std::size_t end) const {
  // Sums over many queries need double precision.
  std::vector<double> sums(end, 0.0);
  constexpr std::size_t kRun = 256;
  for (std::size_t t = first; t < end; t += kRun) {
    const std::size_t count = std::min(kRun, end - t);
    const GroupQueries asked = queries(t, count);
    const Segment seen = segment(t + count);
    Matrix unused(asked.rows.rows(), values_.cols());
    std::vector<float> attention_sum(t + count, 0.0f);
    attend_with_attention_sum(asked.view(), {&seen, 1}, logits_, unused.view(), attention_sum);
    for (std::size_t i = 0; i < attention_sum.size(); ++i) sums[i] += attention_sum[i];
  }
  return {sums.begin(), sums.end()};
}

std::vector<double> relative_errors(const Matrix& estimate, const Matrix& exact,
                                    std::size_t group) {
  std::vector<double> difference(group, 0.0), size(group, 0.0), out(group, 0.0);
  for (std::size_t r = 0; r < exact.rows(); ++r) {
    for (std::size_t c = 0; c < exact.cols(); ++c) {
      const double d = double{estimate[r][c]} - exact[r][c];
      difference[r % group] += d * d;
      size[r % group] += double{exact[r][c]} * exact[r][c];
    }
  }
  for (std::size_t g = 0; g < group; ++g) {
    if (difference[g] > 0) out[g] = std::sqrt(difference[g] / size[g]);
  }
  return out;
}

}  // namespace ballast
