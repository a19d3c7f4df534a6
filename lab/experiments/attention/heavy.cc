#include "experiments/attention/heavy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "ballast/engine/sampler.h"
#include "base/fail.h"
#include "base/running_mean.h"
#include "base/thread_pool.h"
#include "experiments/attention/head_attention.h"
#include "experiments/attention/kv_parameters.h"
#include "experiments/attention/memory_error.h"
#include "experiments/attention/norms.h"
#include "experiments/tasks/sample_run.h"
#include "formats/utf8_text.h"
#include "report/units.h"

namespace ballast {
namespace {

struct Head {
  std::vector<double> small, all;  ///< entries that count as zero, and entries, by query head
  std::vector<double> scores;      ///< accumulated, largest first, of sum 1
  std::vector<double> of_token;    ///< the same by token
  KeptAttention kept;
};

/// Tokens whose kept attention is simulated: the work grows with their square.
constexpr std::size_t kMostKept = 1024;

/// Weights are e^logit over a common sum: only differences of logits matter.
std::size_t count_small(std::span<const double> logits) {
  const double least = *std::ranges::max_element(logits) + std::log(HeavyStats::kThreshold);
  return static_cast<std::size_t>(
      std::ranges::count_if(logits, [&](double x) { return x < least; }));
}

/// Logits of a query over the first `count` keys, in float64.
std::vector<double> logits_of(const HeadAttention& head, std::span<const float> query,
                              std::size_t count) {
  std::vector<double> out(count);
  const double cap = head.logits().softcap;
  for (std::size_t k = 0; k < count; ++k) {
    const double dot = std::inner_product(query.begin(), query.end(), head.keys()[k].begin(), 0.0);
    const double logit = dot * double{head.logits().scale};
    out[k] = cap > 0 ? cap * std::tanh(logit / cap) : logit;
  }
  return out;
}

/// Causal attention of the first tokens, mean over the group.
std::vector<std::vector<double>> causal_rows(const KvSource& source, const HeadAttention& head) {
  const std::size_t group = source.shape().group();
  std::vector<std::vector<double>> rows;
  for (std::size_t t = 0; t < std::min(source.shape().tokens, kMostKept); ++t) {
    const GroupQueries queries = head.queries(t, 1);
    std::vector<double> row(t + 1, 0.0);
    for (std::size_t g = 0; g < group; ++g) {
      std::vector<double> w = logits_of(head, queries.rows[g], t + 1);
      const double largest = *std::ranges::max_element(w);
      double sum = 0;
      for (double& x : w) sum += x = std::exp(x - largest);
      for (std::size_t i = 0; i <= t; ++i) row[i] += w[i] / sum / static_cast<double>(group);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Head measure_head(const KvSource& source, std::size_t layer, std::size_t kv_head,
                  std::size_t queries, double kept) {
  const KvShape& s = source.shape();
  const HeadAttention head(source, layer, kv_head);
  Head out;
  out.small.assign(s.group(), 0.0);
  out.all.assign(s.group(), 0.0);
  const std::size_t asked = std::min(queries, s.tokens);
  for (std::size_t i = 1; i <= asked; ++i) {
    const std::size_t t = i * s.tokens / asked - 1;
    const GroupQueries rows = head.queries(t, 1);
    for (std::size_t g = 0; g < s.group(); ++g) {
      const std::vector<double> logits = logits_of(head, rows.rows[g], t + 1);
      out.small[g] += static_cast<double>(count_small(logits));
      out.all[g] += static_cast<double>(t + 1);
    }
  }
  const std::vector<float> attention_sum = head.attention_sum(0, s.tokens);
  out.of_token.assign(attention_sum.begin(), attention_sum.end());
  const double sum = std::accumulate(out.of_token.begin(), out.of_token.end(), 0.0);
  for (double& x : out.of_token) x /= sum;
  out.scores = out.of_token;
  std::ranges::sort(out.scores, std::greater<>());
  const auto rows = causal_rows(source, head);
  out.kept = kept_attention(
      rows, static_cast<std::size_t>(std::lround(kept * static_cast<double>(rows.size()))));
  return out;
}

/// H2O's cache over the rows: `sums(t)` says what query t adds to each token's score. Returns the
/// mean share of exact attention that is kept.
template <typename Sums>
double walk(std::span<const std::vector<double>> rows, std::size_t keep, const Sums& sums) {
  const std::size_t recent = keep / 2;
  std::vector<std::size_t> held;
  std::vector<double> score(rows.size(), 0.0);
  double share = 0;
  std::size_t counted = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    held.push_back(t);
    double mass = 0;
    for (std::size_t i : held) mass += rows[t][i];
    if (t >= keep) {
      share += mass;
      ++counted;
    }
    sums(t, held, mass, score);
    if (held.size() <= keep) continue;
    std::size_t least = held.size();
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (held[i] + recent > t) break;
      if (least == held.size() || score[held[i]] < score[held[least]]) least = i;
    }
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(least == held.size() ? 0 : least));
  }
  return counted == 0 ? 1 : share / static_cast<double>(counted);
}

/// Ranks from 0; equal numbers share the mean of theirs.
std::vector<double> ranks_of(std::span<const double> x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> out(x.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && x[order[end]] == x[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      out[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
    begin = end;
  }
  return out;
}

double correlation_of(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  const double mx = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double my = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace

KeptAttention kept_attention(std::span<const std::vector<double>> rows, std::size_t keep) {
  KeptAttention out{1, 1, 1};
  if (rows.size() <= keep) return out;
  out.local = 0;
  std::vector<double> total(rows.size(), 0.0);
  for (std::size_t t = 0; t < rows.size(); ++t) {
    for (std::size_t i = 0; i <= t; ++i) total[i] += rows[t][i];
    if (t < keep) continue;
    for (std::size_t i = t - keep; i <= t; ++i) out.local += rows[t][i];
  }
  out.local /= static_cast<double>(rows.size() - keep);
  out.h2o = walk(rows, keep, [&](std::size_t t, const auto& held, double mass, auto& score) {
    for (std::size_t i : held) score[i] += mass > 0 ? rows[t][i] / mass : 0;
  });
  out.global = walk(rows, keep,
                    [&](std::size_t t, const auto&, double, auto& score) { score[t] = total[t]; });
  return out;
}

WordHeaviness word_heaviness(std::span<const std::int32_t> words, std::span<const double> attention,
                             std::size_t window) {
  struct Word {
    double attention = 0, neighbours = 0, count = 0;
  };
  std::map<std::int32_t, Word> found;
  for (std::size_t t = 0; t < words.size(); ++t) {
    Word& word = found[words[t]];
    word.attention += attention[t];
    ++word.count;
    const std::size_t end = std::min(words.size(), t + window + 1);
    for (std::size_t i = t - std::min(t, window); i < end; ++i)
      word.neighbours += words[i] != words[t];
  }
  WordHeaviness out;
  out.words = found.size();
  std::vector<double> sums, neighbours, counts;
  for (const auto& [id, word] : found) {
    sums.push_back(word.attention);
    neighbours.push_back(word.neighbours);
    counts.push_back(word.count);
  }
  const auto between = [](const std::vector<double>& a, const std::vector<double>& b) {
    return correlation_of(ranks_of(a), ranks_of(b));
  };
  out.correlation = between(sums, neighbours);
  const double first = between(sums, counts), second = between(neighbours, counts);
  const double rest = (1 - first * first) * (1 - second * second);
  out.partial_correlation = rest > 1e-12 ? (out.correlation - first * second) / std::sqrt(rest) : 0;
  std::ranges::sort(sums, std::greater<>());
  std::vector<double> ranks, heights;
  for (std::size_t r = 1; r <= sums.size(); r *= 2) {
    ranks.push_back(static_cast<double>(r));
    heights.push_back(sums[r - 1]);
  }
  if (ranks.size() > 1) out.slope = log_slope(ranks, heights);
  return out;
}

HeavyStats measure_heavy(const KvSource& source, std::size_t layer,
                         std::span<const std::size_t> kv_heads, std::size_t queries,
                         const Advance& advance, double kept) {
  require(queries > 0, "--queries must be at least 1");
  require(source.shape().tokens <= HeavyStats::kMostTokens,
          "{}: {} tokens, at most {} here: accumulated attention takes the square of them; capture "
          "a shorter text (capture --tokens)",
          source.name(), source.shape().tokens, HeavyStats::kMostTokens);
  std::vector<Head> heads(kv_heads.size());
  std::mutex mutex;
  double done = 0;
  parallel_for(kv_heads.size(), [&](std::size_t h) {
    heads[h] = measure_head(source, layer, kv_heads[h], queries, kept);
    std::lock_guard lock(mutex);
    if (advance) advance(++done / static_cast<double>(kv_heads.size()));
  });
  const std::size_t tokens = source.shape().tokens;
  const auto count = static_cast<double>(heads.size());
  HeavyStats out;
  MomentSums sparsity;
  for (std::size_t r = 1; r <= tokens; r *= 2) out.ranks.push_back(r);
  out.scores.assign(out.ranks.size(), 0.0);
  out.of_token.assign(tokens, 0.0);
  for (const Head& head : heads) {
    for (std::size_t t = 0; t < tokens; ++t) out.of_token[t] += head.of_token[t] / count;
    out.local += head.kept.local / count;
    out.h2o += head.kept.h2o / count;
    out.global += head.kept.global / count;
    for (std::size_t g = 0; g < head.all.size(); ++g) sparsity.add(head.small[g] / head.all[g]);
    for (std::size_t p = 0; p < out.top.size(); ++p) {
      const double part = HeavyStats::kParts[p] * static_cast<double>(tokens);
      const auto most = std::max<long>(1, std::lround(part));
      out.top[p] += std::accumulate(head.scores.begin(), head.scores.begin() + most, 0.0) / count;
    }
    for (std::size_t i = 0; i < out.ranks.size(); ++i) {
      out.scores[i] += head.scores[out.ranks[i] - 1] / count;
    }
  }
  out.sparsity = sparsity.moments().mean;
  out.sparsity_deviation = sparsity.moments().deviation;
  const std::vector<double> ranks(out.ranks.begin(), out.ranks.end());
  out.slope = log_slope(ranks, out.scores);
  return out;
}

namespace {

struct Heavy {
  KvParameters source;
  std::size_t queries = 64;
  std::string model;
  std::string text;
  double removed = 0.1;
  double kept = 0.2;
  std::size_t length = 0;

  void describe(Parameters& p) {
    source.describe(p);
    p.add("--queries", queries, "Rows of the attention matrix that sparsity is taken of");
    p.add_model(model, "With --text: a model to remove heavy hitters from");
    p.add("--text", text, "A text that the model reads", {.type = "FILE"});
    p.add("--kept", kept, "Fraction of the tokens that local, H2O and H2O with global sums keep");
    p.add("--removed", removed, "Fraction of the tokens removed");
    p.add("--length", length,
          "Tokens of the text that are read; all of the model's positions if not given");
  }
};

void add_layer(std::size_t number, const HeavyStats& found, Result& out) {
  out.rows.push_back({{"of", fmt::format("layer {}", number)},
                      {"sparsity", found.sparsity},
                      {"sparsity_sd_heads", found.sparsity_deviation},
                      {"share_1", found.top[0]},
                      {"share_5", found.top[1]},
                      {"share_10", found.top[2]},
                      {"share_20", found.top[3]},
                      {"slope", found.slope},
                      {"kept_local", found.local},
                      {"kept_h2o", found.h2o},
                      {"kept_global", found.global},
                      {"kept_ratio", found.global > 0 ? found.h2o / found.global : 1}});
  Plot& sparsity = out.plots[0];
  sparsity.x_labels.push_back(std::to_string(number));
  sparsity.lines[0].points.push_back({0, found.sparsity, found.sparsity_deviation});
  Plot::Line line{fmt::format("layer {}", number), {}};
  for (std::size_t i = 0; i < found.ranks.size(); ++i) {
    line.points.push_back({static_cast<double>(found.ranks[i]), found.scores[i]});
  }
  out.plots[1].lines.push_back(std::move(line));
}

Json to_json(const HeavyStats& s) {
  return {{"sparsity", {s.sparsity, s.sparsity_deviation}},
          {"shares", s.top},
          {"ranks", s.ranks},
          {"scores", s.scores},
          {"slope", s.slope},
          {"of_token", s.of_token},
          {"kept", {s.local, s.h2o, s.global}}};
}

HeavyStats stats_from(const Json& json) {
  HeavyStats s;
  s.sparsity = number_of(json.at("sparsity").at(0));
  s.sparsity_deviation = number_of(json.at("sparsity").at(1));
  for (std::size_t i = 0; i < s.top.size(); ++i) {
    s.top[i] = number_of(json.at("shares").at(i));
  }
  json.at("ranks").get_to(s.ranks);
  for (const Json& score : json.at("scores")) s.scores.push_back(number_of(score));
  s.slope = number_of(json.at("slope"));
  for (const Json& x : json.at("of_token")) s.of_token.push_back(number_of(x));
  s.local = number_of(json.at("kept").at(0));
  s.h2o = number_of(json.at("kept").at(1));
  s.global = number_of(json.at("kept").at(2));
  return s;
}

/// Mean loss in nats of the second half of a text after the first half was summarized.
RunningMean score(LoadedModel& m, std::span<const Token> tokens, const std::string& method) {
  CacheOptions options;
  options.policy = Policy::parse(method);
  options.key_type = options.value_type = StorageType::bf16;
  options.expected_tokens = tokens.size();
  Sequence sequence(m.model, options);
  const std::size_t half = tokens.size() / 2;
  RunningMean losses;
  auto add = [&](std::span<const float> logits, Token token) {
    losses.add(token_loss(logits, token));
  };
  add(m.engine.prefill(sequence, tokens.first(half)), tokens[half]);
  const std::span<const Token> scored = tokens.subspan(half);
  PrefillOptions all;
  all.all_logits = [&](std::size_t first, ConstMatrix logits) {
    for (std::size_t i = 0; i < logits.rows && first + i + 1 < scored.size(); ++i) {
      add(logits[i], scored[first + i + 1]);
    }
  };
  m.engine.prefill(sequence, scored, all);
  return losses;
}

/// A model and the text that it reads.
struct Reader {
  explicit Reader(const Heavy& o) : loaded(o.model) {
    tokens = loaded.tokenizer.encode(read_input(o.text));
    const std::size_t positions = loaded.model.config().max_positions;
    const std::size_t most = o.length > 0 ? o.length : positions;
    require(most <= positions, "--length {}: the model has {} positions", o.length, positions);
    if (tokens.size() > most) tokens.resize(most);
    require(tokens.size() >= 8, "{}: {} tokens, at least 8 are needed", o.text, tokens.size());
  }
  LoadedModel loaded;
  std::vector<Token> tokens;
};

/// The loss with some tokens of the first half removed: the heaviest, the lightest, or random ones.
void add_model(const Heavy& o, Reader& reader, ResultLog& log, Result& out) {
  const double kept = 1 - o.removed;
  const std::pair<std::string, std::string> methods[] = {
      {"everything", "exact"},
      {"without heavy hitters", fmt::format("h2o:rate={:g},keep=light", kept)},
      {"without as many at random", fmt::format("uniform:rate={:g}", kept)},
      {"without the lightest", fmt::format("h2o:rate={:g}", kept)}};
  Plot plot;
  plot.kind = Plot::Kind::bars;
  plot.title = fmt::format("{:g}% of the tokens removed", 100 * o.removed);
  plot.y_title = "perplexity";
  plot.lines = {{"", {}}};
  for (const auto& [name, method] : methods) {
    const Json found = log.find_or_make(method, [&] {
      const RunningMean made = score(reader.loaded, reader.tokens, method);
      return Json{made.count, made.sum, made.squares};
    });
    const RunningMean losses{found.at(0).get<std::size_t>(), number_of(found.at(1)),
                             number_of(found.at(2))};
    const double mean = losses.mean();
    out.rows.push_back({{"of", name},
                        {"method", method},
                        {"perplexity", std::exp(mean)},
                        {"nats_per_token", mean},
                        {"nats_standard_error", losses.error()},
                        {"nats_per_token_error", losses.error()},
                        {"tokens_scored", losses.count}});
    plot.x_labels.push_back(name);
    plot.lines[0].points.push_back({0, std::exp(mean)});
  }
  out.plots.push_back(std::move(plot));
  out.columns.push_back({"perplexity", "perplexity", Unit::number});
  out.columns.push_back({"nats_per_token", "nats/token", Unit::number, "nats_standard_error"});
  out.settings.update(Json{{"model", o.model},
                           {"text", o.text},
                           {"text_tokens", reader.tokens.size()},
                           {"removed", o.removed}});
  out.notes.push_back(fmt::format(
      "perplexity   of the second half of the text, {:g}% of the first half's tokens being removed "
      "in every KV head: those with the most accumulated attention, any, those with the least; the "
      "most recent half of what is kept is never removed",
      100 * o.removed));
}

/// Accumulated attention by word, the captured text being the one that the model reads.
void add_words(const Reader& reader, std::span<const double> of_token, Result& out) {
  const std::span<const Token> text(reader.tokens);
  const WordHeaviness found = word_heaviness(text.first(of_token.size()), of_token);
  out.rows.push_back({{"of", "words"},
                      {"words", found.words},
                      {"slope", found.slope},
                      {"correlation", found.correlation},
                      {"partial_correlation", found.partial_correlation}});
  out.columns.push_back({"correlation", "co-occurrence", Unit::number});
  out.columns.push_back({"partial_correlation", "without frequency", Unit::number});
  out.notes.push_back(fmt::format(
      "words      the same sums by word of the vocabulary ({} in the text), over all layers; "
      "co-occurrence: Spearman's correlation with the times that the word stands within 10 tokens "
      "of another; without frequency: the partial correlation, how often the word stands in the "
      "text taken out. The captured text must be the one of --text.",
      found.words));
}

Result empty_result(const Heavy& o, const KvSource& source, std::size_t layers,
                    std::size_t kv_heads) {
  Result out;
  out.experiment = "heavy";
  out.title = "Where attention goes, " + describe(source, layers, kv_heads);
  out.settings = o.source.settings(source);
  out.settings["queries"] = o.queries;
  out.settings["threshold"] = HeavyStats::kThreshold;
  out.columns = {{"of", ""},
                 {"sparsity", "sparsity", Unit::percent, "sparsity_sd_heads"},
                 {"share_1", "top 1%", Unit::percent},
                 {"share_5", "top 5%", Unit::percent},
                 {"share_10", "top 10%", Unit::percent},
                 {"share_20", "top 20%", Unit::percent},
                 {"slope", "slope", Unit::number},
                 {"kept_local", "local", Unit::percent},
                 {"kept_h2o", "H2O", Unit::percent},
                 {"kept_global", "global", Unit::percent}};
  out.plots.resize(2);
  out.plots[0].kind = Plot::Kind::bars;
  out.plots[0].title = "Attention sparsity by layer";
  out.plots[0].x_title = "layer";
  out.plots[0].y_title = "share of entries under 1% of their row's largest";
  out.plots[0].lines = {{"", {}}};
  out.plots[1].title = "Accumulated attention";
  out.plots[1].x_title = "rank of the token";
  out.plots[1].y_title = "share of all attention";
  out.plots[1].log_x = out.plots[1].log_y = true;
  out.notes = {
      fmt::format("sparsity   share of the entries of the causal attention matrix that are under "
                  "1% of their row's largest, {} rows of each query head; ±: deviation over heads",
                  o.queries),
      "top 1%     share of all attention, accumulated over every query, that the 1% of tokens with "
      "the most get; mean over KV heads",
      "slope      of ln(accumulated attention) against ln(rank): a power law is a straight line",
      fmt::format("local, H2O, global   share of exact attention that {:g}% of the first 1,024 "
                  "tokens keep: the last; half by the sums so far; half by the sums over all "
                  "queries, later ones too",
                  100 * o.kept)};
  return out;
}

Result measure(Heavy o, Work& work) {
  require(o.model.empty() == o.text.empty(), "eval heavy: give -m and --text, or neither");
  require(o.kept >= 0 && o.kept <= 1, "--kept {:g}: expected a fraction from 0 to 1", o.kept);
  require(o.removed > 0 && o.removed < 1, "--removed {:g}: expected a fraction between 0 and 1",
          o.removed);
  const auto source = o.source.open("eval heavy");
  const std::vector<std::size_t> layers = o.source.selected_layers(*source);
  const std::vector<std::size_t> kv_heads = o.source.selected_kv_heads(*source);
  std::optional<Reader> reader;
  if (!o.model.empty()) reader.emplace(o);
  std::vector<double> of_token;
  Json identity = {{"experiment", "heavy"},
                   {"source", o.source.identity(*source)},
                   {"queries", o.queries},
                   {"kept", o.kept}};
  if (reader) {
    identity["model_file"] = model_identity(reader->loaded.model);
    identity["text"] = {o.text, fingerprint(reader->tokens)};
    identity["removed"] = o.removed;
  }
  ResultLog& log = work.log(identity);
  Result result = empty_result(o, *source, layers.size(), kv_heads.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t number = source->layer_number(layers[l]);
    const HeavyStats stats = stats_from(log.find_or_make(fmt::format("layer {}", number), [&] {
      return to_json(measure_heavy(*source, layers[l], kv_heads, o.queries,
                                   work.part(l, layers.size()), o.kept));
    }));
    add_layer(number, stats, result);
    of_token.resize(stats.of_token.size(), 0.0);
    for (std::size_t t = 0; t < of_token.size(); ++t) of_token[t] += stats.of_token[t];
  }
  if (reader && reader->tokens.size() >= of_token.size()) add_words(*reader, of_token, result);
  if (reader) add_model(o, *reader, log, result);
  return result;
}

}  // namespace

Experiment heavy_experiment() {
  return experiment("heavy", "Sparsity of attention, heavy hitters, and what is lost without",
                    "H2O, Figure 2",
                    "  ballast capture -m model.gguf -f book.txt -o qkv.safetensors\n"
                    "  ballast eval heavy qkv.safetensors -m model.gguf --text book.txt\n"
                    "The file may hold 131,072 tokens: the time grows with their square.",
                    &measure);
}

}  // namespace ballast
