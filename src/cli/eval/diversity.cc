// ballast eval diversity: Self-BLEU of generated texts (H2O, appendix C.1).
#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cli/eval/experiment.h"
#include "eval/data/benchmarks.h"
#include "eval/metrics/metrics.h"
#include "eval/results/score_plots.h"

namespace ballast::cli {
namespace {

struct Options {
  SampleFlags flags;
  std::string data;
  std::size_t tokens = 64;
};

/// Self-BLEU of one variant's texts.
double score_texts(const std::vector<std::vector<Answered>>& answers, std::size_t variant) {
  std::vector<std::string> texts;
  for (const std::vector<Answered>& answer : answers) texts.push_back(answer[variant].text);
  return self_bleu(texts);
}

void run(Options& o) {
  std::vector<Sample> samples = read_summaries(o.data);
  require(o.tokens > 0, "--tokens must be at least 1");
  for (Sample& sample : samples) {
    sample.max_tokens = o.tokens;
    sample.stop.clear();
    sample.whole_length = true;
  }
  if (o.flags.limit == 0) o.flags.limit = 100;
  join_prompts(samples);
  require(samples.size() > 1, "{}: Self-BLEU needs at least two prompts", o.data);
  SampleRun run(o.flags);
  SampleExperiment experiment;
  experiment.name = "diversity";
  experiment.title = "Diversity of generated texts";
  experiment.score_title = "Self-BLEU";
  experiment.score_unit = Unit::number;
  experiment.settings = {{"data", o.data}, {"tokens", o.tokens}};
  experiment.loss = false;
  experiment.group = {{"data", "data", Unit::text, ""}};
  experiment.notes = {
      "Self-BLEU  mean BLEU-4 of each text against all others: lower is more diverse; ± the "
      "standard deviation over seeds",
      "entries    kept per KV head when the text is summarised; cache: the bytes of all layers "
      "then"};
  Result result =
      run.run(experiment, std::move(samples), [](const Sample&, const Answered&) { return 0.0; });
  for (Json& row : result.rows) {
    for (const char* key : {"loss", "loss_low", "loss_high"}) row.erase(key);
    if (!row.value("fits", true)) continue;
    std::vector<double> scores;
    for (std::size_t v = 0; v < run.variants().size(); ++v) {
      if (run.variants()[v].is_of_row(row)) scores.push_back(score_texts(run.answers(), v));
    }
    double mean = 0, squares = 0;
    for (double s : scores) mean += s / static_cast<double>(scores.size());
    for (double s : scores) squares += (s - mean) * (s - mean);
    row["score"] = mean;
    row["score_error"] =
        scores.size() < 2 ? 0.0 : std::sqrt(squares / static_cast<double>(scores.size() - 1));
  }
  result.plots = score_plots(result.title, result.rows, experiment.group, "score", "Self-BLEU");
  run.finish(std::move(result));
}

}  // namespace

void add_eval_diversity(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand("diversity", "Self-BLEU of texts that go on from articles");
  o.flags.add_to(*app, with_storage_only("h2o;local"), {.caches = {"0.2"}});
  app->add_option("--data", o.data, "A file of articles, as eval summarise takes it")
      ->required()
      ->type_name("FILE");
  app->add_option("--tokens", o.tokens, "Of each text; ends are ignored")
      ->capture_default_str()
      ->type_name("N");
  app->footer(
      "Example:\n  ballast eval diversity -m model.gguf --data xsum_0shot.jsonl "
      "--methods 'exact;h2o;local' --cache 1/5 --json=diversity.json\n"
      "The first 100 articles are taken unless --limit says another number.");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
