// ballast eval ruler: RULER's files.
#include "experiments/data/benchmarks.h"
#include "experiments/tasks/sample_run.h"

namespace ballast {
namespace {

struct Ruler : SampleParameters {
  std::vector<std::string> data;
  std::size_t max_tokens = 0;

  void describe(Parameters& p) {
    SampleParameters::describe(
        p, with_storage_only("replay;balancekv;h2o;snapkv;streaming-llm;uniform"),
        {.caches = {"1/2", "1/4"}});
    p.add("--data", data,
          "RULER's .jsonl files or folders of them; a file's name (or, for validation.jsonl, its "
          "folder's) tells the task",
          {.type = "PATH", .needed = true});
    p.add("--max-tokens", max_tokens, "Of an answer, if not the benchmark's");
  }
};

Result measure(Ruler given, Work& work) {
  std::vector<Sample> samples;
  for (const std::string& path : given.data) {
    for (Sample& sample : read_ruler(path)) {
      if (given.max_tokens > 0) sample.max_tokens = given.max_tokens;
      samples.push_back(std::move(sample));
    }
  }
  return SampleRun(given, work)
      .run({.name = "ruler",
            .title = "RULER",
            .group = {{"task", "task", Unit::text, ""}},
            .overall = true,
            .settings = {{"data", given.data}},
            .score_note = "references that the answer holds, upper and lower case alike (for qa: "
                          "whether it holds any)",
            .notes = {"Prompts are read as the files have them, without a chat template."}},
           std::move(samples), score_ruler);
}

}  // namespace

Experiment ruler_experiment() {
  return experiment("ruler", "RULER: needles, tracing, counting, questions", "",
                    "  ballast eval ruler -m model.gguf --data niah_multikey_3_4096.jsonl "
                    "--methods 'exact;snapkv;balancekv' --cache 1/2,1/4 --json=ruler.json",
                    &measure);
}

}  // namespace ballast
