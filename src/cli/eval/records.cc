// ballast eval records: values of keys, several questions on one record.
#include "eval/tasks/records.h"
#include "base/fail.h"
#include "cli/eval/experiment.h"
#include "eval/data/benchmarks.h"
#include "eval/results/score_plots.h"
#include "text/question_form.h"

namespace ballast::cli {
namespace {

struct Options {
  SampleFlags flags;
  std::vector<std::size_t> lengths = {1800, 3600};
  std::size_t repeat = 20;
  std::size_t questions = 10;
};

void run(Options& o) {
  require(o.repeat > 0 && o.questions > 0, "--repeat and --questions must be at least 1");
  // What a length says would not be true of a record that lost its middle.
  o.flags.ask.refuse_long = o.flags.ask.longest == 0;
  SampleRun run(o.flags);
  const Tokenizer& tokenizer = run.model().tokenizer;
  const bool chat = !o.flags.ask.raw && !tokenizer.vocabulary().chat_template.empty();
  // Of the value, which records_samples() makes room for, eight tokens more may be written.
  const std::size_t beside = 8 + (chat ? template_tokens(tokenizer) : 1);
  run.check_lengths(o.lengths);
  std::vector<Sample> samples;
  for (std::size_t length : o.lengths) {
    for (std::size_t i = 0; i < o.repeat; ++i) {
      const std::uint64_t seed = o.flags.variants.seed * 1000003 + i;
      try {
        for (Sample& sample :
             records_samples(tokenizer, length - std::min(length, beside), o.questions, seed, chat,
                             o.flags.ask.question_later)) {
          sample.group = {{"length", length}};
          samples.push_back(std::move(sample));
        }
      } catch (const TooShort&) {
        fail("--lengths {}: too few tokens for {} fields; give more, or fewer --questions", length,
             o.questions);
      }
    }
  }
  if (!o.flags.ask.question_later) join_prompts(samples);
  SampleExperiment experiment;
  experiment.name = "records";
  experiment.title = "Records: the value of a key";
  experiment.group = {{"length", "tokens", Unit::count, ""}};
  experiment.score_title = "right";
  experiment.overall = true;
  experiment.settings = {{"repeat", o.repeat}, {"questions", o.questions}};
  experiment.notes = {
      "right     answers that are the value asked for; lengths include the chat template, the "
      "question and its answer",
      "entries   kept per KV head when the text is summarised; cache: the bytes of all layers "
      "then"};
  Result result = run.run(experiment, std::move(samples), score_record);
  result.plots = score_plots(result.title, result.rows, experiment.group, "score", "right");
  run.finish(std::move(result));
}

}  // namespace

void add_eval_records(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand("records", "Values of keys, several questions on a record");
  o.flags.add_to(*app, with_storage_only("replay;kvzip;h2o;snapkv;streaming-llm"),
                 {.caches = {"1/4", "1/8", "1/16"}});
  app->add_option("--lengths", o.lengths, "Tokens of the prompts")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("1800,3600")
      ->type_name("LIST");
  app->add_option("--repeat", o.repeat, "Records of each length")
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--questions", o.questions,
                  "Questions on each record; with --question-later all on one compressed cache")
      ->capture_default_str()
      ->type_name("N");
  app->footer(
      "Example:\n  ballast eval records -m model.gguf --question-later --methods "
      "'exact;replay;snapkv' --cache 1/8,1/16 --json=records.json");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
