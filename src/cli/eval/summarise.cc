// ballast eval summarise: XSUM and CNN/DailyMail (H2O, figure 4 and figure 9).
#include "cli/eval/experiment.h"
#include "eval/data/benchmarks.h"
#include "eval/results/score_plots.h"

namespace ballast::cli {
namespace {

struct Options {
  SampleFlags flags;
  std::vector<std::string> data;
  bool helm = false;
};

void run(Options& o) {
  std::vector<Sample> samples;
  for (const std::string& path : o.data) {
    for (Sample& sample : read_summaries(path)) samples.push_back(std::move(sample));
  }
  if (!o.flags.ask.question_later) join_prompts(samples);
  SampleRun run(o.flags);
  SampleExperiment experiment;
  experiment.name = "summarise";
  experiment.title = "Summaries";
  experiment.group = {{"data", "data", Unit::text, ""}};
  experiment.score_title = "ROUGE-2";
  experiment.settings = {{"data", o.data}, {"rouge", o.helm ? "rouge_score, stemmed" : "rouge"}};
  experiment.notes = {
      o.helm
          ? "ROUGE-n, ROUGE-L  F as the package rouge_score computes it with stemming (HELM), ± "
            "the standard error"
          : "ROUGE-n, ROUGE-L  F as the package rouge computes it (H2O's script), ± the standard "
            "error",
      "entries           kept per KV head when the answer begins; cache: the bytes of all layers "
      "then",
      "Prompts are read as the files have them, without a chat template; the likeliest token is "
      "always taken, whatever temperature the files name."};
  const auto score = [&o](double RougeScores::*which) {
    return [&o, which](const Sample& s, const Answered& a) {
      return score_summary(s, a, o.helm).*which;
    };
  };
  Result result = run.run(experiment, std::move(samples), score(&RougeScores::rouge_2));
  add_scores(result.rows, "rouge_1", run.samples(), run.variants(), run.answers(),
             score(&RougeScores::rouge_1), false);
  add_scores(result.rows, "rouge_l", run.samples(), run.variants(), run.answers(),
             score(&RougeScores::rouge_l), false);
  const auto at = std::ranges::find(result.columns, "score", &ResultColumn::key);
  result.columns.insert(at + 1, {"rouge_l", "ROUGE-L", Unit::percent, "rouge_l_error"});
  result.columns.insert(std::ranges::find(result.columns, "score", &ResultColumn::key),
                        {"rouge_1", "ROUGE-1", Unit::percent, "rouge_1_error"});
  result.plots = score_plots(result.title, result.rows, experiment.group, "score", "ROUGE-2");
  run.finish(std::move(result));
}

}  // namespace

void add_eval_summarise(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand("summarise", "XSUM and CNN/DailyMail: ROUGE of summaries");
  o.flags.add_to(*app, with_storage_only("h2o;local;streaming-llm"),
                 {.caches = {"0.6", "0.2", "0.1", "0.04"}});
  app->add_option("--data", o.data,
                  "Files of articles as H2O ships them: article, summary_gt, max_tokens, stop")
      ->required()
      ->allow_extra_args(false)
      ->type_name("PATH");
  app->add_flag("--helm", o.helm, "ROUGE as HELM computes it, with stemming");
  app->footer(
      "Example:\n  ballast eval summarise -m model.gguf --data xsum_0shot.jsonl "
      "--methods 'exact;h2o;local' --cache 0.6,0.2,0.1,0.04 --json=xsum.json");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
