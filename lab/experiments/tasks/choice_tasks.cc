#include "experiments/tasks/choice_tasks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "ballast/random.h"
#include "base/fail.h"
#include "base/printable.h"
#include "experiments/data/json_lines.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/python_text.h"
#include "experiments/tasks/sample_run.h"
#include "experiments/tasks/score_plots.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

/// A question in the form of lm-evaluation-harness.
struct Document {
  std::vector<std::string> prompts;  ///< one, or one a choice
  std::vector<std::string> choices;  ///< one a prompt where there are several; each begins with ' '
  std::size_t gold = 0;

  std::string example() const {
    return prompts[prompts.size() == 1 ? 0 : gold] + choices[choices.size() == 1 ? 0 : gold];
  }
};

void check_gold(const Record& record, const Document& document, std::int64_t gold,
                std::size_t choices) {
  require(gold >= 0 && gold < static_cast<std::int64_t>(choices),
          "{}: the right choice is number {}, but there are {}", record.place, gold, choices);
  for (const std::string& choice : document.choices) {
    require(choice.size() > 1, "{}: an empty choice", record.place);
  }
}

Document make_document(const Record& record, std::string prompt, std::vector<std::string> choices,
                       std::int64_t gold) {
  Document out;
  out.prompts = {std::move(prompt)};
  for (const std::string& choice : choices) out.choices.push_back(" " + choice);
  check_gold(record, out, gold, choices.size());
  out.gold = static_cast<std::size_t>(gold);
  return out;
}

/// The premise without its full stop, followed by "because" or "therefore".
Document read_copa(const Record& record) {
  const std::string& asked = record.text("question");
  require(asked == "cause" || asked == "effect",
          "{}: the field \"question\" is \"{}\"; expected \"cause\" or \"effect\"", record.place,
          printable(asked));
  std::u32string premise = to_code_points(strip(record.text("premise")));
  require(!premise.empty(), "{}: the field \"premise\" is empty", record.place);
  premise.pop_back();
  std::vector<std::string> choices;
  for (const char* name : {"choice1", "choice2"}) {
    std::u32string choice = to_code_points(record.text(name));
    require(!choice.empty(), "{}: the field \"{}\" is empty", record.place, name);
    choices.push_back(to_lower(to_utf8(choice.substr(0, 1))) + to_utf8(choice.substr(1)));
  }
  return make_document(record, to_utf8(premise) + (asked == "cause" ? " because" : " therefore"),
                       choices, record.number("label"));
}

Document read_piqa(const Record& record) {
  return make_document(record, "Question: " + record.text("goal") + "\nAnswer:",
                       {record.text("sol1"), record.text("sol2")}, record.number("label"));
}

std::int64_t letter_index(const Record& record, const char* name, char first) {
  const std::string letter = strip(record.text(name));
  require(letter.size() == 1 && letter[0] >= first && letter[0] < first + 26,
          "{}: the field \"{}\" is \"{}\"; expected a letter from {}", record.place, name,
          printable(letter), first);
  return letter[0] - first;
}

Document read_openbookqa(const Record& record) {
  std::string stem;
  std::vector<std::string> choices;
  if (record.has("question_stem")) {
    stem = record.text("question_stem");
    choices = record.object("choices").texts("text");
  } else {
    const Record question = record.object("question");
    stem = question.text("stem");
    require(question.has("choices") && question.fields["choices"].is_array(),
            "{}: the list \"choices\" of the question is missing", record.place);
    for (const auto& choice : question.fields["choices"]) {
      require(choice.is_object(), "{}: a choice is not an object", record.place);
      choices.push_back(Record{record.place, choice}.text("text"));
    }
  }
  return make_document(record, stem, choices, letter_index(record, "answerKey", 'A'));
}

/// The option goes into the blank, and what follows the blank is the continuation.
Document read_winogrande(const Record& record) {
  const std::string& sentence = record.text("sentence");
  const std::size_t blank = sentence.find('_');
  require(blank != std::string::npos, "{}: the sentence has no blank '_'", record.place);
  Document out;
  for (const char* name : {"option1", "option2"}) {
    out.prompts.push_back(sentence.substr(0, blank) + record.text(name));
  }
  out.choices = {" " + strip(sentence.substr(blank + 1))};
  const std::int64_t gold = record.number("answer") - 1;
  check_gold(record, out, gold, out.prompts.size());
  out.gold = static_cast<std::size_t>(gold);
  return out;
}

/// "a ) 38 , b ) 27.675 , c ) 30" as its choices: what the harness's regular expression
/// [abcd] \) .*?, |e \) .*?$ finds, without letters and commas.
std::vector<std::string> split_options(std::string_view options) {
  std::vector<std::string> choices;
  const std::size_t last_comma = options.rfind(", ");
  for (std::size_t i = 0; i + 4 <= options.size();) {
    const char letter = options[i];
    const bool marked = options.substr(i + 1, 3) == " ) ";
    std::size_t end = std::string_view::npos;
    if (marked && letter >= 'a' && letter <= 'd' && last_comma != std::string_view::npos &&
        i + 4 <= last_comma) {
      end = options.find(", ", i + 4) + 2;
    } else if (marked && letter == 'e') {
      end = options.size();
    }
    if (end == std::string_view::npos) {
      ++i;
      continue;
    }
    std::string_view choice = options.substr(i + 4, end - i - 4);
    choices.emplace_back(choice.substr(0, choice.find_last_not_of(" ,") + 1));
    i = end;
  }
  return choices;
}

Document read_mathqa(const Record& record) {
  return make_document(record, "Question: " + record.text("Problem") + "\nAnswer:",
                       split_options(record.text("options")), letter_index(record, "correct", 'a'));
}

Document read_rte(const Record& record) {
  const bool glue = record.has("sentence1");
  const std::string& premise = record.text(glue ? "sentence1" : "premise");
  const std::string& hypothesis = record.text(glue ? "sentence2" : "hypothesis");
  std::int64_t gold = 0;
  if (record.has("label") && record.fields["label"].is_string()) {
    const std::string& label = record.text("label");
    require(label == "entailment" || label == "not_entailment",
            "{}: the field \"label\" is \"{}\"; expected \"entailment\" or \"not_entailment\"",
            record.place, printable(label));
    gold = label == "entailment" ? 0 : 1;
  } else {
    gold = record.number("label");
  }
  return make_document(record, premise + "\nQuestion: " + hypothesis + " True or False?\nAnswer:",
                       {"True", "False"}, gold);
}

struct Task {
  std::string_view name;
  Document (*read)(const Record&);
  bool length_score;
};

constexpr Task kTasks[] = {{"copa", read_copa, false},
                           {"mathqa", read_mathqa, true},
                           {"openbookqa", read_openbookqa, true},
                           {"piqa", read_piqa, true},
                           {"rte", read_rte, false},
                           {"winogrande", read_winogrande, false}};

const Task& find_task(const fs::path& path, const std::string& name) {
  const std::string stem = to_lower(path.stem().string());
  for (const Task& task : kTasks) {
    if (name.empty() ? stem.starts_with(task.name) : task.name == name) return task;
  }
  require(!name.empty(), "{}: the file name does not begin with a task; name it with --task: {}",
          path.string(), fmt::join(choice_task_names(), ", "));
  fail("--task {}: unknown; known: {}", printable(name), fmt::join(choice_task_names(), ", "));
}

/// The examples before question `number`: `count` different ones, without `left_out`.
std::string draw_examples(const std::vector<Document>& pool, std::size_t count,
                          std::size_t left_out, std::size_t number, std::uint64_t seed) {
  const std::size_t usable = pool.size() - (left_out < pool.size() ? 1 : 0);
  // The first steps of a shuffle: only the places that they changed are held.
  std::map<std::size_t, std::size_t> changed;
  const auto at = [&](std::size_t place) {
    const auto found = changed.find(place);
    return found == changed.end() ? place : found->second;
  };
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const double u = random_unit({.seed = seed}, number, 0, static_cast<std::uint32_t>(i));
    const auto pick = i + static_cast<std::size_t>(u * static_cast<double>(usable - i));
    const std::size_t drawn = at(pick);
    changed[pick] = at(i);
    text += pool[drawn < left_out ? drawn : drawn + 1].example() + "\n\n";
  }
  return text;
}

void add_samples(const Document& document, const std::string& examples, const std::string& id,
                 std::string_view task, std::vector<Sample>& out) {
  Sample sample;
  sample.id = id;
  sample.group = {{"task", task}};
  sample.raw = true;
  sample.max_tokens = 1;
  sample.expected = {{"gold", document.gold}};
  if (document.prompts.size() == 1) {
    sample.question = examples + document.prompts[0];
    sample.choices = document.choices;
    out.push_back(std::move(sample));
    return;
  }
  for (std::size_t i = 0; i < document.prompts.size(); ++i) {
    Sample part = sample;
    part.id = fmt::format("{}, choice {}", id, i + 1);
    part.expected["part"] = i;
    part.question = examples + document.prompts[i];
    part.choices = document.choices;
    out.push_back(std::move(part));
  }
}

void add_answer(Answered& to, const Answered& part) {
  to.choices.insert(to.choices.end(), part.choices.begin(), part.choices.end());
  to.tokens += part.tokens;
  to.cut = to.cut || part.cut;
  if (to.failure.empty()) to.failure = part.failure;
  to.entries = std::max(to.entries, part.entries);
  to.bytes = std::max(to.bytes, part.bytes);
  to.exact_bytes = std::max(to.exact_bytes, part.exact_bytes);
  to.made += part.made;
  to.read_seconds += part.read_seconds;
  to.compress_seconds += part.compress_seconds;
  to.answer_seconds += part.answer_seconds;
}

bool is_right(const Sample& sample, std::size_t choice) {
  return sample.expected.at("gold").get<std::size_t>() == choice;
}

}  // namespace

std::vector<std::string_view> choice_task_names() {
  std::vector<std::string_view> names;
  for (const Task& task : kTasks) names.push_back(task.name);
  return names;
}

bool has_length_score(std::string_view name) {
  return std::ranges::any_of(
      kTasks, [&](const Task& task) { return task.name == name && task.length_score; });
}

std::vector<Sample> read_choices(const fs::path& path, const ChoiceOptions& options) {
  const Task& task = find_task(path, options.task);
  const auto read = [&](const fs::path& file) {
    return read_all(file, [&](const Record& r) { return std::pair(r.place, task.read(r)); });
  };
  const auto asked = read(path);
  std::vector<Document> pool;
  const bool own = options.shots_file.empty();
  if (options.shots > 0) {
    for (const auto& item : own ? asked : read(options.shots_file)) pool.push_back(item.second);
    const std::size_t usable = pool.size() - (own ? 1 : 0);
    require(usable >= options.shots, "{}: --shots {} needs as many examples; the file has {}",
            (own ? path : options.shots_file).string(), options.shots, usable);
  }
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const std::string examples =
        draw_examples(pool, options.shots, own ? i : pool.size(), i, options.seed);
    add_samples(asked[i].second, examples, asked[i].first, task.name, samples);
  }
  return samples;
}

void unite_choices(std::vector<Sample>& samples, std::vector<std::vector<Answered>>& answers) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Json& expected = samples[i].expected;
    const bool further = expected.contains("part") && expected["part"].get<std::size_t>() > 0;
    if (further) {
      for (std::size_t v = 0; v < answers[i].size(); ++v) {
        add_answer(answers[kept - 1][v], answers[i][v]);
      }
      continue;
    }
    if (kept != i) {
      samples[kept] = std::move(samples[i]);
      answers[kept] = std::move(answers[i]);
    }
    ++kept;
  }
  samples.resize(kept);
  answers.resize(kept);
}

double score_choice(const Sample& sample, const Answered& answer) {
  return is_right(sample, best_choice(answer.choices)) ? 1.0 : 0.0;
}

double score_choice_by_length(const Sample& sample, const Answered& answer) {
  std::vector<std::string> choices;
  for (const std::string& choice : sample.choices) choices.push_back(choice.substr(1));
  return is_right(sample, best_choice_by_length(answer.choices, choices)) ? 1.0 : 0.0;
}

namespace {

/// The paper's methods, each with and without heavy hitters. h2o is local with them; with no recent
/// tokens it is heavy hitters alone. SpAtten has no recent tokens either; our default of 32 would
/// be most of a short question.
constexpr const char* kMethods =
    "local;h2o;h2o:window=0;strided;strided:heavy=0.5;fixed;fixed:heavy=0.5;topk;"
    "topk:heavy=0.5;spatten:window=0";

struct Choice : SampleParameters {
  std::vector<std::string> data;
  std::string shots_file;
  ChoiceOptions choice;

  void describe(Parameters& p) { describe(p, with_storage_only(kMethods), {.caches = {"0.2"}}); }

 protected:
  void describe(Parameters& p, const std::string& methods, const Memory& sizes) {
    protocol = "stream";
    SampleParameters::describe(p, methods, sizes);
    p.add("--data", data,
          "Files of questions, one JSON object a line, with the data sets' own fields",
          {.type = "FILE", .needed = true});
    p.add("--task", choice.task,
          "copa, mathqa, openbookqa, piqa, rte or winogrande, where the file's name does not begin "
          "with it",
          {.type = "NAME"});
    p.add("--shots", choice.shots, "Examples before each question");
    p.add("--shots-file", shots_file,
          "Where examples are drawn from (the training set); the questions' own file if not given",
          {.type = "FILE"});
  }
};

struct Quantised : Choice {
  void describe(Parameters& p) { Choice::describe(p, "exact;h2o", {.rates = {0.2}}); }
};

std::vector<Sample> read_samples(Choice& o) {
  o.choice.shots_file = o.shots_file;
  o.choice.seed = o.variants.seed;
  std::vector<Sample> samples;
  for (const std::string& path : o.data) {
    std::vector<Sample> more = read_choices(path, o.choice);
    // --limit counts questions; some have several samples.
    const std::size_t parts = more.at(0).expected.contains("part") ? 2 : 1;
    if (o.limit > 0) more.resize(std::min(more.size(), parts * o.limit));
    samples.insert(samples.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
  }
  o.limit = 0;
  return samples;
}

Result measure(Choice o, Work& work, const char* name, const char* title) {
  std::vector<Sample> samples = read_samples(o);
  SampleRun asked(o, work);
  SampleExperiment experiment = {
      .name = name,
      .title = title,
      .group = {{"task", "task", Unit::text, ""}},
      .score_title = "acc",
      .join = false,
      .settings = {{"data", o.data}, {"shots", o.choice.shots}, {"shots_file", o.shots_file}},
      .notes = {
          "acc       questions whose right choice is the likeliest",
          "entries   kept per KV head when the text is summarised; cache: the bytes of all layers "
          "then"}};
  // Merges the choices that are separate samples of one question.
  Result result =
      asked.run(experiment, std::move(samples), [](const Sample&, const Answered&) { return 0.0; });
  std::vector<Sample> questions = asked.samples();
  std::vector<std::vector<Answered>> answers = asked.answers();
  unite_choices(questions, answers);
  result.rows = score_rows(questions, asked.variants(), answers, score_choice);
  add_scores(
      result.rows, "acc_norm", questions, asked.variants(), answers,
      [](const Sample& s, const Answered& a) {
        return has_length_score(s.group.at("task").get<std::string>())
                   ? score_choice_by_length(s, a)
                   : 0.0;
      },
      false);
  for (Json& row : result.rows) {
    if (has_length_score(row.at("task").get<std::string>())) continue;
    row.erase("acc_norm");
    row.erase("acc_norm_error");
  }
  result.settings["samples"] = questions.size();
  if (std::ranges::any_of(result.rows, [](const Json& r) { return r.contains("acc_norm"); })) {
    const auto at = std::ranges::find(result.columns, "score", &ResultColumn::key);
    result.columns.insert(at + 1, {"acc_norm", "acc_norm", Unit::percent, "acc_norm_error"});
    result.notes.insert(
        result.notes.begin() + 1,
        "acc_norm  the same with log-likelihoods divided by the characters of the choices");
  }
  result.plots = score_plots(result.title, result.rows, experiment.group, "score", "acc");
  return result;
}

Result measure_choice(Choice given, Work& work) {
  return measure(std::move(given), work, "choice", "Multiple choice");
}

Result measure_quantised(Quantised given, Work& work) {
  if (given.variants.types.empty()) given.variants.types = {"bf16", "int4"};
  return measure(std::move(given), work, "quantised",
                 "Multiple choice with caches of several types");
}

}  // namespace

Experiment choice_experiment() {
  return experiment("choice", "Multiple choice: COPA, MathQA, OpenBookQA, PiQA, RTE, Winogrande",
                    "H2O, Figures 4 and 8, Tables 1, 2, 8 to 11",
                    "  ballast eval choice -m model.gguf --data openbookqa.jsonl --shots 5 "
                    "--methods 'exact;local;h2o' --rates 0.6,0.2,0.1,0.04 --json=choice.json",
                    &measure_choice);
}

Experiment quantised_experiment() {
  return experiment(
      "quantised", "Multiple choice with caches of 16 bits and of 4", "H2O, Table 6",
      "  ballast eval quantised -m model.gguf --data copa.jsonl --data piqa.jsonl --shots 0 "
      "--methods 'exact;h2o' --rates 0.2 --cache-types bf16,int4 --json=quantised.json",
      &measure_quantised);
}

}  // namespace ballast
