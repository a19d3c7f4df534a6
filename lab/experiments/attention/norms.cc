#include "experiments/attention/norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "base/thread_pool.h"
#include "experiments/attention/over_files.h"

namespace ballast {
namespace {

double norm(std::span<const float> row, std::span<const double> shift = {}) {
  double squares = 0;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const double x = double{row[c]} - (shift.empty() ? 0.0 : shift[c]);
    squares += x * x;
  }
  return std::sqrt(squares);
}

MomentSums norms(const Matrix& rows, std::span<const double> shift = {}) {
  MomentSums out;
  for (std::size_t t = 0; t < rows.rows(); ++t) out.add(norm(rows[t], shift));
  return out;
}

std::vector<double> mean_row(const Matrix& rows) {
  std::vector<double> mean(rows.cols(), 0.0);
  for (std::size_t t = 0; t < rows.rows(); ++t) {
    for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += rows[t][c];
  }
  for (double& x : mean) x /= static_cast<double>(rows.rows());
  return mean;
}

}  // namespace

void MomentSums::add(double x) {
  count += 1;
  sum += x;
  squares += x * x;
  largest = std::max(largest, x);
}

void MomentSums::add(const MomentSums& other) {
  count += other.count;
  sum += other.sum;
  squares += other.squares;
  largest = std::max(largest, other.largest);
}

Moments MomentSums::moments() const {
  if (count == 0) return {};
  const double mean = sum / count;
  return {mean, std::sqrt(std::max(0.0, squares / count - mean * mean)), largest};
}

double MomentSums::confidence() const {
  return count == 0 ? 0 : 1.96 * moments().deviation / std::sqrt(count);
}

void KvNorms::add(const KvNorms& other) {
  query.add(other.query);
  key.add(other.key);
  shifted.add(other.shifted);
  value.add(other.value);
}

KvNorms measure_norms(const Matrix& queries, const Matrix& keys, const Matrix& values) {
  return {norms(queries), norms(keys), norms(keys, mean_row(keys)), norms(values)};
}

KvNorms measure_norms(std::span<const Segment> segments) {
  KvNorms out;
  std::vector<float> row;
  std::vector<double> mean;
  const auto each_row = [&](RowsView Segment::*part, auto&& action) {
    for (const Segment& segment : segments) {
      const RowsView& rows = segment.*part;
      Matrix decoded(rows.rows, rows.dim);
      rows.decode(decoded.view());
      for (std::size_t i = 0; i < rows.rows; ++i) {
        row.assign(decoded[i].begin(), decoded[i].end());
        action();
      }
    }
  };
  each_row(&Segment::keys, [&] {
    out.key.add(norm(row));
    mean.resize(row.size(), 0.0);
    for (std::size_t c = 0; c < row.size(); ++c) mean[c] += row[c];
  });
  for (double& x : mean) x /= out.key.count;
  each_row(&Segment::keys, [&] { out.shifted.add(norm(row, mean)); });
  each_row(&Segment::values, [&] { out.value.add(norm(row)); });
  return out;
}

KvNorms measure_norms(const KvSource& source, std::size_t layer, std::size_t kv_head) {
  const KvShape& s = source.shape();
  KvNorms out = measure_norms({}, source.read(KvSource::Part::key, layer, kv_head, 0, s.tokens),
                              source.read(KvSource::Part::value, layer, kv_head, 0, s.tokens));
  for (std::size_t g = 0; g < s.group(); ++g) {
    const std::size_t head = kv_head * s.group() + g;
    out.query.add(norms(source.read(KvSource::Part::query, layer, head, 0, s.tokens)));
  }
  return out;
}

KvNorms measure_norms(const KvSource& source, std::size_t layer,
                      std::span<const std::size_t> kv_heads, const Advance& advance) {
  std::vector<KvNorms> of_head(kv_heads.size());
  std::mutex mutex;
  double done = 0;
  parallel_for(kv_heads.size(), [&](std::size_t h) {
    of_head[h] = measure_norms(source, layer, kv_heads[h]);
    std::lock_guard lock(mutex);
    if (advance) advance(++done / static_cast<double>(kv_heads.size()));
  });
  KvNorms out;
  for (const KvNorms& head : of_head) out.add(head);
  return out;
}

namespace {

struct Norms {
  KvParameters source;
  void describe(Parameters& p) { source.describe(p, "Seed of the made-up stream", true); }
};

Json row_of(const Json& layer, std::size_t tokens, const KvNorms& norms) {
  Json row = {{"layer", layer}, {"tokens", tokens}};
  auto add = [&](const std::string& name, const MomentSums& sums) {
    const Moments m = sums.moments();
    row[name] = m.mean;
    row[name + "_ci"] = sums.confidence();
    row[name + "_sd"] = m.deviation;
    row[name + "_largest"] = m.largest;
  };
  add("query", norms.query);
  add("key_shifted", norms.shifted);
  add("value", norms.value);
  add("key", norms.key);
  return row;
}

Json to_json(const KvNorms& norms) {
  Json out = Json::array();
  for (const MomentSums* s : {&norms.query, &norms.shifted, &norms.value, &norms.key}) {
    out.push_back({s->count, s->sum, s->squares, s->largest});
  }
  return out;
}

KvNorms norms_from(const Json& json) {
  auto sums = [&](std::size_t i) {
    const Json& s = json.at(i);
    return MomentSums{number_of(s.at(0)), number_of(s.at(1)), number_of(s.at(2)),
                      number_of(s.at(3))};
  };
  return {.query = sums(0), .key = sums(3), .shifted = sums(1), .value = sums(2)};
}

Plot make_plot(const std::vector<Json>& rows) {
  Plot plot;
  plot.kind = Plot::Kind::bars;
  plot.title = "Mean norms by layer";
  plot.x_title = "layer";
  plot.y_title = "ℓ2 norm";
  for (const char* name : {"query", "key_shifted", "value"}) {
    Plot::Line line{name, {}};
    for (const Json& row : rows)
      line.points.push_back({0, row[name], row[name + std::string("_sd")]});
    plot.lines.push_back(std::move(line));
  }
  for (const Json& row : rows) {
    plot.x_labels.push_back(row["layer"].is_string() ? "all" : row["layer"].dump());
  }
  return plot;
}

/// Of one file or stream.
Result measure_source(const Norms& o, const KvSource& source, ResultLog* log,
                      const Advance& advance) {
  const std::vector<std::size_t> layers = o.source.selected_layers(source);
  const std::vector<std::size_t> kv_heads = o.source.selected_kv_heads(source);
  Result result;
  result.experiment = "norms";
  result.title = "Norms, " + describe(source, layers.size(), kv_heads.size());
  result.settings = o.source.settings(source);
  const std::size_t tokens = source.shape().tokens;
  KvNorms all;
  ResultLog none;
  ResultLog& kept = log == nullptr ? none : *log;
  const auto count = static_cast<double>(layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t number = source.layer_number(layers[l]);
    const auto part = [&](double done) { advance((static_cast<double>(l) + done) / count); };
    const KvNorms norms = norms_from(kept.find_or_make(fmt::format("layer {}", number), [&] {
      return to_json(measure_norms(source, layers[l], kv_heads, part));
    }));
    all.add(norms);
    result.rows.push_back(row_of(number, tokens, norms));
  }
  if (layers.size() > 1) result.rows.push_back(row_of("all", tokens, all));
  result.columns = {{"layer", "layer"},
                    {"tokens", "tokens", Unit::count},
                    {"query", "query", Unit::number, "query_ci"},
                    {"key_shifted", "key, shifted", Unit::number, "key_shifted_ci"},
                    {"value", "value", Unit::number, "value_ci"},
                    {"key", "key", Unit::number, "key_ci"},
                    {"query_largest", "largest query", Unit::number},
                    {"key_shifted_largest", "largest key, shifted", Unit::number},
                    {"value_largest", "largest value", Unit::number}};
  result.supporting = {"value_largest", "key_shifted_largest", "query_largest", "tokens"};
  result.plots = {make_plot(result.rows)};
  result.notes = {
      "mean ± half of the 95% confidence interval (1.96 deviations / √n) over all tokens and "
      "heads, taken as independent",
      "key, shifted   less the mean of the head's keys, which attention does not notice",
      "bars in the plot: one deviation"};
  return result;
}

Result measure(Norms o, Work& work) {
  return over_files(
      o.source, work,
      {.keys = {"query", "key_shifted", "value", "key"},
       .identity =
           [&](const KvSource& source) {
             return Json{{"experiment", "norms"}, {"source", o.source.identity(source)}};
           },
       .measure = [&](const KvSource& source, ResultLog* log,
                      const Advance& advance) { return measure_source(o, source, log, advance); }});
}

}  // namespace

Experiment norms_experiment() {
  return experiment(
      "norms", "Norms of queries, keys and values, with confidence", "BalanceKV, Table 3",
      "  ballast eval norms qkv.safetensors --select-layers 0,2 --json=norms.json", &measure);
}

}  // namespace ballast
