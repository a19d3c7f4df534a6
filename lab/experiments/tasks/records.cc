#include "experiments/tasks/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "ballast/engine/question_form.h"
#include "base/fail.h"
#include "experiments/tasks/draws.h"
#include "experiments/tasks/sample_run.h"

namespace ballast {
namespace {

constexpr std::string_view kHeader =
    "Extract the value corresponding to the specified key in the JSON object below.\n{";
constexpr std::string_view kEnd = "}";
constexpr std::string_view kAnswer = "Corresponding value: \"";
constexpr std::size_t kKinds = 4;

std::string draw(Draws& draws, std::size_t kind) {
  switch (kind) {
    case 0:
      return draws.digits(4 + draws.below(5));
    case 1:
      return draws.hexadecimal(8);
    case 2:
      return draws.rare_word();
    default:
      return draws.rare_key();
  }
}

std::string question_of(const std::string& key, bool chat, bool later) {
  // The chat template puts an empty line before a question that comes alone.
  const std::string asked = fmt::format("Key: \"{}\"", key);
  if (!chat) return fmt::format("\n{}\n{}", asked, kAnswer);
  return later ? asked : "\n\n" + asked;
}

}  // namespace

std::vector<Sample> records_samples(const Tokenizer& tokenizer, std::size_t tokens,
                                    std::size_t questions, std::uint64_t seed, bool chat,
                                    bool later) {
  Draws draws("records", seed);
  const std::size_t key_kind = draws.below(kKinds), value_kind = draws.below(kKinds);
  const auto size = [&](std::string_view text) {
    return tokenizer.encode(text, {.add_special = false, .parse_special = false}).size();
  };
  std::set<std::string> seen;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string text(kHeader);
  std::size_t used = size(kHeader) + size(kEnd), most_asked = 0;
  while (true) {
    std::string key = draw(draws, key_kind), value = draw(draws, value_kind);
    if (!seen.insert(key).second) continue;
    const std::string line = fmt::format("\"{}\": \"{}\",\n", key, value);
    const std::size_t asked =
        std::max(most_asked, size(question_of(key, chat, later)) + size(value) + 1);
    if (used + size(line) + asked > tokens) break;
    used += size(line);
    most_asked = asked;
    text += line;
    fields.emplace_back(std::move(key), std::move(value));
  }
  require(questions > 0, "0 questions; give at least 1");
  if (fields.size() < questions) {
    throw TooShort(fmt::format("{} tokens hold {} fields, fewer than {} questions", tokens,
                               fields.size(), questions),
                   0);
  }
  text += kEnd;
  std::vector<Sample> out;
  std::set<std::size_t> asked;
  while (out.size() < questions) {
    const std::size_t field = draws.below(fields.size());
    if (!asked.insert(field).second) continue;
    Sample sample;
    sample.id = fmt::format("records/{}/{}/{}", tokens, seed, out.size() + 1);
    sample.group = {{"length", tokens}};
    sample.context = text;
    sample.question = question_of(fields[field].first, chat, later);
    sample.expected = fields[field].second;
    sample.max_tokens = size(fields[field].second) + 8;
    sample.stop = {"\n"};
    out.push_back(std::move(sample));
  }
  return out;
}

double score_record(const Sample& sample, const Answered& answer) {
  constexpr std::string_view kAround = " \"\n";
  std::string_view text = answer.text;
  const std::size_t first = text.find_first_not_of(kAround);
  if (first == std::string_view::npos) return 0;
  text = text.substr(first);
  text = text.substr(0, text.find('"'));
  text = text.substr(0, text.find_last_not_of(kAround) + 1);
  return text == sample.expected.get<std::string>() ? 1 : 0;
}

namespace {

struct Records : SampleParameters {
  std::vector<std::size_t> lengths = {1800, 3600};
  std::size_t repeat = 20;
  std::size_t questions = 10;

  void describe(Parameters& p) {
    SampleParameters::describe(p, with_storage_only("replay;kvzip;h2o;snapkv;streaming-llm"),
                               {.caches = {"1/4", "1/8", "1/16"}});
    p.add("--lengths", lengths, "Tokens of the prompts");
    p.add("--repeat", repeat, "Records of each length");
    p.add("--questions", questions,
          "Questions on each record; with --question-later all on one compressed cache");
  }
};

Result measure(Records o, Work& work) {
  require(o.repeat > 0 && o.questions > 0, "--repeat and --questions must be at least 1");
  // What a length says would not be true of a record that lost its middle.
  o.ask.refuse_long = o.ask.longest == 0;
  SampleRun asked(o, work);
  const Tokenizer& tokenizer = asked.model().tokenizer;
  const bool chat = !o.ask.raw && !tokenizer.vocabulary().chat_template.empty();
  // Of the value, which records_samples() makes room for, eight tokens more may be written.
  const std::size_t beside = 8 + (chat ? template_tokens(tokenizer) : 1);
  asked.check_lengths(o.lengths);
  std::vector<Sample> samples;
  for (std::size_t length : o.lengths) {
    for (std::size_t i = 0; i < o.repeat; ++i) {
      const std::uint64_t seed = o.variants.seed * 1000003 + i;
      try {
        for (Sample& sample : records_samples(tokenizer, length - std::min(length, beside),
                                              o.questions, seed, chat, o.ask.question_later)) {
          sample.group = {{"length", length}};
          samples.push_back(std::move(sample));
        }
      } catch (const TooShort&) {
        fail("--lengths {}: too few tokens for {} fields; give more, or fewer --questions", length,
             o.questions);
      }
    }
  }
  return asked.run({.name = "records",
                    .title = "Records: the value of a key",
                    .group = {{"length", "tokens", Unit::count, ""}},
                    .score_title = "right",
                    .overall = true,
                    .settings = {{"repeat", o.repeat}, {"questions", o.questions}},
                    .score_note = "answers that are the value asked for; lengths include the chat "
                                  "template, the question and its answer"},
                   std::move(samples), score_record);
}

}  // namespace

Experiment records_experiment() {
  return experiment("records", "Values of keys, several questions on a record", "",
                    "  ballast eval records -m model.gguf --question-later --methods "
                    "'exact;replay;snapkv' --cache 1/8,1/16 --json=records.json",
                    &measure);
}

}  // namespace ballast
