// ballast eval longbench: LongBench and LongBench-E (BalanceKV, tables 1 and 6; ClusterGen, table
// 2).
#include "cli/eval/longbench.h"

#include "eval/results/score_plots.h"

namespace ballast::cli {

void LongBenchFlags::add_to(CLI::App& app, const std::string& methods, const Memory& sizes) {
  flags.add_to(app, methods, sizes);
  app.add_option("--data", data,
                 "LongBench's .jsonl files, or the folder that holds them by their tasks' names")
      ->required()
      ->allow_extra_args(false)
      ->type_name("PATH");
  app.add_option("--tasks", read.tasks, "Tasks, by the benchmark's names")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  app.add_flag("--e", read.e, "LongBench-E: of a folder, the files whose names end in _e");
  app.add_flag("--by-length", read.by_length,
               "Scores of each length apart, as LongBench-E has them");
}

void run_longbench(LongBenchFlags& o, const std::string& name, const std::string& title,
                   const std::vector<std::string>& notes) {
  std::vector<Sample> samples;
  for (const std::string& path : o.data) {
    for (Sample& sample : read_longbench(path, o.read)) samples.push_back(std::move(sample));
  }
  if (!o.flags.ask.question_later) join_prompts(samples);
  SampleRun run(o.flags);
  SampleExperiment experiment;
  experiment.name = name;
  experiment.title = title;
  experiment.group = {{"task", "task", Unit::text, ""}};
  if (o.read.by_length) experiment.group.push_back({"length", "words", Unit::text, ""});
  experiment.overall = true;
  experiment.settings = {{"data", o.data}, {"e", o.read.e}};
  experiment.notes = {
      "score    the task's own: F1 of words, ROUGE-L, share of right classes or numbers, or "
      "similarity of code; all: the mean of the tasks' scores",
      "entries  kept per KV head when the text is summarised; cache: the bytes of all layers then"};
  experiment.notes.insert(experiment.notes.end(), notes.begin(), notes.end());
  Result result = run.run(experiment, std::move(samples), score_longbench);
  add_category_rows(result.rows);
  result.plots = score_plots(title, result.rows, experiment.group, "score", "score");
  run.finish(std::move(result));
}

void add_eval_longbench(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<LongBenchFlags>();
  CLI::App* app = parent.add_subcommand(
      "longbench", "LongBench: questions, summaries, examples, retrieval, counting, code");
  options->add_to(*app,
                  with_storage_only(
                      "replay;balancekv;uniform;snapkv;pyramidkv;streaming-llm;clustergen;kcenter"),
                  {.caches = {"1/4"}});
  app->footer(
      "Example:\n  ballast eval longbench -m model.gguf --data longbench/data --e "
      "--methods 'exact;balancekv;uniform;snapkv;pyramidkv;streaming-llm' --cache 1/4 "
      "--json=longbench.json");
  app->callback([options, &task] {
    task = [options] {
      run_longbench(*options, "longbench", options->read.e ? "LongBench-E" : "LongBench", {});
    };
  });
}

}  // namespace ballast::cli
