#include "serve/grammar/json_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace ballast::serve {
namespace {

using Items = JsonRules::Items;
using icu::UnicodeSet;

Items joined(std::initializer_list<Items> parts) {
  Items out;
  for (const Items& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

/// Characters that need no escape in a string.
UnicodeSet plain() { return UnicodeSet(0x20, 0x10FFFF).remove('"').remove('\\'); }
UnicodeSet digits(char low = '0', char high = '9') { return {low, high}; }

/// The digits of JsonRules::Numbers, in units of the last decimal.
class Decimals {
 public:
  Decimals(GrammarBuilder& builder, std::size_t decimals, std::uint64_t step)
      : b_(builder), decimals_(decimals), step_(step) {
    for (std::uint64_t power = 1; powers_.size() < 19; power *= 10) powers_.push_back(power);
  }

  /// Ways to write one of [low, high], below 10^18.
  void add(std::uint64_t low, std::uint64_t high, std::vector<Items>& out) {
    for (std::size_t count = decimals_ + 1; count <= 18; ++count) {
      // A number before the point does not begin with a zero, unless it is one.
      const std::uint64_t least = count == decimals_ + 1 ? 0 : powers_[count - 1];
      low_ = std::max(low, least);
      high_ = std::min(high, powers_[count] - 1);
      if (low_ > high_) continue;
      if (auto rest = end(count, true, true, 0)) out.push_back(std::move(*rest));
    }
  }

 private:
  /// The last `count` digits, whose value is `rest` but for a multiple of the step. `low`, `high`:
  /// the digits before are those of the bound, so that these must not fall short of or exceed its.
  std::optional<Items> end(std::size_t count, bool low, bool high, std::uint64_t rest) {
    if (!low && !high) return free_end(count, rest);
    return either(ways(count, low, high, rest));
  }
  std::optional<Items> free_end(std::size_t count, std::uint64_t rest) {
    if (rest >= powers_[count]) return std::nullopt;
    const auto [at, fresh] = known_.try_emplace({count, rest});
    if (!fresh) return at->second;
    const auto out = either(ways(count, false, false, rest));
    return known_[{count, rest}] = out;
  }
  std::optional<Items> either(const std::vector<Items>& ways) {
    if (ways.empty()) return std::nullopt;
    return b_.either(ways);
  }
  std::vector<Items> ways(std::size_t count, bool low, bool high, std::uint64_t rest) {
    std::vector<Items> out;
    const std::uint64_t unit = count == 0 ? 1 : powers_[count - 1];
    // Zeros at the end of a fraction may be left out.
    const bool zeros = rest == 0 && (!low || low_ % powers_[count] == 0);
    if (count <= decimals_ && zeros) out.emplace_back();
    if (count == 0) return out;
    const std::uint64_t first = low ? low_ / unit % 10 : 0, last = high ? high_ / unit % 10 : 9;
    for (std::uint64_t digit = first; digit <= last; ++digit) {
      const bool at_low = low && digit == first, at_high = high && digit == last;
      std::uint64_t to = digit;  // digits after which the same may follow
      if (step_ == 1 && !at_low && !at_high) to = high ? last - 1 : last;
      const auto more = end(count - 1, at_low, at_high, without(rest, digit, unit));
      if (more) {
        const Items point = b_.text(count == decimals_ ? "." : "");
        out.push_back(joined(
            {point, b_.one_of(digits(static_cast<char>('0' + digit), static_cast<char>('0' + to))),
             *more}));
      }
      digit = to;
    }
    return out;
  }
  std::uint64_t without(std::uint64_t rest, std::uint64_t digit, std::uint64_t unit) const {
    return (rest + step_ - digit * unit % step_) % step_;  // below 10^18 each
  }

  GrammarBuilder& b_;
  std::size_t decimals_;
  std::uint64_t step_;
  std::uint64_t low_ = 0, high_ = 0;
  std::vector<std::uint64_t> powers_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::optional<Items>> known_;
};

/// A number of units of a last decimal.
std::string decimal_text(std::int64_t units, std::size_t decimals) {
  std::string out = fmt::format("{:0{}}", std::abs(units), decimals + 1);
  if (decimals > 0) {
    out.insert(out.size() - decimals, ".");
    out.erase(out.find_last_not_of('0') + 1);
    if (out.ends_with('.')) out.pop_back();
  }
  return units < 0 ? "-" + out : out;
}

}  // namespace

JsonRules::JsonRules(GrammarBuilder& builder) : b_(builder) {
  const auto set = [](std::string_view characters) {
    UnicodeSet out;
    for (const char c : characters) out.add(c);
    return out;
  };
  space_ = b_.repeat(b_.one_of(set(" \t\r\n")), 0, 8);
  const Items hex = b_.one_of(set("0123456789abcdefABCDEF"));
  // D800 to DFFF are halves of pairs.
  const Items code =
      b_.either({joined({b_.one_of(set("0123456789abcefABCEF")), hex, hex, hex}),
                 joined({b_.one_of(set("dD")), b_.one_of(digits('0', '7')), hex, hex})});
  string_character_ = b_.either(
      {b_.one_of(plain()), joined({b_.text("\\"), b_.either({b_.one_of(set("\"\\/bfnrt")),
                                                             joined({b_.text("u"), code})})})});
  any_string = string(0, GrammarBuilder::kNoLimit);
  string_end_ = joined({b_.repeat(string_character_, 0, GrammarBuilder::kNoLimit), b_.text("\"")});

  const Items digit = b_.one_of(digits()), minus = b_.repeat(b_.text("-"), 0, 1);
  const auto whole = [&](std::uint32_t most) {
    return joined({minus, b_.either({b_.text("0"), joined({b_.one_of(digits('1')),
                                                           b_.repeat(digit, 0, most - 1)})})});
  };
  integer = whole(18);
  const Items fraction = b_.repeat(joined({b_.text("."), b_.repeat(digit, 1, 33)}), 0, 1);
  const Items exponent = b_.repeat(
      joined({b_.one_of(set("eE")), b_.repeat(b_.one_of(set("+-")), 0, 1), b_.repeat(digit, 1, 2)}),
      0, 1);
  number = joined({whole(33), fraction, exponent});
  boolean = b_.either({b_.text("true"), b_.text("false")});
  null = b_.text("null");

  const GrammarBuilder::Rule every = b_.declare();
  any = b_.rule(every);
  any_object = object({}, Member{any_string, any});
  any_array = array({}, any, 0, GrammarBuilder::kNoLimit);
  b_.define(every, {any_object, any_array, any_string, number, boolean, null});
}

/// One item, behind which the next one is still to come.
Items JsonRules::as_rule(const std::vector<Items>& ways) {
  const GrammarBuilder::Rule rule = b_.declare();
  b_.define(rule, ways);
  return b_.rule(rule);
}

Items JsonRules::quoted(const Items& characters) const {
  return joined({b_.text("\""), characters, b_.text("\"")});
}

Items JsonRules::character(const UnicodeSet& set) {
  std::string key;
  for (std::int32_t i = 0; i < set.getRangeCount(); ++i) {
    key += fmt::format("{},{};", set.getRangeStart(i), set.getRangeEnd(i));
  }
  if (const auto at = characters_.find(key); at != characters_.end()) return at->second;
  std::vector<Items> ways;
  const UnicodeSet without = UnicodeSet(set).retainAll(plain());
  if (!without.isEmpty()) ways.push_back(b_.one_of(without));
  for (const UChar32 c : {'"', '\\'}) {
    if (set.contains(c)) ways.push_back(b_.text(std::string{'\\', static_cast<char>(c)}));
  }
  for (UChar32 c = 0; c < 0x20; ++c) {
    if (!set.contains(c)) continue;
    const std::string_view named = "\b\t\n\f\r", names = "btnfr";
    const std::size_t at = named.find(static_cast<char>(c));
    ways.push_back(
        b_.text(at == named.npos ? fmt::format("\\u{:04x}", c) : fmt::format("\\{}", names[at])));
  }
  return characters_[key] = b_.either(ways);
}

Items JsonRules::string(std::uint32_t least, std::uint32_t most) {
  return quoted(b_.repeat(string_character_, least, most));
}

Items JsonRules::other_string(std::vector<std::u32string> texts) {
  std::ranges::sort(texts);
  return joined({b_.text("\""), other_from(texts, 0, texts.size(), 0)});
}

/// The end of a string that has begun with `at` characters like texts [first, last). One that goes
/// on with so many characters like a text is not made at all.
Items JsonRules::other_from(const std::vector<std::u32string>& texts, std::size_t first,
                            std::size_t last, std::size_t at) {
  constexpr std::size_t kMost = 64;
  if (at == kMost) return b_.either({});
  std::vector<Items> ways;
  UnicodeSet free = plain();
  if (texts[first].size() == at) {
    ++first;
  } else {
    ways.push_back(b_.text("\""));
  }
  while (first < last) {
    const auto c = static_cast<UChar32>(texts[first][at]);
    std::size_t next = first + 1;
    while (next < last && static_cast<UChar32>(texts[next][at]) == c) ++next;
    // What would need an escape cannot follow.
    if (free.contains(c)) {
      ways.push_back(joined({b_.one_of({c, c}), other_from(texts, first, next, at + 1)}));
      free.remove(c);
    }
    first = next;
  }
  ways.push_back(joined({b_.one_of(free), string_end_}));
  return b_.either(ways);
}

Items JsonRules::object(const std::vector<Member>& members, const std::optional<Member>& further) {
  const auto pair = [&](const Member& member) {
    return joined({member.key, space_, b_.text(":"), space_, member.value, space_});
  };
  const Items comma = joined({b_.text(","), space_});
  // From the last member to the first: what may follow where nothing and where something is before.
  Items begin, rest;
  if (further) {
    const Items one = b_.either({pair(*further)});
    rest = b_.repeat(joined({comma, one}), 0, GrammarBuilder::kNoLimit);
    begin = b_.repeat(joined({one, rest}), 0, 1);
  }
  for (std::size_t i = members.size(); i-- > 0;) {
    const Items one = as_rule({pair(members[i])});
    std::vector<Items> first{joined({one, rest})}, later{joined({comma, one, rest})};
    if (!members[i].required) {
      first.push_back(std::move(begin));
      later.push_back(std::move(rest));
    }
    begin = as_rule(first);
    if (i > 0) rest = as_rule(later);
  }
  return joined({b_.text("{"), space_, as_rule({begin}), b_.closing('}')});
}

Items JsonRules::array(const std::vector<Items>& first, const Items& rest, std::uint32_t least,
                       std::uint32_t most) {
  const Items comma = joined({b_.text(","), space_});
  const std::uint32_t places = std::min(most, static_cast<std::uint32_t>(first.size()));
  const auto left = [&](std::uint32_t count) {  // of a bound after so many items
    return least > count ? least - count : 0;
  };
  const std::uint32_t further =
      most == GrammarBuilder::kNoLimit ? most : most - places;  // of `rest`
  Items end;
  if (further > 0 && places > 0) {
    end = b_.repeat(joined({comma, rest, space_}), left(places), further);
  } else if (further > 0) {
    const std::uint32_t more = further == GrammarBuilder::kNoLimit ? further : further - 1;
    end = joined({rest, space_, b_.repeat(joined({comma, rest, space_}), left(1), more)});
    end = b_.repeat(end, least > 0 ? 1 : 0, 1);
  }
  for (std::uint32_t i = places; i-- > 0;) {
    end = joined({i > 0 ? comma : Items(), first[i], space_, end});
    end = b_.repeat(end, left(i) > 0 ? 1 : 0, 1);
  }
  return joined({b_.text("["), space_, as_rule({end}), b_.closing(']')});
}

Items JsonRules::numbers(const Numbers& n) {
  const auto positive = [](std::int64_t x) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, x));
  };
  std::uint64_t step = n.step;
  while (step % 10 == 0) step /= 10;
  std::vector<Items> ways;
  if (step > 1000) {
    const auto size = static_cast<std::int64_t>(n.step);
    const std::int64_t nearest = n.low > 0    ? (n.low + size - 1) / size
                                 : n.high < 0 ? n.high / size
                                              : 0;
    std::vector<std::string> texts;
    for (std::int64_t i = 0; i < 1000; ++i) {
      // 0, 1, -1, 2, -2, …
      const std::int64_t by = (i + 1) / 2 * (i % 2 == 0 ? -1 : 1);
      if (std::abs(nearest + by) > 999'999'999'999'999'999 / size) continue;
      const std::int64_t value = (nearest + by) * size;
      if (value >= n.low && value <= n.high) texts.push_back(decimal_text(value, n.decimals));
    }
    std::ranges::sort(texts);
    return b_.either_text(texts);
  }
  Decimals decimals(b_, n.decimals, n.step);
  if (n.high >= 0) decimals.add(positive(n.low), positive(n.high), ways);
  if (n.low < 0) {
    std::vector<Items> negative;
    decimals.add(std::max<std::uint64_t>(1, positive(-n.high)), positive(-n.low), negative);
    for (const Items& one : negative) ways.push_back(joined({b_.text("-"), one}));
  }
  return b_.either(ways);
}

}  // namespace ballast::serve
