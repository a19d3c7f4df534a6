// ballast eval ruler: RULER's files, and files of our own in their layout.
#include <algorithm>
#include <filesystem>

#include "ballast/engine/question_form.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "experiments/data/benchmarks.h"
#include "experiments/tasks/ruler_samples.h"
#include "experiments/tasks/sample_run.h"

namespace ballast {
namespace {

struct Ruler : SampleParameters {
  std::vector<std::string> data;
  std::size_t max_tokens = 0;
  std::string make;
  std::string haystack;
  std::vector<std::string> tasks;
  std::vector<std::size_t> lengths = {4096};
  std::size_t count = 20;
  std::size_t questions = 1;

  void describe(Parameters& p) {
    SampleParameters::describe(
        p, with_storage_only("replay;balancekv;h2o;snapkv;streaming-llm;uniform"),
        {.caches = {"1/2", "1/4"}});
    p.add("--data", data,
          "RULER's .jsonl files or folders of them; a file's name (or, for validation.jsonl, its "
          "folder's) tells the task",
          {.type = "PATH"});
    p.add("--max-tokens", max_tokens, "Of an answer, if not the benchmark's");
    p.group("Making files");
    p.add("--make", make,
          "Ask nothing: write FOLDER/LENGTH/TASK.jsonl for the model's tokenizer, for --data",
          {.type = "FOLDER"});
    p.add("--haystack", haystack, "A .txt file, or a folder of them, to hide things in",
          {.type = "PATH"});
    p.add("--tasks", tasks,
          "Separated by commas; RULER's thirteen if not given. Ours, which need no haystack: "
          "arithmetic_3, _5, _7 (steps), problems_3, _5, _7, code_constant, code_result",
          {.separated = true});
    p.add("--lengths", lengths, "Tokens of prompt, chat template and answer");
    p.add("--questions", questions,
          "On each text, where a task has more than one: up to 4 of niah_multikey, qa and ours",
          {.least = 1, .most = 4});
    p.add("--count", count, "Texts of each task and length, with seeds counted up from --seed",
          {.least = 1, .most = 100000});
    p.group("");
  }
};

/// Writes the files, and lists them.
Result make_files(const Ruler& given) {
  std::vector<std::string> tasks = given.tasks;
  if (tasks.empty()) tasks.assign(ruler_task_names().begin(), ruler_task_names().end());
  const auto hides = [](const std::string& task) {
    return std::ranges::find(ruler_task_names(), task) != ruler_task_names().end();
  };
  require(!given.haystack.empty() || std::ranges::none_of(tasks, hides),
          "--make {}: give --haystack, a text to hide things in", given.make);
  const TextModel model(given.model);
  const Haystack haystack = given.haystack.empty() ? Haystack(model.tokenizer)
                                                   : Haystack(model.tokenizer, given.haystack);
  const std::size_t form = template_tokens(model.tokenizer);
  Result result;
  result.experiment = "ruler";
  result.title = "Files in RULER's layout";
  result.settings = {{"model", given.model}, {"haystack", given.haystack}};
  for (const std::size_t length : given.lengths) {
    const auto folder = std::filesystem::path(given.make) / std::to_string(length);
    std::filesystem::create_directories(folder);
    for (const std::string& task : tasks) {
      std::string lines;
      std::size_t longest = 0, samples = 0;
      for (std::size_t i = 0; i < given.count; ++i) {
        for (const Json& record : ruler_records(haystack, task, length - std::min(form, length),
                                                given.questions, given.variants.seed + i)) {
          longest = std::max(longest, record["length"].get<std::size_t>());
          lines += record.dump() + '\n';
          ++samples;
        }
      }
      const auto file = folder / (task + ".jsonl");
      write_file(file, lines);
      result.rows.push_back(
          {{"file", file.string()}, {"samples", samples}, {"longest", longest + form}});
    }
  }
  result.columns = {{"file", "file"},
                    {"samples", "samples", Unit::count},
                    {"longest", "tokens, at most", Unit::count}};
  result.named_by = {"file"};
  result.notes = {"Ask with --data FOLDER/LENGTH; tokens count prompt, chat template and answer"};
  return result;
}

Result measure(Ruler given, Work& work) {
  require(given.make.empty() != given.data.empty(),
          "eval ruler: give --data, files to ask, or --make, a folder to write some to");
  if (!given.make.empty()) return make_files(given);
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
            .score_note =
                "references that the answer holds, upper and lower case alike (qa: whether it "
                "holds any; arithmetic, problems, code: whether its last number is right; "
                "tools: whether the call is)",
            .notes = {"Prompts whose file keeps the beginning of the answer apart are put into the "
                      "chat template; others, or all with --raw, are read as they stand."}},
           std::move(samples), score_ruler);
}

}  // namespace

Experiment ruler_experiment() {
  return experiment("ruler", "RULER: needles, tracing, counting, questions", "",
                    "  ballast eval ruler -m model.gguf --data niah_multikey_3_4096.jsonl "
                    "--methods 'exact;snapkv;balancekv' --cache 1/2,1/4 --json=ruler.json\n"
                    "  ballast eval ruler -m model.gguf --make samples --haystack book.txt "
                    "--lengths 4096,8192",
                    &measure);
}

}  // namespace ballast
