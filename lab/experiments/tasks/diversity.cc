// ballast eval diversity: Self-BLEU of generated texts.
#include <cmath>

#include "base/fail.h"
#include "experiments/data/benchmarks.h"
#include "experiments/metrics/metrics.h"
#include "experiments/tasks/sample_run.h"
#include "experiments/tasks/score_plots.h"

namespace ballast {
namespace {

struct Diversity : SampleParameters {
  std::string data;
  std::size_t tokens = 64;

  void describe(Parameters& p) {
    SampleParameters::describe(p, with_storage_only("h2o;local"), {.caches = {"0.2"}});
    p.add("--data", data, "A file of articles, as eval summarise takes it",
          {.type = "FILE", .needed = true});
    p.add("--tokens", tokens, "Of each text; ends are ignored");
  }
};

/// Self-BLEU of one variant's texts.
double score_texts(const std::vector<std::vector<Answered>>& answers, std::size_t variant) {
  std::vector<std::string> texts;
  for (const std::vector<Answered>& answer : answers) texts.push_back(answer[variant].text);
  return self_bleu(texts);
}

Result measure(Diversity given, Work& work) {
  std::vector<Sample> samples = read_summaries(given.data);
  require(given.tokens > 0, "--tokens must be at least 1");
  for (Sample& sample : samples) {
    sample.max_tokens = given.tokens;
    sample.stop.clear();
    sample.whole_length = true;
  }
  if (given.limit == 0) given.limit = 100;
  join_prompts(samples);
  require(samples.size() > 1, "{}: Self-BLEU needs at least two prompts", given.data);
  SampleRun asked(given, work);
  const SampleExperiment experiment = {
      .name = "diversity",
      .title = "Diversity of generated texts",
      .group = {{"data", "data", Unit::text, ""}},
      .score_title = "Self-BLEU",
      .score_unit = Unit::number,
      .loss = false,
      .settings = {{"data", given.data}, {"tokens", given.tokens}},
      .score_note =
          "mean BLEU-4 of each text against all others: lower is more diverse; ± the "
          "standard deviation over seeds"};
  Result result =
      asked.run(experiment, std::move(samples), [](const Sample&, const Answered&) { return 0.0; });
  for (Json& row : result.rows) {
    for (const char* key : {"loss", "loss_low", "loss_high"}) row.erase(key);
    if (!row.value("fits", true)) continue;
    std::vector<double> scores;
    for (std::size_t v = 0; v < asked.variants().size(); ++v) {
      if (asked.variants()[v].is_of_row(row)) scores.push_back(score_texts(asked.answers(), v));
    }
    double mean = 0, squares = 0;
    for (double s : scores) mean += s / static_cast<double>(scores.size());
    for (double s : scores) squares += (s - mean) * (s - mean);
    row["score"] = mean;
    row["score_error"] =
        scores.size() < 2 ? 0.0 : std::sqrt(squares / static_cast<double>(scores.size() - 1));
  }
  result.plots = score_plots(result.title, result.rows, experiment.group, "score", "Self-BLEU");
  return result;
}

}  // namespace

Experiment diversity_experiment() {
  return experiment("diversity", "Self-BLEU of texts that go on from articles", "H2O, Appendix C.1",
                    "  ballast eval diversity -m model.gguf --data xsum_0shot.jsonl "
                    "--methods 'exact;h2o;local' --cache 1/5 --json=diversity.json\n"
                    "The first 100 articles are taken unless --limit says another number.",
                    &measure);
}

}  // namespace ballast
