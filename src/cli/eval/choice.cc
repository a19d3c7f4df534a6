// ballast eval choice: multiple choice in the style of lm-evaluation-harness (H2O, figures 4 and 8,
// tables 1, 2, 8, 9, 10, 11).
#include <algorithm>

#include "cli/eval/choice.h"
#include "eval/results/score_plots.h"

namespace ballast::cli {
namespace {

/// The paper's methods, each with and without heavy hitters. h2o is local with them; with no recent
/// tokens it is heavy hitters alone. SpAtten has no recent tokens either; our default of 32 would
/// be most of a short question.
constexpr const char* kMethods =
    "local;h2o;h2o:window=0;strided;strided:heavy=0.5;fixed;fixed:heavy=0.5;topk;"
    "topk:heavy=0.5;spatten:window=0";

std::vector<Sample> read_samples(ChoiceFlags& o) {
  o.choice.shots_file = o.shots_file;
  o.choice.seed = o.flags.variants.seed;
  std::vector<Sample> samples;
  for (const std::string& path : o.data) {
    std::vector<Sample> more = read_choices(path, o.choice);
    // --limit counts questions; some have several samples.
    const std::size_t parts = more.at(0).expected.contains("part") ? 2 : 1;
    if (o.flags.limit > 0) more.resize(std::min(more.size(), parts * o.flags.limit));
    samples.insert(samples.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
  }
  o.flags.limit = 0;
  return samples;
}

}  // namespace

void run_choice(ChoiceFlags& o, const std::string& name, const std::string& title) {
  std::vector<Sample> samples = read_samples(o);
  SampleRun run(o.flags);
  SampleExperiment experiment;
  experiment.name = name;
  experiment.title = title;
  experiment.group = {{"task", "task", Unit::text, ""}};
  experiment.score_title = "acc";
  experiment.settings = {{"data", o.data}, {"shots", o.choice.shots}, {"shots_file", o.shots_file}};
  experiment.notes = {
      "acc       questions whose right choice is the likeliest",
      "entries   kept per KV head when the text is summarised; cache: the bytes of all layers "
      "then"};
  // Merges the choices that are separate samples of one question.
  Result result =
      run.run(experiment, std::move(samples), [](const Sample&, const Answered&) { return 0.0; });
  std::vector<Sample> questions = run.samples();
  std::vector<std::vector<Answered>> answers = run.answers();
  unite_choices(questions, answers);
  result.rows = score_rows(questions, run.variants(), answers, score_choice);
  add_scores(
      result.rows, "acc_norm", questions, run.variants(), answers,
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
  run.finish(std::move(result));
}

void ChoiceFlags::add_to(CLI::App& app, const std::string& methods, const Memory& sizes) {
  flags.protocol = "stream";
  flags.add_to(app, methods, sizes);
  app.add_option("--data", data,
                 "Files of questions, one JSON object a line, with the data sets' own fields")
      ->required()
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("--task", choice.task,
                 "copa, mathqa, openbookqa, piqa, rte or winogrande, where the file's name does "
                 "not begin with it")
      ->type_name("NAME");
  app.add_option("--shots", choice.shots, "Examples before each question")
      ->capture_default_str()
      ->type_name("K");
  app.add_option("--shots-file", shots_file,
                 "Where examples are drawn from (the training set); the questions' own file if not "
                 "given")
      ->type_name("FILE");
}

void add_eval_choice(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<ChoiceFlags>();
  CLI::App* app = parent.add_subcommand(
      "choice", "Multiple choice: COPA, MathQA, OpenBookQA, PiQA, RTE, Winogrande");
  options->add_to(*app, with_storage_only(kMethods), {.caches = {"0.2"}});
  app->footer(
      "Example:\n  ballast eval choice -m model.gguf --data openbookqa.jsonl --shots 5 "
      "--methods 'exact;local;h2o' --rates 0.6,0.2,0.1,0.04 --json=choice.json");
  app->callback([options, &task] {
    task = [options] { run_choice(*options, "choice", "Multiple choice"); };
  });
}

}  // namespace ballast::cli
