// ballast eval lines: LongEval's line retrieval (ClusterGen, table 1).
#include "base/fail.h"
#include "cli/eval/experiment.h"
#include "eval/data/benchmarks.h"
#include "eval/results/score_plots.h"
#include "eval/tasks/needles.h"

namespace ballast::cli {
namespace {

struct Options {
  SampleFlags flags;
  std::string data;
  std::vector<std::size_t> lines = {200, 300, 400};
  std::size_t repeat = 50;
  std::size_t max_tokens = 0;
};

std::vector<Sample> make_samples(const Options& o) {
  if (!o.data.empty()) return read_lines(o.data);
  require(o.repeat > 0, "--repeat must be at least 1");
  std::vector<Sample> samples;
  for (std::size_t lines : o.lines) {
    for (std::size_t i = 0; i < o.repeat; ++i) {
      // Each question has its own record, as in the benchmark's files.
      samples.push_back(lines_sample(lines, o.flags.variants.seed * 1000003 + lines * 1009 + i));
      samples.back().max_tokens = 100;
      samples.back().stop.clear();
    }
  }
  return samples;
}

void run(Options& o) {
  // Before the model loads, so that bad data fails at once.
  std::vector<Sample> samples = make_samples(o);
  SampleRun run(o.flags);
  const bool chat = !o.flags.ask.raw && !run.model().tokenizer.vocabulary().chat_template.empty();
  for (Sample& sample : samples) {
    // The script takes the last number. Without a template the model would continue with more
    // questions.
    if (!chat) sample.stop = {"\n"};
    if (o.max_tokens > 0) sample.max_tokens = o.max_tokens;
  }
  if (!o.flags.ask.question_later) join_prompts(samples);
  SampleExperiment experiment;
  experiment.name = "lines";
  experiment.title = "LongEval: line retrieval";
  experiment.group = {{"lines", "lines", Unit::count, ""}};
  experiment.score_title = "accuracy";
  experiment.settings = {{"data", o.data}, {"repeat", o.data.empty() ? o.repeat : 0}};
  experiment.notes = {
      "accuracy  answers whose last number is that of the line asked for",
      "entries   kept per KV head when the text is summarised; cache: the bytes of all layers "
      "then"};
  Result result = run.run(experiment, std::move(samples), score_lines);
  result.plots = score_plots(result.title, result.rows, experiment.group, "score", "accuracy");
  run.finish(std::move(result));
}

}  // namespace

void add_eval_lines(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand("lines", "LongEval: find a line in a long record");
  o.flags.add_to(*app, "exact;kcenter;h2o;streaming-llm;balancekv;uniform", {0.65, 0.5});
  app->add_option(
         "--data", o.data,
         "LongEval's file of test cases, or a folder of them; made-up records if not given")
      ->type_name("PATH");
  app->add_option("--lines", o.lines, "Lines of made-up records")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("200,300,400")
      ->type_name("LIST");
  app->add_option("--repeat", o.repeat, "Made-up records of each number of lines")
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--max-tokens", o.max_tokens, "Of an answer, if not the benchmark's 100")
      ->type_name("N");
  app->footer(
      "Example:\n  ballast eval lines -m model.gguf --data longeval/200_lines.jsonl "
      "--methods 'exact;kcenter;h2o;streaming-llm' --rates 0.65 --json=lines.json");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
