#include "serve/grammar/grammar_builder.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "text/tokenizer/utf8.h"

namespace ballast::serve {
namespace {

using Item = Grammar::Item;
using Items = GrammarBuilder::Items;

constexpr std::size_t kMostItems = 4'000'000;
constexpr std::uint16_t kNever = 60'000;  ///< a depth that no text has

std::string utf8(std::uint32_t code) {
  std::string out;
  append_utf8(out, code);
  return out;
}

/// Calls use(first, last) with the UTF-8 of ranges that make up [low, high], such that each byte of
/// a character lies between those of the two, independently of the others.
template <typename Use>
void split(std::uint32_t low, std::uint32_t high, const Use& use) {
  for (const std::uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {  // of one length
    if (low <= last && high > last) {
      split(low, last, use);
      return split(last + 1, high, use);
    }
  }
  if (low <= 0xDFFF && high >= 0xD800) {  // halves of pairs are no characters
    if (low < 0xD800) split(low, 0xD7FF, use);
    if (high > 0xDFFF) split(0xE000, high, use);
    return;
  }
  const std::size_t length = utf8(low).size();
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint32_t rest = (1u << 6 * i) - 1;
    if ((low & ~rest) == (high & ~rest)) continue;
    if ((low & rest) != 0) {
      split(low, low | rest, use);
      return split((low | rest) + 1, high, use);
    }
    if ((high & rest) != rest) {
      split(low, (high & ~rest) - 1, use);
      return split(high & ~rest, high, use);
    }
  }
  use(utf8(low), utf8(high));
}

}  // namespace

Item GrammarBuilder::bytes(char low, char high) const {
  return {.kind = Item::Kind::bytes,
          .low = static_cast<std::uint8_t>(low),
          .high = static_cast<std::uint8_t>(high),
          .weight = weight_};
}

Items GrammarBuilder::text(std::string_view text) const {
  Items out;
  for (const char c : text) out.push_back(bytes(c, c));
  return out;
}

Items GrammarBuilder::closing(char bracket) const {
  Items out{bytes(bracket, bracket)};
  ++out[0].weight;
  return out;
}

Items GrammarBuilder::one_of(const icu::UnicodeSet& set) {
  std::vector<Items> ways;
  std::string key;
  for (std::int32_t i = 0; i < set.getRangeCount(); ++i) {
    split(static_cast<std::uint32_t>(set.getRangeStart(i)),
          static_cast<std::uint32_t>(set.getRangeEnd(i)),
          [&](const std::string& low, const std::string& high) {
            Items& way = ways.emplace_back();
            for (std::size_t k = 0; k < low.size(); ++k) way.push_back(bytes(low[k], high[k]));
            key += low + high;
          });
  }
  if (ways.size() == 1) return ways[0];
  const auto [at, fresh] = sets_.try_emplace(key, 0);
  if (fresh) {
    at->second = declare();
    define(at->second, ways);
  }
  return rule(at->second);
}

Items GrammarBuilder::either(const std::vector<Items>& ways) {
  if (ways.size() == 1) return ways[0];
  const Rule rule = declare();
  define(rule, ways);
  return this->rule(rule);
}

Items GrammarBuilder::either_text(const std::vector<std::string>& texts) {
  return texts_from(texts, 0, texts.size(), 0);
}

/// The ends of texts [first, last), which agree in their first `at` bytes.
Items GrammarBuilder::texts_from(const std::vector<std::string>& texts, std::size_t first,
                                 std::size_t last, std::size_t at) {
  const std::string_view low = texts[first], high = texts[last - 1];
  std::size_t common = at;
  while (common < std::min(low.size(), high.size()) && low[common] == high[common]) ++common;
  Items out = text(low.substr(at, common - at));
  if (first + 1 == last) return out;
  std::vector<Items> ways;
  if (low.size() == common) {
    ways.emplace_back();
    ++first;
  }
  while (first < last) {
    std::size_t next = first + 1;
    while (next < last && texts[next][common] == texts[first][common]) ++next;
    ways.push_back(texts_from(texts, first, next, common));
    first = next;
  }
  const Items more = either(ways);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

Items GrammarBuilder::repeat(const Items& one, std::uint32_t least, std::uint32_t most) {
  require(least <= most, "a repetition ends before it begins");
  if (one.empty() || most == 0) return {};
  if (least == 1 && most == 1) return one;
  Item out{.kind = Item::Kind::repeat, .weight = weight_};
  if (one.size() == 1 && one[0].kind == Item::Kind::rule) {
    out.rule = one[0].rule;
  } else {
    out.rule = declare();
    define(out.rule, {one});
  }
  out.count = static_cast<std::uint32_t>(g_.counts.size());
  g_.counts.push_back({least, most});
  return {out};
}

GrammarBuilder::Rule GrammarBuilder::declare() {
  g_.rules.emplace_back();
  return static_cast<Rule>(g_.rules.size() - 1);
}

void GrammarBuilder::define(Rule rule, const std::vector<Items>& ways) {
  g_.rules[rule] = {.first = static_cast<std::uint32_t>(g_.alternatives.size()),
                    .count = static_cast<std::uint32_t>(ways.size())};
  for (const Items& way : ways) {
    require(g_.items.size() + way.size() < kMostItems, "grammar: more than {} parts", kMostItems);
    g_.alternatives.push_back(static_cast<std::uint32_t>(g_.items.size()));
    g_.items.insert(g_.items.end(), way.begin(), way.end());
    g_.items.emplace_back();
  }
}

Items GrammarBuilder::rule(Rule rule) const {
  return {{.kind = Item::Kind::rule, .weight = weight_, .rule = rule}};
}

std::shared_ptr<const Grammar> GrammarBuilder::finish(const Items& root,
                                                      const std::map<Rule, std::string>& names) {
  g_.root = declare();
  define(g_.root, {root});
  g_.deepest = deepest_;
  const std::vector<bool> empty = find_empty();
  // So many of what may be empty are as many as wanted, up to the most.
  for (const Item& item : g_.items) {
    if (item.kind == Item::Kind::repeat && empty[item.rule]) g_.counts[item.count].least = 0;
  }
  refuse_left_recursion(empty, names);
  find_depths();
  require(g_.rules[g_.root].depth < kNever, "no text ends");
  require(g_.rules[g_.root].depth <= deepest_, "all texts nest deeper than {}", deepest_);
  find_classes();
  return std::make_shared<const Grammar>(std::move(g_));
}

std::vector<bool> GrammarBuilder::find_empty() const {
  // From each rule that is empty to the alternatives that wait for it at this place.
  const std::size_t count = g_.rules.size();
  std::vector<bool> out(count);
  std::vector<std::vector<std::pair<Rule, std::uint32_t>>> waiting(count);
  std::vector<std::pair<Rule, std::uint32_t>> open;
  for (Rule r = 0; r < count; ++r) {
    for (std::uint32_t i = 0; i < g_.rules[r].count; ++i) {
      open.emplace_back(r, g_.alternatives[g_.rules[r].first + i]);
    }
  }
  while (!open.empty()) {
    auto [r, at] = open.back();
    open.pop_back();
    while (true) {
      const Item& item = g_.items[at];
      const bool may_miss =
          item.kind == Item::Kind::repeat && (g_.counts[item.count].least == 0 || out[item.rule]);
      if (!may_miss && !(item.kind == Item::Kind::rule && out[item.rule])) break;
      ++at;
    }
    const Item& item = g_.items[at];
    if (item.kind == Item::Kind::rule || item.kind == Item::Kind::repeat) {
      waiting[item.rule].emplace_back(r, at);
    } else if (item.kind == Item::Kind::end && !out[r]) {
      out[r] = true;
      open.insert(open.end(), waiting[r].begin(), waiting[r].end());
      waiting[r].clear();
    }
  }
  return out;
}

/// A rule that begins with itself would be expanded for ever.
void GrammarBuilder::refuse_left_recursion(const std::vector<bool>& empty,
                                           const std::map<Rule, std::string>& names) const {
  const std::size_t count = g_.rules.size();
  enum : std::uint8_t { unseen, open, closed };
  std::vector<std::uint8_t> seen(count, unseen);
  std::vector<std::pair<Rule, std::vector<Rule>>> path;
  const auto begins_with = [&](Rule r) {
    std::vector<Rule> out;
    for (std::uint32_t i = 0; i < g_.rules[r].count; ++i) {
      for (std::uint32_t at = g_.alternatives[g_.rules[r].first + i];; ++at) {
        const Item& item = g_.items[at];
        if (item.kind == Item::Kind::end || item.kind == Item::Kind::bytes) break;
        out.push_back(item.rule);
        const bool may_miss = item.kind == Item::Kind::repeat && g_.counts[item.count].least == 0;
        if (!may_miss && !empty[item.rule]) break;
      }
    }
    return out;
  };
  for (Rule root = 0; root < count; ++root) {
    if (seen[root] != unseen) continue;
    seen[root] = open;
    path.emplace_back(root, begins_with(root));
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next.empty()) {
        seen[rule] = closed;
        path.pop_back();
        continue;
      }
      const Rule to = next.back();
      next.pop_back();
      if (seen[to] == open) {
        std::string name = "a rule";
        for (const auto& [on, rest] : path) {
          if (names.contains(on)) name = printable(names.at(on));
        }
        fail("grammar: {} begins with itself; let it begin with something else", name);
      }
      if (seen[to] == unseen) {
        seen[to] = open;
        path.emplace_back(to, begins_with(to));
      }
    }
  }
}

/// The depth of an alternative is that of its deepest part; that of a rule is that of its flattest
/// alternative.
void GrammarBuilder::find_depths() {
  std::vector<Rule> rule_of(g_.alternatives.size());
  std::vector<std::vector<std::uint32_t>> users(g_.rules.size());  // alternatives
  for (Rule r = 0; r < g_.rules.size(); ++r) {
    g_.rules[r].depth = kNever;
    for (std::uint32_t i = g_.rules[r].first; i < g_.rules[r].first + g_.rules[r].count; ++i) {
      rule_of[i] = r;
      for (std::uint32_t at = g_.alternatives[i]; g_.items[at].kind != Item::Kind::end; ++at) {
        const Item& item = g_.items[at];
        const bool must = item.kind == Item::Kind::rule ||
                          (item.kind == Item::Kind::repeat && g_.counts[item.count].least > 0);
        if (must) users[item.rule].push_back(i);
      }
    }
  }
  g_.depths.assign(g_.alternatives.size(), kNever);
  const auto depth_of = [&](std::uint32_t alternative) {
    std::uint32_t out = 0;
    for (std::uint32_t at = g_.alternatives[alternative]; g_.items[at].kind != Item::Kind::end;
         ++at) {
      const Item& item = g_.items[at];
      std::uint32_t below = g_.items[at + 1].weight;  // what is still to come behind it
      if (item.kind == Item::Kind::bytes) {
        out = std::max<std::uint32_t>(out, item.weight);
        continue;
      }
      if (item.kind == Item::Kind::repeat) {
        const auto [least, most] = g_.counts[item.count];
        if (least == 0) continue;
        below += most > 1 ? item.weight : 0;
      }
      out = std::max(out, below + g_.rules[item.rule].depth);
    }
    return static_cast<std::uint16_t>(std::min<std::uint32_t>(out, kNever));
  };
  // Depths only fall, each at most to where its parts are.
  std::vector<std::uint32_t> open(g_.alternatives.size());
  for (std::uint32_t i = 0; i < open.size(); ++i) open[i] = i;
  while (!open.empty()) {
    std::vector<std::uint32_t> next;
    for (const std::uint32_t i : open) {
      const std::uint16_t depth = depth_of(i);
      if (depth >= g_.depths[i]) continue;
      g_.depths[i] = depth;
      Grammar::Rule& rule = g_.rules[rule_of[i]];
      if (depth >= rule.depth) continue;
      rule.depth = depth;
      const auto& of = users[rule_of[i]];
      next.insert(next.end(), of.begin(), of.end());
    }
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    open = std::move(next);
  }
}

void GrammarBuilder::find_classes() {
  std::bitset<257> begins;
  for (const Item& item : g_.items) {
    if (item.kind != Item::Kind::bytes) continue;
    begins.set(item.low);
    begins.set(std::size_t{item.high} + 1);
  }
  std::uint8_t current = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++current;
    g_.classes[byte] = current;
  }
  g_.class_count = std::size_t{current} + 1;
}

}  // namespace ballast::serve
