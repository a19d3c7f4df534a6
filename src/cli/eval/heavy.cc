// ballast eval heavy: the sparsity of attention, its heavy hitters, and the loss without them.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "ballast/engine/sampler.h"
#include "base/fail.h"
#include "base/running_mean.h"
#include "cli/command.h"
#include "cli/eval/experiment.h"
#include "cli/kv_options.h"
#include "cli/model_choice.h"
#include "cli/model_options.h"
#include "eval/single_layer/heavy.h"
#include "eval/single_layer/norms.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  KvOptions source;
  std::size_t queries = 64;
  std::string model;
  std::string text;
  double removed = 0.1;
  double kept = 0.2;
  std::size_t length = 0;
  ResultOutput output;
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
  explicit Reader(const Options& o) : loaded(o.model) {
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
void add_model(const Options& o, Reader& reader, ResultLog& log, Result& out) {
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
                      {"correlation", found.correlation}});
  out.columns.push_back({"correlation", "co-occurrence", Unit::number});
  out.notes.push_back(fmt::format(
      "words      the same sums by word of the vocabulary ({} in the text), over all layers; "
      "co-occurrence: Spearman's correlation with the times that the word stands within 10 tokens "
      "of another. The captured text must be the one of --text.",
      found.words));
}

Result empty_result(const Options& o, const KvSource& source, std::size_t layers,
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

void run(Options& o) {
  require(o.model.empty() == o.text.empty(), "eval heavy: give -m and --text, or neither");
  require(o.kept >= 0 && o.kept <= 1, "--kept {:g}: expected a fraction from 0 to 1", o.kept);
  require(o.removed > 0 && o.removed < 1, "--removed {:g}: expected a fraction between 0 and 1",
          o.removed);
  const auto source = o.source.open("eval heavy");
  const std::vector<std::size_t> layers = o.source.selected_layers(*source);
  const std::vector<std::size_t> kv_heads = o.source.selected_kv_heads(*source);
  std::optional<Reader> reader;
  if (!o.model.empty()) reader.emplace(o);
  o.output.open();
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
  ResultLog log = o.output.log(identity);
  Result result = empty_result(o, *source, layers.size(), kv_heads.size());
  {
    Progress progress("eval heavy");
    const auto count = static_cast<double>(layers.size());
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const auto advance = [&](double done) {
        if (!o.output.quiet()) progress.update((static_cast<double>(l) + done) / count);
      };
      const std::size_t number = source->layer_number(layers[l]);
      const Json found = log.find_or_make(fmt::format("layer {}", number), [&] {
        return to_json(measure_heavy(*source, layers[l], kv_heads, o.queries, advance, o.kept));
      });
      const HeavyStats stats = stats_from(found);
      add_layer(number, stats, result);
      of_token.resize(stats.of_token.size(), 0.0);
      for (std::size_t t = 0; t < of_token.size(); ++t) of_token[t] += stats.of_token[t];
    }
  }
  if (reader && reader->tokens.size() >= of_token.size()) add_words(*reader, of_token, result);
  if (reader) add_model(o, *reader, log, result);
  o.output.write(std::move(result), log);
}

}  // namespace

void add_eval_heavy(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "heavy", "Sparsity of attention, heavy hitters, and what is lost without (H2O, Figure 2)");
  o.source.add_to(*app);
  app->add_option("--queries", o.queries, "Rows of the attention matrix that sparsity is taken of")
      ->capture_default_str();
  add_optional_model(*app, o.model, "With --text: a model to remove heavy hitters from");
  app->add_option("--text", o.text, "A text that the model reads")->type_name("FILE");
  app->add_option("--kept", o.kept,
                  "Fraction of the tokens that local, H2O and H2O with global sums keep")
      ->capture_default_str();
  app->add_option("--removed", o.removed, "Fraction of the tokens removed")->capture_default_str();
  app->add_option("--length", o.length,
                  "Tokens of the text that are read; all of the model's positions if not given")
      ->type_name("N");
  o.output.add_to(*app);
  app->footer(
      "The file may hold 131,072 tokens: the time grows with their square.\n"
      "Example:\n  ballast capture -m model.gguf -f book.txt -o qkv.safetensors\n"
      "  ballast eval heavy qkv.safetensors -m model.gguf --text book.txt");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
