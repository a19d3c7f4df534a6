#include "model/calibrate_pack.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "attention/rotary.h"
#include "ballast/engine/calibration.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "model/symmetric.h"
#include "model/weights.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

constexpr std::size_t kFirst = PackedRows::kExactFirst;
constexpr std::size_t kFirstQuery = 16;  ///< queries before it have hardly anything to look at
/// Elements of a group of layers, at most: 8192 take 256 MB of covariances.
constexpr std::size_t kWidest = 8192;
/// Of a metric's mean eigenvalue: directions that count for less count for this.
constexpr double kFloor = 1e-4;
/// Distances between query and key over which the metric of keys is a mean.
constexpr std::size_t kDistances = 64, kFarthest = 8192;

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float from_bf16(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

/// Undoes what a rotary position did, its magnitude included.
Rotary back(Rotary rotary) {
  rotary.magnitude = 1 / rotary.magnitude;
  return rotary;
}

/// The mean of R_t C R_tᵀ over distances t of 0 to `farthest`, R_t a turn by t without magnitude.
std::vector<double> mean_turned(const std::vector<double>& c, std::size_t dim, Rotary rotary,
                                std::size_t farthest) {
  if (rotary.frequencies.empty()) return c;
  rotary.magnitude = 1;
  Matrix turned(dim, dim), across(dim, dim);
  std::vector<float> table(2 * rotary.frequencies.size());
  std::vector<double> out(dim * dim);
  for (std::size_t i = 0; i < kDistances; ++i) {
    rotation_at(rotary, (double(i) + 0.5) * double(farthest) / kDistances, table);
    for (std::size_t r = 0; r < dim; ++r) {
      for (std::size_t k = 0; k < dim; ++k) turned[r][k] = static_cast<float>(c[r * dim + k]);
      rotate(rotary, table, dim, turned[r]);
      for (std::size_t k = 0; k < dim; ++k) across[k][r] = turned[r][k];
    }
    for (std::size_t r = 0; r < dim; ++r) {
      rotate(rotary, table, dim, across[r]);
      for (std::size_t k = 0; k < dim; ++k) out[r * dim + k] += double{across[r][k]} / kDistances;
    }
  }
  for (std::size_t r = 0; r < dim; ++r) {  // to the bit, which rounding leaves out
    for (std::size_t k = 0; k < r; ++k) out[r * dim + k] = out[k * dim + r];
  }
  return out;
}

}  // namespace

PackMoments::PackMoments(const Model& model, std::shared_ptr<const Calibration> scores)
    : model_(model), scores_(std::move(scores)), shape_(model.cache_shape()) {
  require(model.layer_share() == nullptr, ErrorCode::unsupported,
          "{}: packing is calibrated by one process", model.file().path().string());
  const ModelConfig& c = model.config();
  basis_.model = calibration_key(model);
  basis_.layers = shape_.layers;
  basis_.kv_heads = shape_.kv_heads;
  basis_.key_dim = shape_.key_dim;
  basis_.value_dim = shape_.value_dim;
  group_of_.resize(shape_.layers);
  const std::size_t width = basis_.layer_width();
  // Layers that slide and others are never in one group: their metrics differ.
  for (const bool slides : {false, true}) {
    std::vector<std::size_t> layers;
    for (std::size_t l = 0; l < shape_.layers; ++l) {
      const bool has_window = !shape_.sliding_windows.empty() && shape_.sliding_windows[l] > 0;
      if (has_window == slides) layers.push_back(l);
    }
    if (layers.empty()) continue;
    const std::size_t at_once = std::max<std::size_t>(1, kWidest / width);
    const std::size_t groups = (layers.size() + at_once - 1) / at_once;
    for (std::size_t g = 0; g < groups; ++g) {
      Group& group = groups_.emplace_back();
      for (std::size_t i = g * layers.size() / groups; i < (g + 1) * layers.size() / groups; ++i) {
        group.pack.layers.push_back(layers[i]);
        group_of_[layers[i]] = groups_.size() - 1;
      }
      group.moments = Covariance(group.pack.layers.size() *
                                 (width + (scores_ != nullptr ? basis_.kv_heads : 0)));
    }
  }
  queries_.assign(shape_.layers * shape_.kv_heads,
                  std::vector<double>(shape_.key_dim * shape_.key_dim));
  query_rows_.resize(shape_.layers);
  require(c.value_dim == shape_.value_dim, "a cache of other values than the model's");
}

void PackMoments::see(const AttentionStep& step) {
  const std::size_t skipped = step.first < kFirst ? kFirst - step.first : 0;
  if (step.keys.rows <= skipped) return;
  const std::size_t count = step.keys.rows - skipped;
  const Rotary& rotary = shape_.rotary_of(step.layer);
  const std::size_t key_dim = shape_.key_dim, keys = shape_.kv_heads * key_dim;
  Group& group = groups_[group_of_[step.layer]];
  const std::vector<std::size_t>& layers = group.pack.layers;
  if (step.layer == layers.front()) group.rows = Matrix(count, group.moments.width());
  const auto place =
      static_cast<std::size_t>(std::ranges::find(layers, step.layer) - layers.begin());
  const std::size_t at = place * basis_.layer_width();
  Matrix scores(step.keys.rows, scores_ != nullptr ? shape_.kv_heads : 0);
  if (scores_ != nullptr) {
    scores_->score(step.layer, step.inputs, step.keys, step.values, scores.view());
  }
  Matrix queries(step.queries.rows, step.queries.cols);
  parallel_for(step.keys.rows, [&](std::size_t t) {
    std::vector<float> table(2 * rotary.frequencies.size());
    const Rotary turn = back(rotary);
    if (!table.empty()) rotation_at(turn, -double(step.first + t), table);
    std::ranges::copy(step.queries[t], queries[t].begin());
    if (!table.empty()) rotate(turn, table, key_dim, queries[t]);
    if (t < skipped) return;
    const std::span<float> row = group.rows[t - skipped].subspan(at, basis_.layer_width());
    std::ranges::copy(step.keys[t], row.begin());
    std::ranges::copy(step.values[t], row.begin() + static_cast<std::ptrdiff_t>(keys));
    if (!table.empty()) rotate(turn, table, key_dim, row.first(keys));
    const auto log_scores = group.rows[t - skipped].subspan(width(group) + place * scores.cols());
    for (std::size_t h = 0; h < scores.cols(); ++h) log_scores[h] = std::log(scores[t][h]);
  });
  const std::size_t first_query = step.first < kFirstQuery ? kFirstQuery - step.first : 0;
  if (queries.rows() > first_query) {
    const std::size_t heads = shape_.queries_per_kv_head;
    parallel_for(shape_.kv_heads, [&](std::size_t h) {
      Matrix sums(key_dim, key_dim);
      for (std::size_t t = first_query; t < queries.rows(); ++t) {
        for (std::size_t g = 0; g < heads; ++g) {
          const std::span<const float> q = queries[t].subspan((h * heads + g) * key_dim, key_dim);
          for (std::size_t i = 0; i < key_dim; ++i) kernels::axpy(q[i], q, sums[i]);
        }
      }
      std::vector<double>& all = queries_[step.layer * shape_.kv_heads + h];
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += sums.data()[i];
    });
    query_rows_[step.layer] += (queries.rows() - first_query) * heads;
  }
  if (step.layer != layers.back()) return;
  if (holds_out_) {
    for (std::size_t t = 0; t < count; ++t) {
      for (float x : group.rows[t]) group.held.push_back(to_bf16(x));
    }
  } else {
    group.moments.add(group.rows.view());
  }
}

std::size_t PackMoments::directions(const Group& group) const {
  // A byte an element of the basis: 3% of the weights, within what a sixteenth of the bytes needs
  // and what it could use.
  std::size_t all = 0;
  for (const Group& one : groups_) all += this->width(one);
  CacheOptions none;
  none.policy = Policy::parse("exact");
  const std::size_t weights = model_.estimate(none, 1).weights, width = this->width(group);
  return std::clamp(weights / 100 * 3 / all, width / 6, width / 2);
}

void PackMoments::find_metric(PackGroup& group, const Covariance& moments) const {
  const ModelConfig& c = model_.config();
  const std::size_t dim = c.value_dim, heads = shape_.queries_per_kv_head;
  group.metric.assign(group.layers.size() * basis_.metric_size(), 0.0f);
  for (std::size_t i = 0; i < group.layers.size(); ++i) {
    const std::size_t layer = group.layers[i];
    const Rotary& rotary = shape_.rotary_of(layer);
    const std::size_t window = shape_.sliding_windows.empty()
                                   ? 0
                                   : static_cast<std::size_t>(shape_.sliding_windows[layer]);
    const std::size_t farthest =
        std::min({kFarthest, c.max_positions, window > 0 ? window : kFarthest});
    const double scale = double{c.attention_scale} * rotary.magnitude * rotary.magnitude;
    require(query_rows_[layer] > 0, "no text of {} tokens to calibrate packing on", kFirstQuery);
    const Linear& output = model_.weights().attention(layer).attention_output;
    Matrix rows(output.rows, output.cols);
    parallel_for(output.rows, [&](std::size_t r) { output.decode_row(r, rows[r]); });
    float* const to = &group.metric[i * basis_.metric_size()];
    // Keys, then values: the mean square error of a logit, and that of what a value writes beside
    // what values write.
    parallel_for(2 * shape_.kv_heads, [&](std::size_t task) {
      const std::size_t h = task % shape_.kv_heads, key = shape_.key_dim;
      if (task < shape_.kv_heads) {
        std::vector<double> m = queries_[layer * shape_.kv_heads + h];
        for (double& x : m) x *= scale * scale / double(query_rows_[layer]);
        const Roots made = roots(mean_turned(m, key, rotary, farthest), key, kFloor);
        std::ranges::transform(made.root, to + h * key * key,
                               [](double x) { return static_cast<float>(x); });
        return;
      }
      std::vector<double> m(dim * dim);
      for (std::size_t r = 0; r < rows.rows(); ++r) {
        for (std::size_t g = 0; g < heads; ++g) {
          const std::span<const float> w = rows[r].subspan((h * heads + g) * dim, dim);
          for (std::size_t a = 0; a < dim; ++a) {
            for (std::size_t b = 0; b < dim; ++b) m[a * dim + b] += double{w[a]} * w[b];
          }
        }
      }
      const std::size_t begin = i * basis_.layer_width() + shape_.kv_heads * key + h * dim;
      const std::vector<double> values = moments.second_moments(begin, dim);
      double written = 0;
      for (std::size_t k = 0; k < m.size(); ++k) written += m[k] * values[k];
      require(written > 0, "layer {}: its values write nothing", layer);
      for (double& x : m) x /= written;
      const Roots made = roots(std::move(m), dim, kFloor);
      std::ranges::transform(made.root, to + shape_.kv_heads * key * key + h * dim * dim,
                             [](double x) { return static_cast<float>(x); });
    });
  }
}

PackBasis PackMoments::fit() {
  std::vector<Matrix> found;
  for (Group& group : groups_) {
    find_metric(group.pack, group.moments);
    found.push_back(fit_group(group.moments, basis_, directions(group), group.pack));
  }
  const std::size_t held = groups_.front().held.size() / groups_.front().moments.width();
  if (held > 0) {
    auto before = std::make_shared<PackBasis>(basis_);
    for (const Group& group : groups_) before->groups.push_back(group.pack);
    const PackCodec codec(std::move(before));
    const auto rows = [&](std::size_t g, std::size_t first, MutableMatrix out) {
      for (std::size_t t = 0; t < out.rows; ++t) {
        const auto* from = &groups_[g].held[(first + t) * groups_[g].moments.width()];
        std::transform(from, from + out.cols, out.row(t), from_bf16);
      }
    };
    for (const std::uint32_t divisor : {16u, 32u, 64u}) {
      basis_.presets.push_back({divisor, codec.step_for(held, rows, divisor)});
    }
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    constexpr std::size_t kAtOnce = 256;
    const std::size_t width = group.moments.width();
    for (std::size_t first = 0; first < held; first += kAtOnce) {
      Matrix rows(std::min(kAtOnce, held - first), width);
      std::transform(&group.held[first * width], &group.held[first * width] + rows.rows() * width,
                     rows.data(), from_bf16);
      group.moments.add(rows.view());
    }
    if (held > 0) {
      fit_group(group.moments, basis_, directions(group), group.pack, &found[g]);
    }
    basis_.groups.push_back(std::move(group.pack));
  }
  return std::move(basis_);
}

}  // namespace ballast
