// ballast eval summarise: XSUM and CNN/DailyMail.
#include <algorithm>

#include "experiments/data/benchmarks.h"
#include "experiments/tasks/sample_run.h"
#include "experiments/tasks/score_plots.h"

namespace ballast {
namespace {

struct Summarise : SampleParameters {
  std::vector<std::string> data;
  bool helm = false;

  void describe(Parameters& p) {
    SampleParameters::describe(p, with_storage_only("h2o;local;streaming-llm"),
                               {.caches = {"0.6", "0.2", "0.1", "0.04"}});
    p.add("--data", data,
          "Files of articles as H2O ships them: article, summary_gt, max_tokens, stop",
          {.type = "PATH", .needed = true});
    p.add("--helm", helm, "ROUGE as HELM computes it, with stemming");
  }
};

Result measure(Summarise given, Work& work) {
  std::vector<Sample> samples;
  for (const std::string& path : given.data) {
    for (Sample& sample : read_summaries(path)) samples.push_back(std::move(sample));
  }
  const auto score = [&](double RougeScores::*which) {
    return [&, which](const Sample& s, const Answered& a) {
      return score_summary(s, a, given.helm).*which;
    };
  };
  SampleRun asked(given, work);
  Result result = asked.run(
      {.name = "summarise",
       .title = "Summaries",
       .group = {{"data", "data", Unit::text, ""}},
       .score_title = "ROUGE-2",
       .settings = {{"data", given.data}, {"rouge", given.helm ? "rouge_score, stemmed" : "rouge"}},
       .notes = {given.helm ? "ROUGE-n, ROUGE-L  F as the package rouge_score computes it with "
                              "stemming (HELM), ± the standard error"
                            : "ROUGE-n, ROUGE-L  F as the package rouge computes it (H2O's "
                              "script), ± the standard error",
                 "entries           kept per KV head when the answer begins; cache: the bytes of "
                 "all layers then",
                 "Prompts are read as the files have them, without a chat template; the likeliest "
                 "token is always taken, whatever temperature the files name."}},
      std::move(samples), score(&RougeScores::rouge_2));
  const auto add = [&](const char* key, const char* title, double RougeScores::*which, int after) {
    add_scores(result.rows, key, asked.samples(), asked.variants(), asked.answers(), score(which),
               false);
    const auto at = std::ranges::find(result.columns, "score", &ResultColumn::key);
    result.columns.insert(at + after, {key, title, Unit::percent, std::string(key) + "_error"});
  };
  add("rouge_1", "ROUGE-1", &RougeScores::rouge_1, 0);
  add("rouge_l", "ROUGE-L", &RougeScores::rouge_l, 1);
  return result;
}

}  // namespace

Experiment summarise_experiment() {
  return experiment("summarise", "XSUM and CNN/DailyMail: ROUGE of summaries",
                    "H2O, Figures 4 and 9",
                    "  ballast eval summarise -m model.gguf --data xsum_0shot.jsonl "
                    "--methods 'exact;h2o;local' --cache 0.6,0.2,0.1,0.04 --json=xsum.json",
                    &measure);
}

}  // namespace ballast
