// ballast eval answers: answers for AlpacaEval and MT-bench, which another model judges (H2O,
// appendix).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ballast/engine/chat.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/running_mean.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/eval/experiment.h"
#include "cli/model_options.h"
#include "eval/tasks/judged_answers.h"
#include "report/progress.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  std::string data;
  std::string out;
  VariantFlags variants;
  std::size_t limit = 0;
  std::size_t max_tokens = 512;
  ResultOutput output;
};

/// All turns of a conversation, each from a cache that was compressed before the answer. The
/// answers so far are part of the next prompt.
Json converse(const Options& o, LoadedModel& m, const Variant& variant,
              const JudgedQuestion& question) {
  std::vector<ChatMessage> messages;
  Json turns = Json::array();
  std::size_t entries = 0, bytes = 0;
  const Stopwatch watch;
  for (const std::string& turn : question.turns) {
    messages.push_back({"user", turn});
    const std::vector<Token> prompt = encode_chat(m.tokenizer, messages);
    CacheOptions cache;
    cache.policy = variant.policy;
    cache.key_type = variant.key_type;
    cache.value_type = variant.value_type;
    cache.seed = variant.seed;
    cache.expected_tokens = prompt.size() + o.max_tokens;
    Sequence sequence(m.model, cache);
    PrefillOptions reading;
    reading.replay.wording = replay_wording_of(m, true);
    std::vector<float> logits = m.engine.prefill(sequence, prompt, reading);
    entries = sequence.cache().entries();
    bytes = sequence.cache().bytes().used();
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = o.max_tokens;
    const std::string text =
        generate(m.engine, sequence, m.tokenizer, std::move(logits), prompt, options).text;
    messages.push_back({"assistant", text});
    turns.push_back(text);
  }
  return {{"turns", turns}, {"entries", entries}, {"bytes", bytes}, {"seconds", watch.seconds()}};
}

std::string file_name(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.'; },
      '-');
  return name;
}

void run(Options& o) {
  JudgedFormat format{};
  std::vector<JudgedQuestion> questions = read_judged(o.data, format);
  if (o.limit > 0 && o.limit < questions.size()) questions.resize(o.limit);
  require(o.variants.memory.caches.empty(), "eval answers: give --rates or --budgets, not --cache");
  const std::vector<Variant> variants = o.variants.parse();
  LoadedModel m(o.model);
  std::filesystem::create_directories(o.out);
  o.output.open();
  Json texts = Json::array();
  for (const JudgedQuestion& question : questions) texts.push_back(question.turns);
  ResultLog log = o.output.log({{"experiment", "answers"},
                                {"model_file", model_identity(m.model)},
                                {"questions", texts},
                                {"max_tokens", o.max_tokens}});
  Result result;
  result.experiment = "answers";
  result.title = fmt::format("Answers to {} for a judge, {} questions", o.data, questions.size());
  result.settings = {{"model", o.model}, {"data", o.data}, {"max_tokens", o.max_tokens}};
  Progress progress("eval answers");
  std::size_t done = 0;
  for (const Variant& variant : variants) {
    std::vector<std::vector<std::string>> answers;
    RunningMean entries, bytes, seconds, characters;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const Json found = log.find_or_make(
          fmt::format("{}/{}/{}-{}/{}", variant.name(), variant.seed, to_string(variant.key_type),
                      to_string(variant.value_type), i),
          [&] { return converse(o, m, variant, questions[i]); });
      answers.push_back(found.at("turns").get<std::vector<std::string>>());
      entries.add(number_of(found.at("entries")));
      bytes.add(number_of(found.at("bytes")));
      seconds.add(number_of(found.at("seconds")));
      for (const std::string& text : answers.back()) {
        characters.add(static_cast<double>(text.size()));
      }
      ++done;
      if (!o.output.quiet()) {
        progress.update(static_cast<double>(done) /
                        static_cast<double>(variants.size() * questions.size()));
      }
    }
    const auto path =
        std::filesystem::path(o.out) /
        (file_name(variant.name()) + (format == JudgedFormat::alpaca_eval ? ".json" : ".jsonl"));
    write_file(path, judged_file(format, questions, answers, variant.name()));
    result.rows.push_back({{"method", variant.name()},
                           {"answers", characters.count},
                           {"characters", characters.mean()},
                           {"entries", entries.mean()},
                           {"cache_bytes", bytes.mean()},
                           {"answer_seconds", seconds.mean()},
                           {"seconds_per_token", Json()},
                           {"file", path.string()}});
  }
  result.columns = {{"method", "method"},
                    {"answers", "answers", Unit::count},
                    {"characters", "characters", Unit::number},
                    {"entries", "entries", Unit::count},
                    {"cache_bytes", "cache", Unit::bytes},
                    {"answer_seconds", "a conversation", Unit::seconds},
                    {"file", "file"}};
  result.supporting = {"answer_seconds", "cache_bytes", "entries", "answers"};
  result.notes = {
      format == JudgedFormat::alpaca_eval
          ? "The files are AlpacaEval's model_outputs; alpaca_eval --model_outputs FILE judges them"
          : "The files are MT-bench's model_answer; gen_judgment.py of FastChat judges them",
      "The judges are models that are paid for, so no score is here"};
  o.output.write(std::move(result), log);
}

}  // namespace

void add_eval_answers(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "answers", "Answers for AlpacaEval and MT-bench, for a judge to score (H2O)");
  add_model_option(*app, o.model);
  app->add_option("--data", o.data, "alpaca_eval.json, or MT-bench's question.jsonl")
      ->required()
      ->type_name("FILE");
  app->add_option("-o,--out", o.out, "The folder of the answers, a file a method")
      ->required()
      ->type_name("DIR");
  o.variants.add_to(*app, "exact;h2o;local", {.rates = {0.2}});
  app->add_option("--limit", o.limit, "The first N questions")->type_name("N");
  app->add_option("--max-tokens", o.max_tokens, "Tokens of an answer")->capture_default_str();
  o.output.add_to(*app);
  app->footer(
      "Example:\n  ballast eval answers -m model.gguf --data question.jsonl -o answers "
      "--methods 'exact;h2o;local' --rates 0.2");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
