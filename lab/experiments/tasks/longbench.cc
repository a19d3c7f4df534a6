// LongBench and LongBench-E (Bai et al. 2023).
#include <fmt/ranges.h>

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "experiments/data/benchmark_wording.h"
#include "experiments/data/benchmarks.h"
#include "experiments/data/json_lines.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/python_text.h"
#include "experiments/tasks/sample_run.h"
#include "experiments/tasks/score_plots.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostClasses = 1000;
constexpr std::size_t kMostAnswers = std::size_t{1} << 20;  // bytes
constexpr std::string_view kOtherLanguage[] = {"multifieldqa_zh", "dureader", "vcsum", "lsht",
                                               "passage_retrieval_zh"};

std::vector<std::string_view> task_names() {
  std::vector<std::string_view> names;
  for (const LongBenchTask& task : longbench_tasks()) names.push_back(task.name);
  return names;
}

const LongBenchTask& find_task(std::string_view name, const std::string& where) {
  for (const LongBenchTask& task : longbench_tasks()) {
    if (task.name == name) return task;
  }
  require(std::ranges::find(kOtherLanguage, name) == std::end(kOtherLanguage),
          "{}: {} is one of LongBench's Chinese tasks, whose scores need a Chinese word splitter; "
          "the English ones are {}",
          where, name, fmt::join(task_names(), ", "));
  fail("{}: LongBench has no task \"{}\"; known: {}", where, printable(name),
       fmt::join(task_names(), ", "));
}

/// LongBench's bins.
std::string length_group(std::int64_t words) {
  return words < 4000 ? "0-4k" : words < 8000 ? "4-8k" : "8k+";
}

std::string without_e(std::string name) {
  if (name.ends_with("_e")) name.resize(name.size() - 2);
  return name;
}

Sample make_sample(const Record& record, const fs::path& file, const LongBenchOptions& options) {
  const std::string name =
      without_e(record.has("dataset") ? record.text("dataset") : file.stem().string());
  const LongBenchTask& task = find_task(name, record.place);
  Sample sample;
  sample.id = record.place;
  sample.group = {{"task", task.name}};
  if (options.by_length) sample.group["length"] = length_group(record.number("length"));
  // The question follows {context}. Placeholders inside the inserted texts are not replaced.
  constexpr std::string_view kContext = "{context}";
  const std::size_t at = task.prompt.find(kContext);
  sample.context = std::string(task.prompt.substr(0, at)) + record.text("context");
  sample.question =
      replace_all(task.prompt.substr(at + kContext.size()), "{input}", record.text("input"));
  auto answers = record.texts("answers");
  std::size_t bytes = 0;
  for (const std::string& answer : answers) bytes += answer.size() + 100;  // what holds it, too
  require(bytes <= kMostAnswers, "{}: \"answers\" are too long; {} MiB are read", record.place,
          kMostAnswers >> 20);
  sample.expected["answers"] = std::move(answers);
  if (task.score == LongBenchScore::classification) {
    auto classes = record.texts("all_classes");
    require(classes.size() <= kMostClasses, "{}: \"all_classes\" has {} names; at most {} are read",
            record.place, classes.size(), kMostClasses);
    sample.expected["classes"] = std::move(classes);
  }
  if (task.score == LongBenchScore::retrieval) {  // checked before the answers are made
    for (const std::string& answer : record.texts("answers")) retrieval_score("", answer);
  }
  sample.max_tokens = task.max_tokens;
  sample.raw = !task.chat;
  if (task.name == "samsum") sample.stop = {"\n"};  // as the benchmark's script does
  return sample;
}

/// In the benchmark's order of tasks.
std::vector<fs::path> files_of(const fs::path& path, const LongBenchOptions& options) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const LongBenchTask& task : longbench_tasks()) {
    const bool asked = options.tasks.empty()
                           ? !options.e || task.in_e
                           : std::ranges::find(options.tasks, task.name) != options.tasks.end();
    const fs::path file = path / (std::string(task.name) + (options.e ? "_e.jsonl" : ".jsonl"));
    const bool there = fs::exists(file);
    require(there || !asked || options.tasks.empty(), "{}: no such file; task {} needs it",
            file.string(), task.name);
    if (asked && there) files.push_back(file);
  }
  require(!files.empty(), "{}: the folder holds no LongBench file such as {}", path.string(),
          options.e ? "qasper_e.jsonl" : "qasper.jsonl");
  return files;
}

double score_one(const LongBenchTask& task, const Sample& sample, std::string_view prediction,
                 const std::string& truth) {
  switch (task.score) {
    case LongBenchScore::qa_f1:
      return qa_f1(prediction, truth);
    case LongBenchScore::rouge_l:
      return rouge_of_sets(prediction, truth).rouge_l;
    case LongBenchScore::classification:
      return classification_score(prediction, truth,
                                  sample.expected.at("classes").get<std::vector<std::string>>());
    case LongBenchScore::retrieval:
      return retrieval_score(prediction, truth);
    case LongBenchScore::count:
      return count_score(prediction, truth);
    case LongBenchScore::code:
      return code_similarity(prediction, truth);
  }
  return 0.0;
}

}  // namespace

void join_prompts(std::vector<Sample>& samples) {
  for (Sample& sample : samples) {
    sample.question = sample.context + sample.question;
    sample.context.clear();
  }
}

std::vector<Sample> read_longbench(const fs::path& path, const LongBenchOptions& options) {
  for (const std::string& name : options.tasks) {
    const LongBenchTask& task = find_task(name, "--tasks");
    require(!options.e || task.in_e, "--tasks: {} is not part of LongBench-E", name);
  }
  std::vector<Sample> samples;
  for (const fs::path& file : files_of(path, options)) {
    JsonLines lines(file);
    while (const auto record = lines.next()) {
      Sample sample = make_sample(*record, file, options);
      const std::string task = sample.group.at("task").get<std::string>();
      if (options.tasks.empty() || std::ranges::find(options.tasks, task) != options.tasks.end()) {
        samples.push_back(std::move(sample));
      }
    }
  }
  require(!samples.empty(), "{}: holds no sample of {}", path.string(),
          fmt::join(options.tasks, ", "));
  return samples;
}

void add_category_rows(std::vector<Json>& rows) {
  static const std::pair<const char*, std::vector<std::string>> categories[] = {
      {"single-document QA", {"narrativeqa", "qasper", "multifieldqa_en"}},
      {"multi-document QA", {"hotpotqa", "2wikimqa", "musique"}},
      {"summaries", {"gov_report", "qmsum", "multi_news"}},
      {"few-shot", {"trec", "triviaqa", "samsum"}},
      {"synthetic", {"passage_count", "passage_retrieval_en"}},
      {"code", {"lcc", "repobench-p"}}};
  // What rows of one category must share.
  const auto setting = [](const Json& row) {
    Json out = Json::object();
    for (const char* key :
         {"method", "rate", "budget", "cache", "share", "key_type", "value_type", "length"}) {
      if (row.contains(key)) out[key] = row[key];
    }
    return out.dump();
  };
  for (const auto& [name, tasks] : categories) {
    std::vector<std::pair<std::string, std::vector<const Json*>>> found;
    for (const Json& row : rows) {
      const Json& task = row.at("task");
      if (!task.is_string() || !row.contains("score") || !row["score"].is_number()) continue;
      if (std::ranges::find(tasks, task.get<std::string>()) == tasks.end()) continue;
      auto at = std::ranges::find(found, setting(row), [](const auto& f) { return f.first; });
      if (at == found.end()) at = found.insert(found.end(), {setting(row), {}});
      at->second.push_back(&row);
    }
    std::vector<Json> made;
    for (const auto& [key, members] : found) {
      if (members.size() < 2) continue;
      Json row = *members[0];
      row["task"] = name;
      for (const char* gone :
           {"score_error", "score_low", "score_high", "loss", "loss_low", "loss_high", "samples"}) {
        row.erase(gone);
      }
      for (const char* mean : {"score", "entries", "cache_bytes"}) {
        double sum = 0;
        for (const Json* member : members) sum += member->value(mean, 0.0);
        row[mean] = sum / static_cast<double>(members.size());
      }
      made.push_back(std::move(row));
    }
    // Before the mean of all tasks, which comes last.
    const auto all =
        std::ranges::find_if(rows, [](const Json& row) { return row.at("task") == "all"; });
    rows.insert(all, made.begin(), made.end());
  }
}

double score_longbench(const Sample& sample, const Answered& answer) {
  const LongBenchTask& task = find_task(sample.group.at("task").get<std::string>(), sample.id);
  const std::string text = task.first_line ? first_line(answer.text) : answer.text;
  double best = 0.0;
  for (const Json& truth : sample.expected.at("answers")) {
    best = std::max(best, score_one(task, sample, text, truth.get<std::string>()));
  }
  return best;
}

namespace {

struct LongBench : SampleParameters {
  std::vector<std::string> data;
  LongBenchOptions read;

  void describe(Parameters& p) {
    describe(p,
             with_storage_only(
                 "replay;balancekv;uniform;snapkv;pyramidkv;streaming-llm;clustergen;kcenter"),
             {.caches = {"1/4"}});
  }

 protected:
  void describe(Parameters& p, const std::string& methods, const Memory& sizes) {
    SampleParameters::describe(p, methods, sizes);
    p.add("--data", data,
          "LongBench's .jsonl files, or the folder that holds them by their tasks' names",
          {.type = "PATH", .needed = true});
    p.add("--tasks", read.tasks, "Tasks, by the benchmark's names", {.separated = true});
    p.add("--e", read.e, "LongBench-E: of a folder, the files whose names end in _e");
    p.add("--by-length", read.by_length, "Scores of each length apart, as LongBench-E has them");
  }
};

struct Light : LongBench {
  void describe(Parameters& p) {
    LongBench::describe(p, with_storage_only("balancekv;uniform:from=oldest;uniform"),
                        {.rates = {0.8, 0.9, 0.95}});
  }
};

Result measure(const LongBench& given, Work& work, const char* name, const char* title,
               std::vector<std::string> notes) {
  std::vector<Sample> samples;
  for (const std::string& path : given.data) {
    for (Sample& sample : read_longbench(path, given.read)) samples.push_back(std::move(sample));
  }
  SampleExperiment experiment = {
      .name = name,
      .title = title,
      .group = {{"task", "task", Unit::text, ""}},
      .overall = true,
      .settings = {{"data", given.data}, {"e", given.read.e}},
      .score_note =
          "the task's own: F1 of words, ROUGE-L, share of right classes or numbers, or "
          "similarity of code; all: the mean of the tasks' scores",
      .notes = std::move(notes)};
  if (given.read.by_length) experiment.group.push_back({"length", "words", Unit::text, ""});
  Result result = SampleRun(given, work).run(experiment, std::move(samples), score_longbench);
  add_category_rows(result.rows);
  result.plots = score_plots(title, result.rows, experiment.group, "score", "score");
  return result;
}

Result measure_longbench(LongBench given, Work& work) {
  return measure(given, work, "longbench", given.read.e ? "LongBench-E" : "LongBench", {});
}

Result measure_light(Light given, Work& work) {
  return measure(given, work, "light", "LongBench with little removed",
                 {"To remove m tokens, balancekv and uniform:from=oldest (the paper's uniform) "
                  "halve the 2m oldest; uniform draws from all of the middle."});
}

}  // namespace

Experiment longbench_experiment() {
  return experiment(
      "longbench", "LongBench: questions, summaries, examples, retrieval, counting, code",
      "BalanceKV, Tables 1 and 6; ClusterGen, Table 2",
      "  ballast eval longbench -m model.gguf --data longbench/data --e "
      "--methods 'exact;balancekv;uniform;snapkv;pyramidkv;streaming-llm' --cache 1/4 "
      "--json=longbench.json",
      &measure_longbench);
}

Experiment light_experiment() {
  return experiment(
      "light", "LongBench with 5 to 20 per cent removed", "BalanceKV, Table 5",
      "  ballast eval light -m model.gguf --data longbench/data "
      "--tasks hotpotqa,triviaqa,multifieldqa_en,qasper,lcc,passage_count --json=light.json",
      &measure_light);
}

}  // namespace ballast
