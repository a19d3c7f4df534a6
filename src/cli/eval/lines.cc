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
  std::size_t questions = 1;
  std::size_t max_tokens = 0;
};

std::vector<Sample> make_samples(const Options& o) {
  if (!o.data.empty()) return read_lines(o.data);
  require(o.repeat > 0 && o.questions > 0, "--repeat and --questions must be at least 1");
  std::vector<Sample> samples;
  for (std::size_t lines : o.lines) {
    for (std::size_t i = 0; i < o.repeat; ++i) {
      // Each question has its own record, as in the benchmark's files, unless --questions says so.
      const std::uint64_t seed = o.flags.variants.seed * 1000003 + lines * 1009 + i;
      for (Sample& sample : lines_samples(lines, o.questions, seed)) {
        sample.max_tokens = 100;
        sample.stop.clear();
        samples.push_back(std::move(sample));
      }
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
  experiment.settings = {{"data", o.data},
                         {"repeat", o.data.empty() ? o.repeat : 0},
                         {"questions", o.data.empty() ? o.questions : 0}};
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
  o.flags.add_to(*app, with_storage_only("replay;kcenter;h2o;streaming-llm;balancekv;uniform"),
                 {.caches = {"1/4", "1/8", "1/16"}});
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
  app->add_option("--questions", o.questions,
                  "Questions on each of them; with --question-later all on one compressed cache")
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--max-tokens", o.max_tokens, "Of an answer, if not the benchmark's 100")
      ->type_name("N");
  app->footer(
      "Example:\n  ballast eval lines -m model.gguf --data longeval/200_lines.jsonl "
      "--methods 'exact;kcenter;h2o;streaming-llm' --cache 1/4,1/8 --json=lines.json");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
