// Fitting a calibration: ridge regression of log scores, a layer at a time, in closed form.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ballast/engine/calibration.h"
#include "ballast/engine/generate.h"
#include "ballast/engine/model.h"
#include "ballast/engine/question_form.h"
#include "ballast/scoring.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "gemm/matmul.h"
#include "model/calibrate_pack.h"
#include "model/calibration_data.h"
#include "model/pack_loss.h"

namespace ballast {
namespace {

constexpr std::size_t kFirst = 4;  ///< tokens of a piece that every head keeps: not fitted
constexpr double kRidge = 1e-3;    ///< of a feature's variance

/// Sums over the tokens of all pieces, of one layer. The scores of all KV heads are columns behind
/// the features.
struct Moments {
  std::vector<float> centre;  ///< of each column, near its mean: products are of what differs
  Matrix products;            ///< columns × columns
  std::vector<double> sums;   ///< of each column, from the centre
};

/// The tokens of one piece, of one layer: columns × tokens.
using Features = Matrix;

void add(Features& piece, Moments& moments) {
  const std::size_t columns = piece.rows(), tokens = piece.cols();
  if (moments.sums.empty()) {
    moments.products = Matrix(columns, columns);
    moments.sums.resize(columns);
    for (std::size_t i = 0; i < columns; ++i) {
      const double sum = std::accumulate(piece[i].begin(), piece[i].end(), 0.0);
      moments.centre.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
    }
  }
  for (std::size_t i = 0; i < columns; ++i) {
    for (float& x : piece[i]) x -= moments.centre[i];
  }
  Linear weights;
  weights.data = reinterpret_cast<const std::byte*>(piece.data());
  weights.rows = columns;
  weights.cols = tokens;
  weights.row_bytes = tokens * sizeof(float);
  Matrix products(columns, columns);
  multiply(piece.view(), weights, products.view());
  for (std::size_t i = 0; i < columns; ++i) {
    moments.sums[i] += std::accumulate(piece[i].begin(), piece[i].end(), 0.0);
    for (std::size_t j = 0; j < columns; ++j) moments.products[i][j] += products[i][j];
  }
}

/// Replaces the lower triangle of a positive matrix by its Cholesky factor.
void factor(std::vector<double>& a, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) {
    double* const row = &a[j * n];
    for (std::size_t k = 0; k < j; ++k) row[j] -= row[k] * row[k];
    require(row[j] > 0, "the features of a layer cannot be fitted: not finite, or all equal");
    row[j] = std::sqrt(row[j]);
    parallel_for(
        n - j - 1,
        [&](std::size_t below) {
          double* const other = &a[(j + 1 + below) * n];
          double sum = other[j];
          for (std::size_t k = 0; k < j; ++k) sum -= other[k] * row[k];
          other[j] = sum / row[j];
        },
        (n - j) * j >= 32 * 1024);
  }
}

std::vector<double> solve(const std::vector<double>& a, std::size_t n, std::vector<double> x) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) x[i] -= a[i * n + k] * x[k];
    x[i] /= a[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) x[i] -= a[k * n + i] * x[k];
    x[i] /= a[i * n + i];
  }
  return x;
}

Calibration::Layer fit(const Moments& moments, std::size_t heads, double tokens) {
  const std::size_t n = moments.sums.size() - heads;
  const auto covariance = [&](std::size_t i, std::size_t j) {
    return moments.products[i][j] - moments.sums[i] * moments.sums[j] / tokens;
  };
  std::vector<double> a(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) a[i * n + j] = covariance(i, j);
    a[i * n + i] += kRidge * covariance(i, i) + 1e-9 * tokens;
  }
  factor(a, n);
  Calibration::Layer out;
  out.weights = Matrix(heads, n);
  for (std::size_t h = 0; h < heads; ++h) {
    std::vector<double> with(n);
    for (std::size_t i = 0; i < n; ++i) with[i] = covariance(n + h, i);
    const std::vector<double> weights = solve(a, n, with);
    const auto mean_of = [&](std::size_t i) {
      return moments.centre[i] + moments.sums[i] / tokens;
    };
    double mean = mean_of(n + h), explained = 0;
    for (std::size_t i = 0; i < n; ++i) {
      mean -= weights[i] * mean_of(i);
      explained += weights[i] * with[i];
      out.weights[h][i] = static_cast<float>(weights[i]);
    }
    // Of a log-normal score the mean, not the median: budgets are divided by expected loss.
    const double rest = std::max(0.0, covariance(n + h, n + h) - explained) / tokens;
    out.offsets.push_back(static_cast<float>(mean + rest / 2));
  }
  return out;
}

/// A quarter of the scores of all entries are below it.
float least_score(const Scoring& scoring, std::size_t layers, std::size_t heads) {
  std::vector<float> known;
  for (std::size_t l = 0; l < layers; ++l) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::span<const float> of = scoring.scores(l, h);
      known.insert(known.end(), of.begin() + kFirst, of.end());
    }
  }
  const auto quarter = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 4);
  std::ranges::nth_element(known, quarter);
  return std::max(*quarter, 1e-12f);
}

/// Calls add(tokens, i) for the i-th piece of a text.
template <typename Add>
void cut(const Model& model, const Tokenizer& tokenizer, std::string_view text, const Add& add) {
  const std::vector<Token> tokens = tokenizer.encode(text);
  const std::size_t most = std::min(kCalibrationPiece, model.config().max_positions / 2);
  for (std::size_t begin = 0; begin < tokens.size(); begin += kCalibrationPiece) {
    const std::size_t count = std::min(most, tokens.size() - begin);
    if (count < kCalibrationPiece / 8) continue;
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    add(std::vector<Token>(first, first + static_cast<std::ptrdiff_t>(count)),
        begin / kCalibrationPiece);
  }
}

/// Told how far the reading of a text is.
using Tell = std::function<bool(std::size_t read, std::size_t of)>;

/// Reads each piece twice. Null: stopped.
std::shared_ptr<const Calibration> calibrate_scores(const Model& model, const Tokenizer& tokenizer,
                                                    std::span<const CalibrationPiece> pieces,
                                                    const Tell& tell,
                                                    const std::function<void()>& done) {
  const ModelConfig& c = model.config();
  const std::size_t heads = c.kv_heads, features = c.width + 2 * heads;
  Engine engine(model);
  const ReplayWording wording = replay_wording(tokenizer, true);
  std::vector<Moments> moments(c.attending().size());
  std::size_t fitted = 0;
  float least = 0;  // a quarter of all scores are below it
  for (const CalibrationPiece& piece : pieces) {
    CacheOptions cache_options;
    cache_options.policy = Policy::parse("replay:bytes=1/8");
    cache_options.key_type = cache_options.value_type = StorageType::bf16;
    cache_options.expected_tokens = piece.tokens.size();
    Sequence sequence(model, cache_options);
    const std::size_t count = piece.tokens.size() - kFirst;
    std::vector<Features> layers;
    for (std::size_t l = 0; l < moments.size(); ++l) layers.emplace_back(features + heads, count);
    PrefillOptions prefill;
    prefill.finish_prompt = false;
    prefill.progress = tell;
    std::vector<float> row(features);
    prefill.on_attention = [&](const AttentionStep& step) {
      for (std::size_t t = 0; t < step.inputs.rows; ++t) {
        if (step.first + t < kFirst) continue;
        fill_features(step.inputs[t], step.keys[t], step.values[t], heads, row);
        for (std::size_t i = 0; i < features; ++i) {
          layers[step.layer][i][step.first + t - kFirst] = row[i];
        }
      }
    };
    if (engine.prefill(sequence, piece.tokens, prefill).empty()) return nullptr;
    done();
    if (!engine.replay(sequence, {wording, tell})) return nullptr;
    done();
    const Scoring& scoring = scoring_of(sequence.cache());
    if (least == 0) least = least_score(scoring, moments.size(), heads);
    for (std::size_t l = 0; l < moments.size(); ++l) {
      for (std::size_t h = 0; h < heads; ++h) {
        std::ranges::transform(scoring.scores(l, h).subspan(kFirst),
                               layers[l][features + h].begin(),
                               [&](float x) { return std::log(x + least); });
      }
      add(layers[l], moments[l]);
    }
    fitted += count;
  }
  std::vector<Calibration::Layer> layers;
  for (const Moments& of : moments) layers.push_back(fit(of, heads, static_cast<double>(fitted)));
  return std::make_shared<Calibration>(calibration_key(model), std::move(layers));
}

/// Reads each piece once. `scores`: null: tokens will have none. Null: stopped.
std::shared_ptr<const PackBasis> calibrate_packing(const Model& model, const Tokenizer& tokenizer,
                                                   std::span<const CalibrationPiece> pieces,
                                                   std::shared_ptr<const Calibration> scores,
                                                   const Tell& tell,
                                                   const std::function<void()>& done) {
  Engine engine(model);
  PackMoments moments(model, std::move(scores));
  for (const CalibrationPiece& piece : pieces) {
    moments.hold_out(piece.held_out);
    const std::vector<Token> tokens = as_chat(tokenizer, piece.tokens);
    CacheOptions cache_options;
    cache_options.policy = Policy::parse("exact");
    cache_options.key_type = cache_options.value_type = StorageType::bf16;
    cache_options.expected_tokens = tokens.size();
    Sequence sequence(model, cache_options);
    PrefillOptions prefill;
    prefill.progress = tell;
    prefill.on_attention = [&](const AttentionStep& step) { moments.see(step); };
    if (engine.prefill(sequence, tokens, prefill).empty()) return nullptr;
    done();
  }
  auto out = std::make_shared<PackBasis>(moments.fit());
  const auto told = [&](double part) { return tell(static_cast<std::size_t>(part * 100), 100); };
  if (!measure_presets(model, tokenizer, *out, told)) return nullptr;
  done();
  return out;
}

}  // namespace

std::vector<Token> as_chat(const Tokenizer& tokenizer, std::span<const Token> tokens) {
  if (tokenizer.vocabulary().chat_template.empty()) return {tokens.begin(), tokens.end()};
  const QuestionForm form = QuestionForm::from_template(tokenizer, "", "");
  std::vector<Token> out = form.begin(tokenizer);
  const std::vector<Token> after = encode_more(tokenizer, form.after, true);
  const auto answer = tokens.end() - static_cast<std::ptrdiff_t>(tokens.size() / 4);
  out.insert(out.end(), tokens.begin(), answer);
  out.insert(out.end(), after.begin(), after.end());
  out.insert(out.end(), answer, tokens.end());
  return out;
}

std::vector<CalibrationPiece> calibration_pieces(const Model& model, const Tokenizer& tokenizer,
                                                 std::string_view text) {
  std::vector<CalibrationPiece> out;
  if (!text.empty()) {
    cut(model, tokenizer, text, [&](std::vector<Token> tokens, std::size_t i) {
      out.push_back({std::move(tokens), i % 4 == 1});
    });
    return out;
  }
  std::size_t number = 0;
  for (const BuiltInFile& file : calibration_texts()) {
    const bool held_out = number++ % 4 == 1;
    cut(model, tokenizer, file.text(), [&](std::vector<Token> tokens, std::size_t) {
      out.push_back({std::move(tokens), held_out});
    });
  }
  // Fitted to prose alone, scores foretell constants in code too low.
  for (const BuiltInFile& file : packing_texts()) {
    cut(model, tokenizer, file.text(), [&](std::vector<Token> tokens, std::size_t) {
      out.push_back({std::move(tokens), false});
    });
  }
  return out;
}

Calibrated calibrate(const Model& model, const Tokenizer& tokenizer,
                     const CalibrateOptions& options) {
  const std::vector<CalibrationPiece> pieces = calibration_pieces(model, tokenizer, options.text);
  const std::string& name = model.file().path().string();
  require(!pieces.empty(), "{}: no text of {} tokens to calibrate on, or too few positions ({})",
          name, kCalibrationPiece / 8, model.config().max_positions);
  require(!options.packing || std::ranges::any_of(pieces, &CalibrationPiece::held_out),
          "{}: packing wants a text of {} tokens", name, 2 * kCalibrationPiece);
  const auto count = static_cast<double>(pieces.size());
  double all = 0, done = 0;               // readings
  if (options.packing) all += count + 1;  // the presets' losses
  if (options.scores) all += 2 * count;
  const Tell tell = [&](std::size_t read, std::size_t of) {
    return !options.progress ||
           options.progress((done + static_cast<double>(read) / static_cast<double>(of)) / all);
  };
  const auto next = [&] { ++done; };
  Calibrated out;
  if (options.scores) {
    out.scores = calibrate_scores(model, tokenizer, pieces, tell, next);
    if (out.scores == nullptr) return {};
  }
  if (options.packing) {
    const auto scores = options.scores ? out.scores : find_calibration(model);
    out.packing = calibrate_packing(model, tokenizer, pieces, scores, tell, next);
    if (out.packing == nullptr) return {};
  }
  return out;
}

}  // namespace ballast
