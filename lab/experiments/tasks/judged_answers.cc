#include "experiments/tasks/judged_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "ballast/engine/chat.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/running_mean.h"
#include "base/stopwatch.h"
#include "experiments/data/json_lines.h"
#include "experiments/tasks/sample_run.h"
#include "formats/json_file.h"

namespace ballast {
namespace {

JudgedQuestion alpaca_question(const Json& item, const std::string& place) {
  require(item.is_object() && item.contains("instruction") && item["instruction"].is_string(),
          "{}: expected an object with the text \"instruction\"", place);
  return {item, {item["instruction"].get<std::string>()}};
}

JudgedQuestion mt_question(const Record& record) {
  record.number("question_id");
  return {Json(record.fields), record.texts("turns")};
}

}  // namespace

std::vector<JudgedQuestion> read_judged(const std::filesystem::path& path, JudgedFormat& format) {
  std::ifstream file(path);
  char first = 0;
  file >> first;
  if (first == '\xEF') file.ignore(2) >> first;  // a byte order mark
  format = first == '[' ? JudgedFormat::alpaca_eval : JudgedFormat::mt_bench;
  if (format == JudgedFormat::mt_bench) return read_all(path, mt_question);
  const Json all = read_json(path);
  require(!all.empty(), "{}: holds no instruction", path.string());
  std::vector<JudgedQuestion> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    out.push_back(alpaca_question(all[i], fmt::format("{}: number {}", path.string(), i)));
  }
  return out;
}

std::string judged_file(JudgedFormat format, const std::vector<JudgedQuestion>& questions,
                        const std::vector<std::vector<std::string>>& answers,
                        const std::string& generator) {
  if (format == JudgedFormat::alpaca_eval) {
    Json out = Json::array();
    for (std::size_t i = 0; i < questions.size(); ++i) {
      Json item = {{"instruction", questions[i].turns[0]},
                   {"output", answers[i].at(0)},
                   {"generator", generator}};
      if (questions[i].record.contains("dataset")) {
        item["dataset"] = questions[i].record["dataset"];
      }
      out.push_back(std::move(item));
    }
    return out.dump(2) + "\n";
  }
  std::string out;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const Json& id = questions[i].record["question_id"];
    const Json line = {{"question_id", id},
                       {"answer_id", fmt::format("{}-{}", generator, id.dump())},
                       {"model_id", generator},
                       {"choices", {{{"index", 0}, {"turns", answers[i]}}}},
                       {"tstamp", 0}};
    out += line.dump() + "\n";
  }
  return out;
}

namespace {

struct Answers {
  std::string model;
  std::string data;
  std::string out;
  VariantParameters variants;
  std::size_t limit = 0;
  std::size_t max_tokens = 512;

  void describe(Parameters& p) {
    p.add_model(model);
    p.add("--data", data, "alpaca_eval.json, or MT-bench's question.jsonl",
          {.type = "FILE", .needed = true});
    p.add("-o,--out", out, "The folder of the answers, a file a method",
          {.type = "DIR", .needed = true});
    variants.describe(p, "exact;h2o;local", {.rates = {0.2}});
    p.add("--limit", limit, "The first N questions");
    p.add("--max-tokens", max_tokens, "Tokens of an answer");
  }
};

/// All turns of a conversation, each from a cache that was compressed before the answer. The
/// answers so far are part of the next prompt.
Json converse(const Answers& o, LoadedModel& m, const Variant& variant,
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
    reading.replay.wording = replay_wording(m.tokenizer, true);
    std::vector<float> logits = m.engine.prefill(sequence, prompt, reading);
    entries = sequence.cache().entries();
    bytes = sequence.cache().bytes().used();
    GenerateOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = o.max_tokens;
    const std::string text =
        generate(m.engine, sequence, m.tokenizer, std::move(logits), options).text;
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

Result measure(Answers o, Work& work) {
  JudgedFormat format{};
  std::vector<JudgedQuestion> questions = read_judged(o.data, format);
  if (o.limit > 0 && o.limit < questions.size()) questions.resize(o.limit);
  require(o.variants.memory.caches.empty(), "eval answers: give --rates or --budgets, not --cache");
  const std::vector<Variant> variants = o.variants.parse();
  LoadedModel m(o.model);
  std::filesystem::create_directories(o.out);
  Json texts = Json::array();
  for (const JudgedQuestion& question : questions) texts.push_back(question.turns);
  ResultLog& log = work.log({{"experiment", "answers"},
                             {"model_file", model_identity(m.model)},
                             {"questions", texts},
                             {"max_tokens", o.max_tokens}});
  Result result;
  result.experiment = "answers";
  result.title = fmt::format("Answers to {} for a judge, {} questions", o.data, questions.size());
  result.settings = {{"model", o.model}, {"data", o.data}, {"max_tokens", o.max_tokens}};
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
      work.part(done++, variants.size() * questions.size())(1);
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
  return result;
}

}  // namespace

Experiment answers_experiment() {
  return experiment("answers", "Answers for AlpacaEval and MT-bench, for a judge to score",
                    "H2O, appendix",
                    "  ballast eval answers -m model.gguf --data question.jsonl -o answers "
                    "--methods 'exact;h2o;local' --rates 0.2",
                    &measure);
}

}  // namespace ballast
