// What packing is calibrated with, against float64 references that share no code with it.
#include "model/calibrate_pack.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <numbers>

#include "ballast/engine/calibration.h"
#include "model/reference_case.h"
#include "model/weights.h"
#include "support.h"

namespace ballast {
namespace {

using Rows = std::vector<std::vector<double>>;

Rows zeros(std::size_t rows, std::size_t cols) { return Rows(rows, std::vector<double>(cols)); }

Rows product(const Rows& a, const Rows& b) {
  Rows out = zeros(a.size(), b[0].size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[0].size(); ++j) out[i][j] += a[i][k] * b[k][j];
    }
  }
  return out;
}

Rows transposed(const Rows& a) {
  Rows out = zeros(a[0].size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[0].size(); ++j) out[j][i] = a[i][j];
  }
  return out;
}

/// The matrix of a turn by t positions, without magnitude.
Rows turn_by(const Rotary& rotary, std::size_t dim, double t) {
  Rows out = zeros(dim, dim);
  for (std::size_t i = 0; i < dim; ++i) out[i][i] = 1;
  const std::size_t half = rotary.frequencies.size();
  for (std::size_t i = 0; i < half; ++i) {
    const double angle = t * rotary.frequencies[i];
    const std::size_t a = rotary.pairs ? 2 * i : i, b = rotary.pairs ? 2 * i + 1 : i + half;
    out[a][a] = out[b][b] = std::cos(angle);
    out[a][b] = -std::sin(angle);
    out[b][a] = std::sin(angle);
  }
  return out;
}

/// A calibration with weights of no meaning.
std::shared_ptr<const Calibration> some_scores(const Model& model, std::size_t layers) {
  const ModelConfig& c = model.config();
  std::vector<Calibration::Layer> out(layers);
  std::uint64_t seed = 1;
  for (Calibration::Layer& layer : out) {
    layer.weights = test::random_matrix(c.kv_heads, c.width + 2 * c.kv_heads, seed++, 0.1f);
    layer.offsets.assign(c.kv_heads, -3.0f);
  }
  return std::make_shared<const Calibration>(calibration_key(model), std::move(out));
}

/// What is left of log scores has nothing in common with the coefficients y (a row a token), but
/// for half of its variance in the mean.
void expect_least_squares(const PackGroup& group, const Rows& y, const Rows& log_scores) {
  const std::size_t k = group.directions();
  const auto tokens = double(y.size());
  for (std::size_t s = 0; s < group.score_offsets.size(); ++s) {
    std::vector<double> left;
    double mean = 0, square = 0, all = 0, all_square = 0;
    for (std::size_t t = 0; t < y.size(); ++t) {
      double said = group.score_offsets[s];
      for (std::size_t i = 0; i < k; ++i) said += group.score_weights[s * k + i] * y[t][i];
      left.push_back(log_scores[t][s] - said);
      mean += left.back() / tokens;
      square += left.back() * left.back() / tokens;
      all += log_scores[t][s] / tokens;
      all_square += log_scores[t][s] * log_scores[t][s] / tokens;
    }
    const double deviation = std::sqrt(std::max(all_square - all * all, 1e-9));
    EXPECT_NEAR(-2 * mean, square - mean * mean, 0.02 * deviation * deviation + 0.01);
    for (std::size_t i = 0; i < k; ++i) {
      if (group.variance[i] < 1e-3f * group.variance[0]) continue;
      double common = 0;
      for (std::size_t t = 0; t < y.size(); ++t) common += (left[t] - mean) * y[t][i] / tokens;
      EXPECT_NEAR(common, 0, 0.05 * deviation * std::sqrt(group.variance[i])) << s << ' ' << i;
    }
  }
}

class CalibratePack : public testing::TestWithParam<const char*> {};

TEST_P(CalibratePack, MetricAndTransformAreThoseOfTheReference) {
  test::ReferenceCase reference(GetParam());
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  const ModelConfig& c = model.config();
  const CacheShape shape = model.cache_shape();
  const std::size_t kv = shape.kv_heads, kd = shape.key_dim, vd = shape.value_dim,
                    group_size = shape.queries_per_kv_head, width = kv * (kd + vd);

  // Two texts, the second in reverse, read in chunks of another size.
  std::vector<std::vector<Token>> texts(2, reference.tokens);
  std::ranges::reverse(texts[1]);
  const auto scores = some_scores(model, shape.layers);
  PackMoments moments(model, scores);
  std::vector<Rows> scored(shape.layers);                          // log scores of each token
  std::vector<Rows> seen(shape.layers), asked(shape.layers * kv);  // rows before rotary

  Engine engine(model);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CacheOptions options;
    options.policy = Policy::parse("exact");
    Sequence sequence(model, options);
    PrefillOptions prefill;
    prefill.chunk = i == 0 ? 256 : 7;
    prefill.on_attention = [&](const AttentionStep& step) {
      moments.see(step);
      const Rotary& rotary = shape.rotary_of(step.layer);
      for (std::size_t t = 0; t < step.keys.rows; ++t) {
        const Rows back = turn_by(rotary, kd, -double(step.first + t));
        const auto before = [&](std::span<const float> head) {
          std::vector<double> out(kd);
          for (std::size_t a = 0; a < kd; ++a) {
            for (std::size_t b = 0; b < kd; ++b) out[a] += back[a][b] * head[b] / rotary.magnitude;
          }
          return out;
        };
        if (step.first + t >= 4) {
          std::vector<double> row;
          for (std::size_t h = 0; h < kv; ++h) {
            for (double x : before(step.keys[t].subspan(h * kd, kd))) row.push_back(x);
          }
          for (float x : step.values[t]) row.push_back(x);
          seen[step.layer].push_back(row);
          Matrix score(1, kv);
          scores->score(step.layer, step.inputs.slice(t, 1), step.keys.slice(t, 1),
                        step.values.slice(t, 1), score.view());
          std::vector<double>& logs = scored[step.layer].emplace_back();
          for (float x : score[0]) logs.push_back(std::log(x));
        }
        for (std::size_t h = 0; step.first + t >= 16 && h < kv * group_size; ++h) {
          asked[step.layer * kv + h / group_size].push_back(
              before(step.queries[t].subspan(h * kd, kd)));
        }
      }
    };
    engine.prefill(sequence, texts[i], prefill);
  }
  const PackBasis basis = moments.fit();
  EXPECT_EQ(basis.model, calibration_key(model));
  EXPECT_TRUE(basis.presets.empty());  // nothing was held out
  basis.check("basis");

  std::vector<int> layers_seen(shape.layers);
  for (const PackGroup& group : basis.groups) {
    const std::size_t n = group.layers.size() * width, tokens = seen[0].size();
    ASSERT_EQ(group.width(), n);
    // The rows of the group in one piece, their mean, the metric.
    Rows x = zeros(tokens, n);
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      ++layers_seen[group.layers[i]];
      for (std::size_t t = 0; t < tokens; ++t) {
        std::ranges::copy(seen[group.layers[i]][t], x[t].begin() + std::ptrdiff_t(i * width));
      }
    }
    std::vector<double> mean(n);
    for (const auto& row : x) {
      for (std::size_t k = 0; k < n; ++k) mean[k] += row[k] / double(tokens);
    }
    Rows root = zeros(n, n);
    const float* stored = group.metric.data();
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      const std::size_t layer = group.layers[i];
      const bool slides = !shape.sliding_windows.empty() && shape.sliding_windows[layer] > 0;
      const Rotary& rotary = shape.rotary_of(layer);
      const std::size_t farthest =
          std::min({std::size_t{8192}, c.max_positions,
                    slides ? std::size_t(shape.sliding_windows[layer]) : std::size_t{8192}});
      for (std::size_t h = 0; h < 2 * kv; ++h) {
        const bool key = h < kv;
        const std::size_t dim = key ? kd : vd,
                          begin = i * width + (key ? h * kd : kv * kd + (h - kv) * vd);
        Rows metric = zeros(dim, dim);
        if (key) {
          Rows queries = zeros(dim, dim);
          const Rows& of = asked[layer * kv + h];
          for (const auto& q : of) {
            for (std::size_t a = 0; a < dim; ++a) {
              for (std::size_t b = 0; b < dim; ++b)
                queries[a][b] += q[a] * q[b] / double(of.size());
            }
          }
          const double scale = c.attention_scale * std::pow(rotary.magnitude, 2);
          for (int j = 0; j < 64; ++j) {
            const Rows turn = turn_by(rotary, dim, (j + 0.5) * double(farthest) / 64);
            const Rows turned = product(product(turn, queries), transposed(turn));
            for (std::size_t a = 0; a < dim; ++a) {
              for (std::size_t b = 0; b < dim; ++b)
                metric[a][b] += scale * scale * turned[a][b] / 64;
            }
          }
        } else {
          const Linear& output = model.weights().attention(layer).attention_output;
          std::vector<float> w(output.cols);
          for (std::size_t r = 0; r < output.rows; ++r) {
            output.decode_row(r, w);
            for (std::size_t g = 0; g < group_size; ++g) {
              const float* const of = &w[((h - kv) * group_size + g) * dim];
              for (std::size_t a = 0; a < dim; ++a) {
                for (std::size_t b = 0; b < dim; ++b) metric[a][b] += double{of[a]} * of[b];
              }
            }
          }
          double written = 0;
          for (const auto& row : x) {
            for (std::size_t a = 0; a < dim; ++a) {
              for (std::size_t b = 0; b < dim; ++b) {
                written += row[begin + a] * metric[a][b] * row[begin + b] / double(tokens);
              }
            }
          }
          for (auto& row : metric) {
            for (double& value : row) value /= written;
          }
        }
        Rows s = zeros(dim, dim);
        double trace = 0;
        for (std::size_t a = 0; a < dim; ++a) {
          for (std::size_t b = 0; b < dim; ++b) {
            s[a][b] = root[begin + a][begin + b] = *stored++;
          }
          trace += metric[a][a];
        }
        // Only what the floor of 1e-4 of the mean eigenvalue adds may differ.
        const Rows squared = product(s, s);
        for (std::size_t a = 0; a < dim; ++a) {
          for (std::size_t b = 0; b < dim; ++b) {
            EXPECT_NEAR(squared[a][b], metric[a][b], 2e-4 * trace / double(dim))
                << GetParam() << " layer " << layer << " head " << h;
          }
        }
      }
    }
    // The transform: rows of length 1 at right angles that the covariance in the metric maps to
    // themselves, and of which none has less variance than is left.
    Rows covariance = zeros(n, n);
    for (const auto& row : x) {
      for (std::size_t a = 0; a < n; ++a) {
        for (std::size_t b = 0; b < n; ++b) {
          covariance[a][b] += (row[a] - mean[a]) * (row[b] - mean[b]) / double(tokens);
        }
      }
    }
    const Rows weighed = product(product(root, covariance), root);
    double all = 0, found = 0;
    for (std::size_t k = 0; k < n; ++k) {
      EXPECT_NEAR(group.mean[k], mean[k], 1e-4 * (1 + std::abs(mean[k])));
      all += weighed[k][k];
    }
    const std::size_t directions = group.directions();
    ASSERT_GE(directions, n / 6);
    ASSERT_LE(directions, n / 2);
    Rows q = zeros(directions, n);
    for (std::size_t i = 0; i < directions; ++i) {
      for (std::size_t k = 0; k < n; ++k) {
        const std::size_t at = i * n + k;
        const double less = at < group.fine.size() ? group.fine[at] / 254.0 : 0;
        q[i][k] = double{group.basis_scale[i]} * (group.basis[at] + less);
      }
    }
    Rows centred = x, log_scores(tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t k = 0; k < n; ++k) centred[t][k] -= mean[k];
      for (const std::size_t layer : group.layers) {
        log_scores[t].insert(log_scores[t].end(), scored[layer][t].begin(), scored[layer][t].end());
      }
    }
    ASSERT_EQ(group.score_offsets.size(), group.layers.size() * kv);
    expect_least_squares(group, product(product(centred, root), transposed(q)), log_scores);
    const Rows mapped = product(q, weighed), grams = product(q, transposed(q));
    const double first = group.variance[0];
    for (std::size_t i = 0; i < directions; ++i) {
      found += group.variance[i];
      EXPECT_LE(group.variance[i], group.variance[i == 0 ? 0 : i - 1]);
      double along = 0, off = 0;
      for (std::size_t k = 0; k < n; ++k) along += mapped[i][k] * q[i][k];
      for (std::size_t k = 0; k < n; ++k) {
        off += std::pow(mapped[i][k] - group.variance[i] * q[i][k], 2);
      }
      // Eight bits an element: an error of a few hundredths of a row's length.
      EXPECT_NEAR(along, group.variance[i], 0.05 * group.variance[i] + 1e-3 * first);
      EXPECT_LT(std::sqrt(off), 0.05 * first);
      for (std::size_t j = 0; j <= i; ++j) EXPECT_NEAR(grams[i][j], i == j ? 1 : 0, 0.03);
    }
    EXPECT_GT(found, 0.25 * all);
    EXPECT_LE(found, all * 1.001);
  }
  EXPECT_THAT(layers_seen, testing::Each(1));
}

INSTANTIATE_TEST_SUITE_P(Models, CalibratePack,
                         testing::Values("llama", "llama31", "mistral-sliding", "qwen2",
                                         "qwen2-yarn", "qwen3", "gemma2", "gemma3", "phi3", "opt",
                                         "neox", "mpt", "gpt-oss", "smollm3", "hunyuan", "glm4",
                                         "lfm2", "qwen35"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ballast
