#include "experiments/tasks/working_drafts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace ballast {
namespace {

/// Functions at most, and questions that every text answers.
constexpr std::size_t kMost = 3500, kQuestions = 4;

}  // namespace

std::string listed(const std::vector<std::string>& items) {
  if (items.size() == 1) return items[0];
  return fmt::format("{} and {}", fmt::join(items.begin(), items.end() - 1, ", "), items.back());
}

std::function<std::string(std::size_t)> hidden_in(const Haystack& haystack,
                                                  std::vector<std::string> hidden,
                                                  std::vector<double> depths, std::uint64_t seed) {
  std::size_t taken = 0;
  for (const std::string& text : hidden) {
    taken += haystack.tokenizer()
                 .encode(" " + text, {.add_special = false, .parse_special = false})
                 .size();  // as hide() counts
  }
  return [&haystack, hidden = std::move(hidden), depths = std::move(depths), seed,
          taken](std::size_t size) { return haystack.hide(taken + size, hidden, depths, seed); };
}

std::function<std::string(std::size_t)> shuffled(std::vector<std::string> items, std::size_t least,
                                                 Draws order, std::string between) {
  return [items = std::move(items), least, order, between = std::move(between)](std::size_t size) {
    std::vector<std::string_view> some(
        items.begin(),
        items.begin() + static_cast<std::ptrdiff_t>(std::min(least + size, items.size())));
    Draws draws = order;
    draws.shuffle(some);
    return fmt::format("{}", fmt::join(some, between));
  };
}

Draft crates_by_day(Source& from, std::size_t steps) {
  const std::vector<std::string> places =
      from.distinct(kQuestions, [&] { return from.draws.key(" "); });
  Draft draft;
  std::vector<std::string> facts;
  std::vector<double> depths;
  for (std::size_t i = 0; i < kQuestions; ++i) {
    std::size_t held = 10 + from.draws.below(30);
    facts.push_back(fmt::format("At first the {} holds {} crates.", places[i], held));
    for (std::size_t day = 1; day <= steps; ++day) {
      const std::size_t more = 2 + from.draws.below(18);
      held += more;
      facts.push_back(fmt::format("On day {} the {} receives {} crates.", day, places[i], more));
    }
    while (depths.size() < facts.size()) depths.push_back(from.depth());
    std::sort(depths.end() - static_cast<std::ptrdiff_t>(steps + 1), depths.end());
    if (i == from.question) draft.outputs = {std::to_string(held)};
  }
  const std::string& asked = places[from.question];
  draft.question = fmt::format(
      "How many crates does the {} hold in the end? Go from day to day, and say how many it holds "
      "after each of its {} days. End with \"Answer:\" and the number.",
      asked, steps);
  draft.prefix = fmt::format(" At first the {} holds", asked);
  draft.head =
      "The following text says how many crates some places hold and receive. A question about it "
      "comes afterwards.\n\n";
  draft.body = hidden_in(from.haystack, std::move(facts), std::move(depths), from.seed);
  return draft;
}

Draft ticket_sum(Source& from, std::size_t steps) {
  const std::size_t kinds = (steps + 1) / 2;
  const std::vector<std::string> places =
      from.distinct(kQuestions * kinds, [&] { return from.draws.key(" "); });
  Draft draft;
  std::vector<std::string> facts;
  for (std::size_t i = 0; i < kQuestions; ++i) {
    const std::string person = fmt::format("{} {}", from.proper(), from.proper());
    std::vector<std::string> bought;
    std::size_t paid = 0;
    for (std::size_t k = 0; k < kinds; ++k) {
      const std::string& place = places[i * kinds + k];
      const std::size_t price = 2 + from.draws.below(11), count = 2 + from.draws.below(4);
      paid += price * count;
      bought.push_back(fmt::format("{}{} to the {}", count, k == 0 ? " tickets" : "", place));
      facts.push_back(fmt::format("A ticket to the {} costs {} coins.", place, price));
    }
    facts.push_back(fmt::format("{} bought {}.", person, listed(bought)));
    if (i != from.question) continue;
    draft.outputs = {std::to_string(paid)};
    draft.question = fmt::format(
        "How many coins did {} pay in all? First say which tickets that were and what each of them "
        "costs, then add up. End with \"Answer:\" and the number.",
        person);
    draft.prefix = fmt::format(" {} bought", person);
  }
  draft.head =
      "The following text says what tickets cost and who bought some. A question about it comes "
      "afterwards.\n\n";
  std::vector<double> depths;
  while (depths.size() < facts.size()) depths.push_back(from.depth());
  draft.body = hidden_in(from.haystack, std::move(facts), std::move(depths), from.seed);
  return draft;
}

Draft function_lookup(Source& from, bool result) {
  const std::vector<std::string> names = from.distinct(kMost, [&] { return from.draws.key("_"); });
  constexpr std::array<std::string_view, 4> kConstants = {"limit", "offset", "margin", "weight"};
  Draft draft;
  std::vector<std::string> functions;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view constant = kConstants[from.draws.below(kConstants.size())];
    const std::size_t value = 100 + from.draws.below(900), factor = 2 + from.draws.below(8),
                      border = 4 + from.draws.below(5), x = 2 + from.draws.below(8);
    const bool branches = from.draws.below(2) == 0;
    functions.push_back(fmt::format(
        "def {}(x):\n    {} = {}\n    {}", names[i], constant, value,
        branches ? fmt::format("return {} if x > {} else {}", constant, border, value / factor)
                 : fmt::format("return {} + {} * x", constant, factor)));
    if (i != from.question) continue;
    if (result) {
      draft.outputs = {std::to_string(!branches    ? value + factor * x
                                      : x > border ? value
                                                   : value / factor)};
      draft.question = fmt::format(
          "What does {}({}) return? Work it out from its code, and end with the number.", names[i],
          x);
      draft.prefix = fmt::format(" {}({}) returns", names[i], x);
    } else {
      draft.outputs = {std::to_string(value)};
      draft.question = fmt::format("What is {} in the function {}? Answer with the number alone.",
                                   constant, names[i]);
      draft.prefix = fmt::format(" {} =", constant);
    }
  }
  draft.head = "The following file has Python functions. A question about it comes afterwards.\n\n";
  draft.body = shuffled(std::move(functions), kQuestions, from.draws, "\n\n");
  return draft;
}

}  // namespace ballast
