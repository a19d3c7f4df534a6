#include "experiments/attention/clusters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "experiments/attention/kv_parameters.h"
#include "experiments/attention/norms.h"
#include "experiments/attention/tsne.h"
#include "experiments/experiment.h"

namespace ballast {
namespace {

using Vector = std::vector<double>;

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    const double x = double{a[c]} - double{b[c]};
    sum += x * x;
  }
  return sum;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

/// Scales to length 1; returns false for a zero vector.
bool to_unit(Vector& v) {
  const double size = std::sqrt(dot(v, v));
  if (!(size > 0)) return false;
  for (double& x : v) x /= size;
  return true;
}

std::vector<Vector> centred(const Matrix& rows) {
  const std::size_t n = rows.rows(), d = rows.cols();
  Vector mean(d, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < d; ++c) mean[c] += rows[i][c] / static_cast<double>(n);
  }
  std::vector<Vector> out(n, Vector(d));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < d; ++c) out[i][c] = rows[i][c] - mean[c];
  }
  return out;
}

std::vector<Vector> covariance(const std::vector<Vector>& rows, std::size_t d) {
  std::vector<Vector> out(d, Vector(d, 0.0));
  for (const Vector& row : rows) {
    for (std::size_t a = 0; a < d; ++a) {
      for (std::size_t b = 0; b < d; ++b) out[a][b] += row[a] * row[b];
    }
  }
  return out;
}

/// Finds the axis of largest variance and removes it from the matrix. Returns that variance.
double take_axis(std::vector<Vector>& matrix, Vector& axis) {
  const std::size_t d = matrix.size();
  // The row of the largest variance is not perpendicular to the axis sought.
  std::size_t start = 0;
  for (std::size_t c = 0; c < d; ++c) {
    if (matrix[c][c] > matrix[start][start]) start = c;
  }
  axis = matrix[start];
  if (!to_unit(axis)) return 0;
  double variance = 0;
  for (int step = 0; step < 1000; ++step) {
    Vector next(d);
    for (std::size_t c = 0; c < d; ++c) next[c] = dot(matrix[c], axis);
    variance = dot(next, axis);
    if (!to_unit(next)) return 0;
    const double turned = 1 - std::abs(dot(next, axis));
    axis = std::move(next);
    if (turned < 1e-14) break;
  }
  const auto largest =
      std::ranges::max_element(axis, [](double a, double b) { return std::abs(a) < std::abs(b); });
  if (*largest < 0) {
    for (double& x : axis) x = -x;
  }
  for (std::size_t a = 0; a < d; ++a) {
    for (std::size_t b = 0; b < d; ++b) matrix[a][b] -= variance * axis[a] * axis[b];
  }
  return variance;
}

}  // namespace

Matrix evenly_spaced(const Matrix& rows, std::size_t count) {
  const std::size_t n = std::min(count, rows.rows());
  Matrix out(n, rows.cols());
  for (std::size_t i = 0; i < n; ++i) std::ranges::copy(rows[i * rows.rows() / n], out[i].begin());
  return out;
}

GreedyCentres greedy_centres(const Matrix& rows, std::size_t count) {
  require(rows.rows() > 0, "there are no rows to find centres of");
  std::vector<double> nearest(rows.rows(), std::numeric_limits<double>::infinity());
  GreedyCentres out;
  std::size_t centre = rows.rows() - 1;
  for (std::size_t k = 0; k < std::min(count, rows.rows()); ++k) {
    out.centres.push_back(centre);
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      nearest[i] = std::min(nearest[i], squared_distance(rows[i], rows[centre]));
    }
    centre = static_cast<std::size_t>(std::ranges::max_element(nearest) - nearest.begin());
    out.radii.push_back(std::sqrt(nearest[centre]));
  }
  return out;
}

PlaneMap principal_plane(const Matrix& rows) {
  const std::vector<Vector> from_mean = centred(rows);
  std::vector<Vector> matrix = covariance(from_mean, rows.cols());
  double total = 0;
  for (std::size_t c = 0; c < rows.cols(); ++c) total += matrix[c][c];
  PlaneMap out;
  out.points.assign(rows.rows(), {0.0, 0.0});
  for (std::size_t a = 0; a < 2 && total > 0; ++a) {
    Vector axis;
    const double variance = take_axis(matrix, axis);
    // Rows on a line leave only rounding errors here.
    if (!(variance > 1e-12 * total)) break;
    out.variance[a] = variance / total;
    for (std::size_t i = 0; i < rows.rows(); ++i) out.points[i][a] = dot(from_mean[i], axis);
  }
  return out;
}

namespace {

using Part = KvSource::Part;
constexpr std::array kParts = {Part::key, Part::value};

struct Clusters {
  KvParameters source;
  std::vector<std::size_t> centres = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  std::size_t marked = 16;
  std::size_t sample = 2048;
  std::size_t maps = 1;
  bool tsne = false;

  void describe(Parameters& p) {
    source.describe(p);
    p.add("--centres", centres, "Numbers of centres to give the radius of");
    p.add("--marked", marked, "Centres on the map");
    p.add("--maps", maps, "Layers to draw maps of, evenly spaced; from 2, of two KV heads each",
          {.least = 1, .most = 64});
    p.add("--tsne", tsne,
          "Draw maps by t-SNE beside those of principal components, some seconds each");
    p.add("--sample", sample, "Most tokens of a head, evenly spaced");
  }
};

const char* plural(Part part) { return part == Part::key ? "keys" : "values"; }

/// Of one head: the radius at each number of centres, over the mean distance from the mean.
struct Head {
  std::vector<double> radii;
  double spread = 0;
};

Head measure_head(const Clusters& o, const Matrix& rows) {
  const GreedyCentres found = greedy_centres(rows, o.centres.back());
  Head out;
  for (std::size_t k : o.centres) {
    out.radii.push_back(found.radii[std::min(k, found.radii.size()) - 1]);
  }
  // The mean of all rows, in float64.
  std::vector<double> mean(rows.cols(), 0.0);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    for (std::size_t c = 0; c < mean.size(); ++c) {
      mean[c] += rows[i][c] / static_cast<double>(rows.rows());
    }
  }
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    double squares = 0;
    for (std::size_t c = 0; c < mean.size(); ++c) {
      squares += (rows[i][c] - mean[c]) * (rows[i][c] - mean[c]);
    }
    out.spread += std::sqrt(squares) / static_cast<double>(rows.rows());
  }
  return out;
}

Matrix read_rows(const Clusters& o, const KvSource& source, Part part, std::size_t layer,
                 std::size_t head) {
  return evenly_spaced(source.read(part, layer, head, 0, source.shape().tokens), o.sample);
}

/// Rows of one layer: a part and a number of centres each.
Json layer_rows(const Clusters& o, const KvSource& source, std::size_t layer,
                const std::vector<std::size_t>& kv_heads) {
  Json rows = Json::array();
  for (Part part : kParts) {
    std::vector<Head> heads(kv_heads.size());
    parallel_for(kv_heads.size(), [&](std::size_t h) {
      heads[h] = measure_head(o, read_rows(o, source, part, layer, kv_heads[h]));
    });
    for (std::size_t i = 0; i < o.centres.size(); ++i) {
      MomentSums radius, relative;
      for (const Head& head : heads) {
        radius.add(head.radii[i]);
        relative.add(head.spread > 0 ? head.radii[i] / head.spread : 0);
      }
      rows.push_back({{"layer", source.layer_number(layer)},
                      {"part", plural(part)},
                      {"centres", o.centres[i]},
                      {"radius", radius.moments().mean},
                      {"relative_radius", relative.moments().mean},
                      {"relative_radius_sd", relative.moments().deviation}});
    }
  }
  return rows;
}

Plot radius_plot(const Result& result) {
  Plot plot;
  plot.title = "Radius of greedy k-centre";
  plot.x_title = "centres";
  plot.y_title = "radius / mean distance from the mean";
  plot.log_x = true;
  for (const Json& row : result.rows) {
    const std::string name = fmt::format("{}, layer {}", row["part"].get<std::string>(),
                                         row["layer"].get<std::size_t>());
    if (plot.lines.empty() || plot.lines.back().name != name) plot.lines.push_back({name, {}});
    plot.lines.back().points.push_back(
        {row["centres"], row["relative_radius"], row["relative_radius_sd"]});
  }
  return plot;
}

/// The rows of a map, with centres on top.
Plot map_of(std::span<const MapPoint> points, const GreedyCentres& found, Part part,
            std::string title) {
  Plot plot;
  plot.kind = Plot::Kind::points;
  plot.title = std::move(title);
  plot.lines = {{plural(part), {}}, {fmt::format("{} centres", found.centres.size()), {}}};
  for (const auto& [x, y] : points) plot.lines[0].points.push_back({x, y});
  for (std::size_t c : found.centres) {
    plot.lines[1].points.push_back({points[c][0], points[c][1]});
  }
  return plot;
}

/// One head on the plane of its two principal components, and on that of t-SNE.
void add_maps(const Clusters& o, const KvSource& source, Part part, std::size_t layer,
              std::size_t head, std::vector<Plot>& plots) {
  constexpr std::size_t kMostTsne = 1000;  // its time grows with the square
  const std::string title =
      fmt::format("{} of layer {}, KV head {}", part == Part::key ? "Keys" : "Values",
                  source.layer_number(layer), head);
  const Matrix rows = read_rows(o, source, part, layer, head);
  const PlaneMap plane = principal_plane(rows);
  plots.push_back(map_of(plane.points, greedy_centres(rows, o.marked), part, title));
  plots.back().x_title =
      fmt::format("first principal component, {:.0f}% of the variance", 100 * plane.variance[0]);
  plots.back().y_title = fmt::format("second, {:.0f}%", 100 * plane.variance[1]);
  if (!o.tsne) return;
  const Matrix fewer = evenly_spaced(rows, kMostTsne);
  plots.push_back(
      map_of(tsne_map(fewer), greedy_centres(fewer, o.marked), part, title + ", t-SNE"));
}

/// At most `count` of the items, evenly spaced, with the first and the last.
std::vector<std::size_t> some_of(const std::vector<std::size_t>& items, std::size_t count) {
  std::vector<std::size_t> out;
  count = std::min(count, items.size());
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(items[count == 1 ? 0 : i * (items.size() - 1) / (count - 1)]);
  }
  return out;
}

Result measure(Clusters o, Work& work) {
  std::ranges::sort(o.centres);
  require(!o.centres.empty() && o.centres[0] > 0 && o.marked > 0 && o.sample > 0,
          "eval clusters: --centres, --marked and --sample must be at least 1");
  const auto source = o.source.open("eval clusters");
  const std::vector<std::size_t> layers = o.source.selected_layers(*source);
  const std::vector<std::size_t> kv_heads = o.source.selected_kv_heads(*source);
  ResultLog& log = work.log({{"experiment", "clusters"},
                             {"source", o.source.identity(*source)},
                             {"centres", o.centres},
                             {"sample", o.sample}});
  Result result;
  result.experiment = "clusters";
  result.title =
      "Clusters of keys and values, " + describe(*source, layers.size(), kv_heads.size());
  result.settings = o.source.settings(*source);
  result.settings.update(Json{{"centres", o.centres}, {"marked", o.marked}, {"sample", o.sample}});
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::string key = fmt::format("layer {}", source->layer_number(layers[l]));
    const Json rows =
        log.find_or_make(key, [&] { return layer_rows(o, *source, layers[l], kv_heads); });
    result.rows.insert(result.rows.end(), rows.begin(), rows.end());
    work.part(l, layers.size())(1);
  }
  result.columns = {{"layer", "layer"},
                    {"part", "of"},
                    {"centres", "centres", Unit::count},
                    {"radius", "radius", Unit::number},
                    {"relative_radius", "relative", Unit::number, "relative_radius_sd"}};
  result.named_by = {"layer", "part", "centres"};
  result.supporting = {"radius"};
  result.gap_key = "part";
  for (std::size_t layer : some_of(layers, o.maps)) {
    for (std::size_t head : some_of(kv_heads, std::min<std::size_t>(o.maps, 2))) {
      for (Part part : kParts) add_maps(o, *source, part, layer, head, result.plots);
    }
  }
  result.plots.push_back(radius_plot(result));
  result.notes = {
      "radius     the largest distance of a token to its nearest centre, mean over KV heads",
      "relative   over the mean distance of the head's rows from their mean; ±: deviation over "
      "heads. Falling fast means clusters",
      fmt::format("up to {} tokens of a head, evenly spaced", o.sample),
      o.tsne ? "maps       principal components, and t-SNE (perplexity 30) of up to 1,000 tokens, "
               "with greedy centres"
             : "maps       principal components, with greedy centres; --tsne adds the paper's"};
  return result;
}

}  // namespace

Experiment clusters_experiment() {
  return experiment(
      "clusters", "How well keys and values cluster, with maps", "ClusterGen, Figure 1",
      "  ballast eval clusters qkv.safetensors --select-layers 2 --plot map.svg", &measure);
}

}  // namespace ballast
