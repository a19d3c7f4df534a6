// What prompts of made-up tasks are drawn from, and those whose answers must be worked out: sums of
// many steps, functions in code, tool calls.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "experiments/tasks/draws.h"
#include "experiments/tasks/needles.h"

namespace ballast {

/// A prompt but for its length.
struct Draft {
  std::string head;
  /// The text asked about. `size`: tokens of a haystack, documents or words beside what must be.
  std::function<std::string(std::size_t size)> body;
  std::string question;  ///< one line
  std::string prefix;
  std::vector<std::string> outputs;
};

/// What tasks draw from.
struct Source {
  const Haystack& haystack;
  const Haystack& noise;
  std::uint64_t seed;
  std::size_t question;  ///< which one, of those about the text
  Draws draws;

  double depth() { return draws.unit(); }
  std::string uuid() {
    const std::string hex = draws.hexadecimal(32);
    return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                       hex.substr(16, 4), hex.substr(20));
  }
  std::string name(std::size_t letters) {
    std::string out;
    while (out.size() < letters) out += static_cast<char>('A' + draws.below(26));
    return out;
  }
  /// A made-up name with a capital letter.
  std::string proper() {
    std::string word = draws.rare_word();
    word[0] = static_cast<char>(word[0] - 'a' + 'A');
    return word;
  }
  /// `make()`, another one each time.
  template <typename Make>
  std::vector<std::string> distinct(std::size_t count, const Make& make) {
    std::set<std::string> seen;
    std::vector<std::string> out;
    while (out.size() < count) {
      std::string one = make();
      if (seen.insert(one).second) out.push_back(std::move(one));
    }
    return out;
  }
};

/// "a, b and c"
std::string listed(const std::vector<std::string>& items);
/// Sentences of a haystack with `hidden` among them: so many tokens of the haystack as `size` says.
std::function<std::string(std::size_t)> hidden_in(const Haystack& haystack,
                                                  std::vector<std::string> hidden,
                                                  std::vector<double> depths, std::uint64_t seed);
/// The first `least` + size items in an order that `order` gives, with `between` between them.
std::function<std::string(std::size_t)> shuffled(std::vector<std::string> items, std::size_t least,
                                                 Draws order, std::string between);

// Each text has at least four questions to ask. The first two hide all facts in the haystack.

/// How many crates there are after `steps` days that add some.
Draft crates_by_day(Source& from, std::size_t steps);
/// What someone paid for tickets of several prices: `steps`, an odd number, products and sums.
Draft ticket_sum(Source& from, std::size_t steps);
/// What a function returns, or the constant in it.
Draft function_lookup(Source& from, bool result);

}  // namespace ballast
