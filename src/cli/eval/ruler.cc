// ballast eval ruler: RULER's files.
#include "cli/eval/experiment.h"
#include "eval/data/benchmarks.h"
#include "eval/results/score_plots.h"

namespace ballast::cli {
namespace {

struct Options {
  SampleFlags flags;
  std::vector<std::string> data;
  std::size_t max_tokens = 0;
};

void run(Options& o) {
  std::vector<Sample> samples;
  for (const std::string& path : o.data) {
    for (Sample& sample : read_ruler(path)) samples.push_back(std::move(sample));
  }
  if (o.max_tokens > 0) {
    for (Sample& sample : samples) sample.max_tokens = o.max_tokens;
  }
  if (!o.flags.ask.question_later) join_prompts(samples);
  SampleRun run(o.flags);
  SampleExperiment experiment;
  experiment.name = "ruler";
  experiment.title = "RULER";
  experiment.group = {{"task", "task", Unit::text, ""}};
  experiment.overall = true;
  experiment.settings = {{"data", o.data}};
  experiment.notes = {
      "score    references that the answer holds, upper and lower case alike (for qa: whether it "
      "holds any)",
      "entries  kept per KV head when the text is summarised; cache: the bytes of all layers then",
      "Prompts are read as the files have them, without a chat template."};
  Result result = run.run(experiment, std::move(samples), score_ruler);
  result.plots = score_plots(result.title, result.rows, experiment.group, "score", "score");
  run.finish(std::move(result));
}

}  // namespace

void add_eval_ruler(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand("ruler", "RULER: needles, tracing, counting, questions");
  o.flags.add_to(*app, with_storage_only("replay;balancekv;h2o;snapkv;streaming-llm;uniform"),
                 {.caches = {"1/2", "1/4"}});
  app->add_option("--data", o.data,
                  "RULER's .jsonl files or folders of them; a file's name (or, for "
                  "validation.jsonl, its folder's) tells the task")
      ->required()
      ->allow_extra_args(false)
      ->type_name("PATH");
  app->add_option("--max-tokens", o.max_tokens, "Of an answer, if not the benchmark's")
      ->type_name("N");
  app->footer(
      "Example:\n  ballast eval ruler -m model.gguf --data niah_multikey_3_4096.jsonl "
      "--methods 'exact;snapkv;balancekv' --cache 1/2,1/4 --json=ruler.json");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
