#include "experiments/tasks/ruler_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/nearest.h"
#include "experiments/data/benchmark_wording.h"
#include "experiments/tasks/working_drafts.h"

namespace ballast {
namespace {

struct NeedleTask {
  enum class Hay : std::uint8_t { noise, prose, needles } hay;
  bool uuid_keys, uuid_values;
  std::size_t keys;    ///< hidden beside a haystack of noise or prose
  std::size_t values;  ///< of the first key
  std::size_t asked;   ///< keys
};

Draft needles(Source& from, const NeedleTask& task) {
  const std::string kind = task.uuid_values ? "code" : "number";
  // A haystack of needles takes as many more as fit. Words give 4,096 keys.
  static constexpr std::size_t kMostNeedles = 3500, kLeastNeedles = 4;
  const std::size_t keys = task.hay == NeedleTask::Hay::needles ? kMostNeedles : task.keys;
  const std::vector<std::string> names =
      from.distinct(keys, [&] { return task.uuid_keys ? from.uuid() : from.draws.key("-"); });
  const std::size_t first = from.question * task.asked;
  Draft draft;
  std::vector<std::string> hidden;
  std::vector<double> depths;
  for (std::size_t k = 0; k < keys; ++k) {
    for (std::size_t v = 0; v < (k == 0 ? task.values : 1); ++v) {
      const std::string value = task.uuid_values ? from.uuid() : from.draws.digits(7);
      hidden.push_back(fmt::format("The secret {} of {} is {}.", kind, names[k], value));
      depths.push_back(from.depth());
      if (k >= first && k < first + task.asked) draft.outputs.push_back(value);
    }
  }
  const bool several = draft.outputs.size() > 1;
  const std::string asked =
      fmt::format("{}secret {}{} of {}", task.values > 1 ? fmt::format("{} ", task.values) : "",
                  kind, several ? "s" : "", listed({&names[first], &names[first] + task.asked}));
  draft.head = fmt::format(
      "The following text holds secret {}s. Remember them: a question about them comes "
      "afterwards.\n\n",
      kind);
  draft.question = fmt::format("What {} the {} in the text above?", several ? "are" : "is", asked);
  draft.prefix = fmt::format(" The {} {}", asked, several ? "are" : "is");
  if (task.hay == NeedleTask::Hay::needles) {
    draft.body = shuffled(hidden, kLeastNeedles, from.draws, "\n");
  } else {
    const Haystack& hay = task.hay == NeedleTask::Hay::noise ? from.noise : from.haystack;
    draft.body = hidden_in(hay, hidden, depths, from.seed);
  }
  return draft;
}

Draft variables(Source& from) {
  constexpr std::size_t kHops = 4;
  Draft draft;
  draft.outputs = from.distinct(kHops + 1, [&] { return from.name(5); });
  const std::string value = from.draws.digits(5);
  std::vector<std::string> hidden = {fmt::format("VAR {} = {}.", draft.outputs[0], value)};
  for (std::size_t i = 1; i <= kHops; ++i) {
    hidden.push_back(fmt::format("VAR {} = VAR {}.", draft.outputs[i], draft.outputs[i - 1]));
  }
  std::vector<double> depths;
  while (depths.size() < hidden.size()) depths.push_back(from.depth());
  std::ranges::sort(depths);
  draft.head =
      "The following text sets variables, some to a number and some to another variable. Follow "
      "who gets which number. For example, VAR AB = 17. VAR CD = VAR AB. sets AB and CD to 17.\n\n";
  draft.question = fmt::format(
      "Which {} variables are set to {} in the text above, directly or "
      "through another variable?",
      kHops + 1, value);
  draft.prefix = fmt::format(" The {} variables that are set to {} are", kHops + 1, value);
  draft.body = hidden_in(from.noise, hidden, depths, from.seed);
  return draft;
}

Draft common_words(Source& from) {
  static constexpr std::size_t kCommon = 10, kOften = 30, kSeldom = 3;
  std::vector<std::string> words = from.haystack.words();
  require(words.size() > 5 * kCommon,
          "the haystack has {} words of 4 to 12 letters; cwe needs more than {}", words.size(),
          5 * kCommon);
  from.draws.shuffle(words);
  Draft draft;
  draft.outputs.assign(words.begin(), words.begin() + kCommon);
  draft.head = fmt::format(
      "The following numbered list repeats words. Remember the {} that stand in it most often.\n\n",
      kCommon);
  draft.question = fmt::format("Which {} words stand most often in the list above?", kCommon);
  draft.prefix = fmt::format(" The {} most frequent words are:", kCommon);
  draft.body = [words, draws = from.draws](std::size_t size) {
    std::vector<const std::string*> list;
    for (std::size_t w = 0; w < std::min(kCommon + size, words.size()); ++w) {
      list.insert(list.end(), w < kCommon ? kOften : kSeldom, &words[w]);
    }
    Draws order = draws;
    order.shuffle(list);
    std::string out;
    for (std::size_t i = 0; i < list.size(); ++i) {
      out += fmt::format("{}{}. {}", i == 0 ? "" : " ", i + 1, *list[i]);
    }
    return out;
  };
  return draft;
}

Draft frequent_words(Source& from) {
  constexpr std::size_t kWords = 200, kAsked = 3;
  const std::vector<std::string> words =
      from.distinct(kWords, [&] { return from.draws.rare_word(); });
  // Word r is drawn with a frequency of 1 / r².
  std::vector<double> up_to(kWords);
  double sum = 0;
  for (std::size_t r = 0; r < kWords; ++r) {
    sum += 1 / std::pow(static_cast<double>(r + 1), 2);
    up_to[r] = sum;
  }
  Draft draft;
  draft.outputs.assign(words.begin(), words.begin() + kAsked);
  draft.head =
      "The following text is in code words. Count how often each of them stands in it.\n\n";
  draft.question = fmt::format("Which {} code words stand most often in the text above?", kAsked);
  draft.prefix = fmt::format(" The {} most frequent code words are:", kAsked);
  draft.body = [words, up_to, draws = from.draws](std::size_t size) {
    Draws next = draws;
    std::string out;
    for (std::size_t i = 0; i < size; ++i) {
      const double at = next.unit() * up_to.back();
      const auto word = std::ranges::lower_bound(up_to, at) - up_to.begin();
      out += (i == 0 ? "" : " ") + words[static_cast<std::size_t>(word)];
    }
    return out;
  };
  return draft;
}

/// Documents of the haystack's sentences, with a fact in each. `hops` 1: what someone did; 2: where
/// someone who did it was born, which another document says.
Draft documents(Source& from, std::size_t hops) {
  constexpr std::array<std::string_view, 6> kDeeds = {
      "keeps the lighthouse of",     "designed the bridge of", "founded the museum of",
      "won the chess tournament of", "owns the bakery of",     "teaches at the school of"};
  static constexpr std::size_t kMostFacts = 2000, kLeastFacts = 4, kProse = 60;
  const std::vector<std::string> people =
      from.distinct(kMostFacts, [&] { return fmt::format("{} {}", from.proper(), from.proper()); });
  const std::vector<std::string> places =
      from.distinct(2 * kMostFacts, [&] { return from.proper(); });
  std::vector<std::string> deeds(kMostFacts);
  for (std::size_t i = 0; i < kMostFacts; ++i) {
    deeds[i] = fmt::format("{} {}", kDeeds[from.draws.below(kDeeds.size())], places[i]);
  }
  Draft draft;
  const std::size_t asked = from.question;
  draft.outputs = {hops == 1 ? people[asked] : places[kMostFacts + asked]};
  draft.head = "Answer a question from the following documents.\n\n";
  draft.question = hops == 1 ? fmt::format("Who {}? Answer with the name alone.", deeds[asked])
                             : fmt::format(
                                   "In which town was the person born who {}? Answer with "
                                   "the name of the town alone.",
                                   deeds[asked]);
  draft.prefix = " Answer:";
  draft.body = [&hay = from.haystack, people, places, deeds, hops, seed = from.seed,
                draws = from.draws](std::size_t size) {
    const std::size_t facts = std::min(kLeastFacts + size, kMostFacts);
    std::vector<std::string> sentences;
    for (std::size_t i = 0; i < facts; ++i) {
      sentences.push_back(fmt::format("{} {}.", people[i], deeds[i]));
      if (hops == 2) {
        sentences.push_back(fmt::format("{} was born in {}.", people[i], places[kMostFacts + i]));
      }
    }
    Draws order = draws;
    order.shuffle(sentences);
    std::string out;
    for (std::size_t i = 0; i < sentences.size(); ++i) {
      out +=
          fmt::format("{}Document {}:\n{}", i == 0 ? "" : "\n\n", i + 1,
                      hidden_in(hay, {sentences[i]}, {order.unit()}, seed * 1000003 + i)(kProse));
    }
    return out;
  };
  return draft;
}

using Hay = NeedleTask::Hay;

/// As many questions as every text has needles or facts to ask about.
constexpr std::size_t kQuestions = 4;

struct Task {
  std::string_view name;
  Draft (*make)(Source&);
  std::size_t questions = 1;
};
template <auto draft, auto argument>
Draft made(Source& from) {
  return draft(from, argument);
}
constexpr std::array kTasks = std::to_array<Task>({
    {"niah_single_1", made<needles, NeedleTask{Hay::noise, false, false, 1, 1, 1}>},
    {"niah_single_2", made<needles, NeedleTask{Hay::prose, false, false, 1, 1, 1}>},
    {"niah_single_3", made<needles, NeedleTask{Hay::prose, false, true, 1, 1, 1}>},
    {"niah_multikey_1", made<needles, NeedleTask{Hay::prose, false, false, 4, 1, 1}>, kQuestions},
    {"niah_multikey_2", made<needles, NeedleTask{Hay::needles, false, false, 0, 1, 1}>, kQuestions},
    {"niah_multikey_3", made<needles, NeedleTask{Hay::needles, true, true, 0, 1, 1}>, kQuestions},
    {"niah_multivalue", made<needles, NeedleTask{Hay::prose, false, false, 1, 4, 1}>},
    {"niah_multiquery", made<needles, NeedleTask{Hay::prose, false, false, 4, 1, 4}>},
    {"vt", variables},
    {"cwe", common_words},
    {"fwe", frequent_words},
    {"qa_1", made<documents, 1>, kQuestions},
    {"qa_2", made<documents, 2>, kQuestions},
    // Not RULER's, from here on.
    {"arithmetic_3", made<crates_by_day, 3>, kQuestions},
    {"arithmetic_5", made<crates_by_day, 5>, kQuestions},
    {"arithmetic_7", made<crates_by_day, 7>, kQuestions},
    {"problems_3", made<ticket_sum, 3>, kQuestions},
    {"problems_5", made<ticket_sum, 5>, kQuestions},
    {"problems_7", made<ticket_sum, 7>, kQuestions},
    {"code_constant", made<function_lookup, false>, kQuestions},
    {"code_result", made<function_lookup, true>, kQuestions},
});
constexpr std::size_t kRulerTasks = 13;
constexpr auto kNames = [] {
  std::array<std::string_view, kTasks.size()> names;
  std::ranges::transform(kTasks, names.begin(), &Task::name);
  return names;
}();

/// RULER allows an answer as many tokens.
std::size_t answer_tokens(std::string_view task) {
  return std::ranges::find_if(ruler_tasks(),
                              [&](const RulerTask& known) { return task.starts_with(known.name); })
      ->max_tokens;
}

}  // namespace

std::span<const std::string_view> made_task_names() { return kNames; }

std::span<const std::string_view> ruler_task_names() {
  return made_task_names().first(kRulerTasks);
}

std::vector<Json> ruler_records(const Haystack& haystack, std::string_view task, std::size_t tokens,
                                std::size_t questions, std::uint64_t seed) {
  const auto found = std::ranges::find(kTasks, task, &Task::name);
  require(found != kTasks.end(), "there is no task '{}'{}; there are {}", task,
          did_you_mean(task, kNames), fmt::join(kNames, ", "));
  const Haystack noise(haystack.tokenizer());
  Draws draws(task, seed);
  // Tasks stand in other places of the text.
  const std::uint64_t place = draws.below(std::size_t{1} << 48);
  std::vector<Draft> drafts;
  for (std::size_t q = 0; q < std::clamp<std::size_t>(questions, 1, found->questions); ++q) {
    Source source{haystack, noise, place, q, draws};
    drafts.push_back(found->make(source));
  }
  const auto input = [](const Draft& draft, const std::string& body) {
    return draft.head + body + "\n\n" + draft.question;
  };
  const auto length = [&](const Draft& draft, const std::string& body) {
    const std::string text = input(draft, body) + draft.prefix;
    return haystack.tokenizer().encode(text, {.parse_special = false}).size() + answer_tokens(task);
  };
  const auto longest = [&](std::size_t size) {
    const std::string body = drafts[0].body(size);
    std::size_t most = 0;
    for (const Draft& draft : drafts) most = std::max(most, length(draft, body));
    return most;
  };
  if (const std::size_t least = longest(0); least > tokens) {
    throw TooShort(fmt::format("{} tokens are too few for {}, which needs {}", tokens, task, least),
                   least);
  }
  std::size_t size = 0, high = tokens;
  while (size < high) {
    const std::size_t middle = (size + high + 1) / 2;
    longest(middle) <= tokens ? size = middle : high = middle - 1;
  }
  const std::string body = drafts[0].body(size);
  std::vector<Json> out;
  for (const Draft& draft : drafts) {
    out.push_back({{"index", seed},
                   {"input", input(draft, body)},
                   {"answer_prefix", draft.prefix},
                   {"outputs", draft.outputs},
                   {"length", length(draft, body)}});
  }
  return out;
}

}  // namespace ballast
