// ballast eval lines: LongEval's line retrieval.
#include "base/fail.h"
#include "experiments/data/benchmarks.h"
#include "experiments/tasks/needles.h"
#include "experiments/tasks/sample_run.h"

namespace ballast {
namespace {

struct Lines : SampleParameters {
  std::string data;
  std::vector<std::size_t> lines = {200, 300, 400};
  std::size_t repeat = 50;
  std::size_t questions = 1;
  std::size_t max_tokens = 0;

  void describe(Parameters& p) {
    SampleParameters::describe(
        p, with_storage_only("replay;kcenter;h2o;streaming-llm;balancekv;uniform"),
        {.caches = {"1/4", "1/8", "1/16"}});
    p.add("--data", data,
          "LongEval's file of test cases, or a folder of them; made-up records if not given",
          {.type = "PATH"});
    p.add("--lines", lines, "Lines of made-up records");
    p.add("--repeat", repeat, "Made-up records of each number of lines");
    p.add("--questions", questions,
          "Questions on each of them; with --question-later all on one compressed cache");
    p.add("--max-tokens", max_tokens, "Of an answer, if not the benchmark's 100");
  }
};

std::vector<Sample> make_samples(const Lines& given) {
  if (!given.data.empty()) return read_lines(given.data);
  require(given.repeat > 0 && given.questions > 0, "--repeat and --questions must be at least 1");
  std::vector<Sample> samples;
  for (std::size_t lines : given.lines) {
    for (std::size_t i = 0; i < given.repeat; ++i) {
      // Each question has its own record, as in the benchmark's files, unless --questions says so.
      const std::uint64_t seed = given.variants.seed * 1000003 + lines * 1009 + i;
      for (Sample& sample : lines_samples(lines, given.questions, seed)) {
        sample.max_tokens = 100;
        sample.stop.clear();
        samples.push_back(std::move(sample));
      }
    }
  }
  return samples;
}

Result measure(Lines given, Work& work) {
  // Before the model loads, so that bad data fails at once.
  std::vector<Sample> samples = make_samples(given);
  SampleRun asked(given, work);
  const bool chat = !given.ask.raw && !asked.model().tokenizer.vocabulary().chat_template.empty();
  for (Sample& sample : samples) {
    // The script takes the last number. Without a template the model would continue with more
    // questions.
    if (!chat) sample.stop = {"\n"};
    if (given.max_tokens > 0) sample.max_tokens = given.max_tokens;
  }
  const bool made = given.data.empty();
  return asked.run({.name = "lines",
                    .title = "LongEval: line retrieval",
                    .group = {{"lines", "lines", Unit::count, ""}},
                    .score_title = "accuracy",
                    .settings = {{"data", given.data},
                                 {"repeat", made ? given.repeat : 0},
                                 {"questions", made ? given.questions : 0}},
                    .score_note = "answers whose last number is that of the line asked for"},
                   std::move(samples), score_lines);
}

}  // namespace

Experiment lines_experiment() {
  return experiment("lines", "LongEval: find a line in a long record", "ClusterGen, Table 1",
                    "  ballast eval lines -m model.gguf --data longeval/200_lines.jsonl "
                    "--methods 'exact;kcenter;h2o;streaming-llm' --cache 1/4,1/8 --json=lines.json",
                    &measure);
}

}  // namespace ballast
