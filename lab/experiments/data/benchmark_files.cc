// RULER (Hsieh et al. 2024), LongEval's lines (Li et al. 2023) and H2O's summaries.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "experiments/data/benchmark_wording.h"
#include "experiments/data/benchmarks.h"
#include "experiments/data/json_lines.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/python_text.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

/// All samples of a file or of the files of a folder, by `make(record, file)`.
template <typename Make>
std::vector<Sample> read_files(const fs::path& path, Make&& make) {
  std::vector<Sample> samples;
  for (const fs::path& file : json_lines_files(path)) {
    JsonLines lines(file);
    while (const auto record = lines.next()) samples.push_back(make(*record, file));
  }
  return samples;
}

/// The prompt up to its last line, which asks; a prompt of one line is all question.
void split_last_line(std::string prompt, Sample& sample) {
  const std::size_t last = prompt.find_last_not_of(" \n");
  const std::size_t at = last == std::string::npos ? last : prompt.rfind('\n', last);
  if (at != std::string::npos) {
    sample.context = prompt.substr(0, at);
    prompt.erase(0, at);
  }
  sample.question = std::move(prompt);
}

std::string ruler_name(const fs::path& file) {
  const std::string stem = file.stem().string();
  const bool split_name = stem == "validation" || stem == "test";
  return split_name ? fs::absolute(file).parent_path().filename().string() : stem;
}

const RulerTask& find_ruler_task(std::string_view name, const fs::path& file) {
  std::vector<std::string_view> known;
  for (const RulerTask& task : ruler_tasks()) {
    if (name.starts_with(task.name)) return task;
    known.push_back(task.name);
  }
  fail(ErrorCode::bad_file, "{}: the name tells no task; expected it to begin with one of {}",
       file.string(), fmt::join(known, ", "));
}

Sample make_ruler_sample(const Record& record, const fs::path& file) {
  const std::string name = ruler_name(file);
  const RulerTask& task = find_ruler_task(name, file);
  Sample sample;
  sample.id = record.place;
  sample.group = {{"task", name}};
  split_last_line(record.text("input"), sample);
  if (record.has("answer_prefix")) {
    sample.answer_start = record.text("answer_prefix");
  } else {
    sample.raw = true;  // The prompt ends with the beginning of the answer.
  }
  sample.expected = {{"outputs", record.texts("outputs")}, {"score", task.score}};
  sample.max_tokens = task.max_tokens;
  return sample;
}

Sample make_lines_sample(const Record& record, const fs::path&) {
  Sample sample;
  sample.id = record.place;
  const std::string& prompt = record.text("prompt");
  const auto lines = record.has("num_lines") ? record.number("num_lines")
                                             : std::count(prompt.begin(), prompt.end(), '\n');
  sample.group = {{"lines", lines}};
  split_last_line(prompt, sample);
  sample.expected = record.digits("expected_number");
  sample.max_tokens = 100;
  return sample;
}

Sample make_summary_sample(const Record& record, const fs::path& file) {
  Sample sample;
  sample.id = record.place;
  sample.group = {{"data", file.stem().string()}};
  split_last_line(record.text("article"), sample);
  sample.expected = record.text("summary_gt");
  sample.raw = true;
  if (record.has("max_tokens")) {
    const std::int64_t most = record.number("max_tokens");
    require(most > 0 && most <= 65536, ErrorCode::bad_file,
            "{}: max_tokens is {}; expected 1 to 65536", record.place, most);
    sample.max_tokens = static_cast<std::size_t>(most);
  } else {
    sample.max_tokens = 64;
  }
  sample.stop = {"###"};
  if (record.has("stop")) sample.stop = record.texts("stop");
  std::erase(sample.stop, "");
  return sample;
}

}  // namespace

std::vector<Sample> read_ruler(const fs::path& path) { return read_files(path, make_ruler_sample); }

double score_ruler(const Sample& sample, const Answered& answer) {
  const auto outputs = sample.expected.at("outputs").get<std::vector<std::string>>();
  switch (sample.expected.at("score").get<RulerScore>()) {
    case RulerScore::any:
      return string_match_part(answer.text, outputs);
    case RulerScore::number:
      return line_is_right(answer.text, outputs.at(0)) ? 1 : 0;
    case RulerScore::call:
      return call_is_right(answer.text, outputs.at(0)) ? 1 : 0;
    case RulerScore::all:
      break;
  }
  return string_match_all(answer.text, outputs);
}

std::vector<Sample> read_lines(const fs::path& path) { return read_files(path, make_lines_sample); }

double score_lines(const Sample& sample, const Answered& answer) {
  const Json& number = sample.expected;
  return line_is_right(answer.text, number.is_string() ? number.get<std::string>() : number.dump())
             ? 1.0
             : 0.0;
}

std::vector<Sample> read_summaries(const fs::path& path) {
  return read_files(path, make_summary_sample);
}

RougeScores score_summary(const Sample& sample, const Answered& answer, bool helm) {
  const std::string truth = sample.expected.get<std::string>();
  return helm ? rouge_of_counts(answer.text, truth, true) : rouge_of_sets(answer.text, truth);
}

}  // namespace ballast
