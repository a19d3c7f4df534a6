// ballast perplexity: the perplexity of a text with a method's cache.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/os/memory.h"
#include "base/running_mean.h"
#include "cache/byte_budget.h"
#include "cache/mean_entries.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/run_report.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/terminal.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  std::string file;
  CacheFlags cache;
  std::size_t length = 0;
  std::size_t prompt = 0;
  bool quiet = false;
  JsonOption json;
};

/// Scores pieces of a text one after another, each with a cache of its own.
class Scorer {
 public:
  Scorer(const Options& o, std::shared_ptr<const TextModel> model, const CacheOptions& cache,
         std::size_t total)
      : o_(o), model_(std::move(model)), cache_(cache), total_(total), progress_("perplexity") {}

  void score(std::span<const Token> piece, std::size_t prompt) {
    CacheOptions options = cache_;
    options.expected_tokens = piece.size();
    Session session(model_, options);
    PrefillOptions reading;
    reading.progress = [&](std::size_t, std::size_t) {
      const std::size_t done = done_ + session.tokens();
      if (!o_.quiet) progress_.update(static_cast<double>(done) / static_cast<double>(total_));
      return true;
    };
    session.read(piece.first(prompt), reading);
    require_bytes(session.cache());
    finish_prompt(session, o_.quiet);
    for (const float loss : session.score(piece.subspan(prompt), reading)) losses.add(loss);
    done_ += piece.size();
    entries = mean_entries(session.cache());
    bytes = session.cache().bytes();
    exact = model_->model.exact_bytes(session.cache());
  }

  RunningMean losses;       ///< in nats: -ln of the probability that each token was given
  std::size_t entries = 0;  ///< of the last piece, at its end
  CacheBytes bytes;
  std::size_t exact = 0;

 private:
  const Options& o_;
  std::shared_ptr<const TextModel> model_;
  const CacheOptions& cache_;
  std::size_t total_;
  std::size_t done_ = 0;
  Progress progress_;
};

/// Tokens of a piece that are read before the first scored one.
std::size_t prompt_of(const Options& o, const CacheOptions& cache, std::size_t piece) {
  if (o.prompt > 0) return o.prompt;
  return cache.protocol == Protocol::prefill ? std::max<std::size_t>(1, piece / 2) : 1;
}

void print_result(const CacheOptions& cache, const Scorer& s) {
  Table table({{"perplexity"}, {format_number(std::exp(s.losses.mean())), Align::right}});
  table.add({"nats per token", fmt::format("{:.4f} ± {:.4f}", s.losses.mean(), s.losses.error())});
  table.add({"tokens scored", format_count(s.losses.count)});
  table.add({"method", cache.policy.to_string() + ", " + std::string(to_string(cache.protocol))});
  table.add({"entries per KV head", format_count(s.entries)});
  table.add({"cache", format_bytes(static_cast<double>(s.bytes.total()))});
  table.add({"exact cache", format_bytes(static_cast<double>(s.exact))});
  print(table.to_string(terminal_width()));
}

void run(Options& o) {
  CacheOptions cache = o.cache.parse();
  o.json.open();
  const auto text_model = std::make_shared<const TextModel>(o.model);
  const TextModel& m = *text_model;
  o.cache.choose(cache, m.model);
  std::vector<Token> tokens = m.tokenizer.encode(read_text(o.file));
  const Token bos = m.tokenizer.vocabulary().add_bos ? m.tokenizer.vocabulary().bos : kNoToken;
  const std::size_t positions = m.model.config().max_positions;
  require(tokens.size() >= 2, "{}: {} tokens, at least 2 are needed", o.file, tokens.size());
  const bool endless = is_endless(cache);
  const std::size_t length = o.length != 0 ? o.length : endless ? tokens.size() : positions;
  require(length >= 2 && (endless || length <= positions),
          "--length {}: expected 2 to the model's {} positions", length, positions);
  cache.expected_tokens = std::min(length, tokens.size());
  const std::size_t first =
      std::min(prompt_of(o, cache, cache.expected_tokens), cache.expected_tokens);
  const Protocol asked = cache.protocol;
  o.cache.fit(cache, m.model, first, cache.expected_tokens - first, 1, o.quiet);
  if (cache.protocol != asked) o.prompt = first;  // what is scored stays the same
  cache.expected_tokens = std::min(length, tokens.size());
  MemoryEstimate estimate = m.model.estimate(cache, first, cache.expected_tokens - first);
  estimate.scratch += Engine::kLogitRows * m.model.config().vocabulary * sizeof(float);
  require_memory(estimate, available_memory(), "this run");
  const std::size_t program = program_memory(m.model);

  Scorer scorer(o, text_model, cache, tokens.size());
  std::size_t pieces = 0;
  for (std::size_t begin = 0; begin < tokens.size(); begin += length) {
    const std::span<Token> piece =
        std::span(tokens).subspan(begin, std::min(length, tokens.size() - begin));
    // The begin token replaces the first token of each piece, which is not scored.
    if (bos != kNoToken) piece[0] = bos;
    const std::size_t prompt = prompt_of(o, cache, piece.size());
    if (prompt >= piece.size()) break;
    scorer.score(piece, prompt);
    ++pieces;
  }
  require(pieces > 0, "{}: {} tokens, but {} are to be read before any is scored", o.file,
          tokens.size(), o.prompt);
  if (o.json.text()) print_result(cache, scorer);
  o.json.write({{"model", o.model},
                {"file", o.file},
                {"method", cache.policy.to_string()},
                {"protocol", to_string(cache.protocol)},
                {"positions", to_string(cache.positions)},
                {"key_type", to_string(cache.key_type)},
                {"value_type", to_string(cache.value_type)},
                {"seed", cache.seed},
                {"length", length},
                {"pieces", pieces},
                {"tokens", scorer.losses.count},
                {"nats_per_token", scorer.losses.mean()},
                {"standard_error", scorer.losses.error()},
                {"perplexity", std::exp(scorer.losses.mean())},
                {"entries", scorer.entries},
                {"bytes", to_json(scorer.bytes)},
                {"exact_bytes", scorer.exact},
                {"estimate", to_json(estimate, program)},
                {"peak_memory", peak_memory()}});
}

}  // namespace

void add_perplexity(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "perplexity", "Measure how well a model predicts a text from a method's cache");
  add_model_option(*app, o.model);
  app->add_option("FILE", o.file, "The text; -: standard input")->required()->type_name("");
  o.cache.add_to(*app);
  o.cache.add_memory_to(*app);
  app->add_option("--length", o.length,
                  "Cut the text into pieces of this many tokens, each read with an empty cache; "
                  "all of the model's positions if not given")
      ->type_name("N");
  app->add_option("--prompt-tokens", o.prompt,
                  "Tokens of each piece that are read, and summarised, before any is scored; if "
                  "not given: half of the piece (prefill), 1 (stream)")
      ->type_name("N");
  app->add_flag("-q,--quiet", o.quiet, "Show no progress");
  o.json.add_to(*app);
  app->footer(
      "Example:\n  ballast perplexity -m model.gguf --method h2o:rate=0.25 --protocol stream "
      "text.txt");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
