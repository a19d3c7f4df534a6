#include "serve/json_grammar.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "serve/grammar.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kSpace = 8;
constexpr std::uint8_t kDigits = 32, kIntegerDigits = 17, kPower = 2;
/// Ways to understand a text that are followed at once; the text need not go further ones.
constexpr std::size_t kWays = 256;
constexpr std::uint8_t kDepth = JsonGrammar::kDepth, kNoHeight = 255;

bool digit(char c) { return c >= '0' && c <= '9'; }
bool hex_digit(char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool whitespace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
/// Whether it may stand behind a number.
bool ends_value(char c) { return c == ',' || c == ']' || c == '}' || whitespace(c); }

/// Narrows the sorted texts [index, count), which agree in `at` bytes, to those that go on with c.
/// False: none does.
bool narrow(const std::vector<std::string>& all, char c, std::uint32_t& index, std::uint32_t& count,
            std::uint32_t at) {
  const auto byte = [at](const std::string& text) {
    return text.size() == at ? -1 : static_cast<int>(static_cast<unsigned char>(text[at]));
  };
  const auto found =
      std::ranges::equal_range(all.begin() + index, all.begin() + count,
                               static_cast<int>(static_cast<unsigned char>(c)), {}, byte);
  index = static_cast<std::uint32_t>(found.begin() - all.begin());
  count = static_cast<std::uint32_t>(found.end() - all.begin());
  return !found.empty();
}

/// Digits of a bounded number, without its sign, in units of its last possible decimal.
struct Digits {
  std::uint64_t low = 1, high = 0;  ///< that it may have; none where low > high
  std::uint64_t unit = 1;           ///< of a whole number
  std::uint64_t step = 1;           ///< that divides it

  Digits(const JsonGrammar::Node& n, bool negative) : step(n.step) {
    if (!negative && n.high >= 0) {
      low = static_cast<std::uint64_t>(std::max<std::int64_t>(0, n.low));
      high = static_cast<std::uint64_t>(n.high);
    } else if (negative && n.low < 0) {
      low = static_cast<std::uint64_t>(std::max<std::int64_t>(0, -n.high));
      high = static_cast<std::uint64_t>(-n.low);
    }
    for (int i = 0; i < n.decimals; ++i) unit *= 10;
  }
  bool none() const { return low > high; }
  bool has(std::uint64_t number) const {
    return number >= low && number <= high && number % step == 0;
  }
  /// Whether one of [number, number + count) is possible.
  bool meets(std::uint64_t number, std::uint64_t count) const {
    const std::uint64_t first = (std::max(number, low) + step - 1) / step * step;
    return !none() && first <= high && first <= number + (count - 1);
  }
  /// Whether a number that begins with these digits before the point is possible.
  bool begins(std::uint64_t whole) const {
    for (std::uint64_t part = unit; !none() && whole * part <= high; part *= 10) {
      if (meets(whole * part, part)) return true;
      if (whole == 0) break;  // nothing follows a zero
    }
    return false;
  }
};

}  // namespace

JsonGrammar::JsonGrammar() {
  std::array<Node, 8> all;
  all[kObject].kind = Kind::object;
  all[kObject].open = true;
  all[kArray].kind = Kind::array;
  all[kString].kind = Kind::string;
  all[kNumber].kind = Kind::number;
  all[kInteger].kind = Kind::integer;
  all[kBoolean].kind = all[kNull].kind = Kind::literal;
  all[kBoolean].literals = {"false", "true"};
  all[kNull].literals = {"null"};
  for (Node& node : all) add(std::move(node));
}

JsonGrammar::Id JsonGrammar::add(Node node) {
  set_first(node);
  set_height(node);
  nodes.push_back(std::move(node));
  return static_cast<Id>(nodes.size() - 1);
}

void JsonGrammar::set_first(Node& node) const {
  const auto begins_with = [&](std::string_view bytes) {
    for (char c : bytes) node.first.set(static_cast<unsigned char>(c));
  };
  switch (node.kind) {
    case Kind::any:
      begins_with("{[\"tfn-0123456789");
      break;
    case Kind::object:
      begins_with("{");
      break;
    case Kind::array:
      begins_with("[");
      break;
    case Kind::string:
      begins_with("\"");
      break;
    case Kind::number:
    case Kind::integer:
      if (!node.bounded) begins_with("-0123456789");
      for (char c = '0'; node.bounded && c <= '9'; ++c) {
        if (Digits(node, false).begins(static_cast<std::uint64_t>(c - '0')))
          node.first.set(static_cast<unsigned char>(c));
      }
      if (node.bounded && Digits(node, true).meets(0, 1'000'000'000'000'000'000)) begins_with("-");
      break;
    case Kind::literal:
      for (const std::string& text : node.literals)
        begins_with(std::string_view(text).substr(0, 1));
      break;
    case Kind::choice:
      for (Id choice : node.choices) node.first |= nodes[choice].first;
      break;
  }
}

void JsonGrammar::set_height(Node& node) const {
  const auto above = [](std::uint8_t height) {
    return height >= kDepth ? kNoHeight : static_cast<std::uint8_t>(height + 1);
  };
  if (node.kind == Kind::object) {
    node.height = 1;
    for (std::size_t i = 0; i < node.properties.size(); ++i) {
      const std::uint8_t value = nodes[node.properties[i].value].height;
      if (node.required[i]) node.height = std::max(node.height, above(value));
    }
  } else if (node.kind == Kind::array) {
    node.height = 1;
    for (std::size_t i = 0; i < node.min_items && i <= node.first_items.size(); ++i) {
      const bool first = i < node.first_items.size();
      const Id item = first ? node.first_items[i] : node.items;
      node.height = std::max(node.height, above(nodes[item].height));
    }
  } else if (node.kind == Kind::choice) {
    node.height = kNoHeight;
    for (Id choice : node.choices) node.height = std::min(node.height, nodes[choice].height);
  }
}

bool JsonGrammar::complete() {
  // Choices after those that they hold.
  std::vector<char> seen(nodes.size());
  std::vector<std::pair<Id, std::size_t>> open;
  for (Id root = 0; root < nodes.size(); ++root) {
    if (nodes[root].kind != Kind::choice || seen[root] != 0) continue;
    open.emplace_back(root, 0);
    seen[root] = 1;
    while (!open.empty()) {
      auto& [id, next] = open.back();
      if (next == nodes[id].choices.size()) {
        set_first(nodes[id]);
        seen[id] = 2;
        open.pop_back();
        continue;
      }
      const Id choice = nodes[id].choices[next++];
      if (nodes[choice].kind != Kind::choice || seen[choice] == 2) continue;
      if (seen[choice] == 1) return false;
      seen[choice] = 1;
      open.emplace_back(choice, 0);
    }
  }
  // Heights from below: those of up to n are right after n rounds, but for choices of choices.
  for (bool changed = true; changed;) {
    changed = false;
    for (Node& node : nodes) {
      const std::uint8_t before = node.height;
      set_height(node);
      changed |= node.height != before;
    }
  }
  return true;
}

JsonReader::JsonReader(std::shared_ptr<const JsonGrammar> grammar)
    : grammar_(std::move(grammar)), ways_{{Frame{.node = grammar_->root}}} {}

bool JsonReader::structural(Place place) { return place <= Place::after && place != Place::name; }

bool JsonReader::in_free_string(std::size_t characters) const {
  return std::ranges::any_of(ways_, [&](const Way& way) {
    if (way.empty() || way.back().place != Place::string || way.back().rest > 0) return false;
    const Pattern* pattern = node(way.back()).pattern.get();
    if (pattern != nullptr) return pattern->is_free(way.back().index);
    const std::size_t most = node(way.back()).max_length;
    return most == JsonGrammar::kNoLimit || most - way.back().number >= characters;
  });
}

bool JsonReader::push(char c) {
  if (done()) return whitespace(c) && ++space_ <= kSpace;
  // All ways have read the same JSON, so that they are between two parts together.
  if (whitespace(c) &&
      std::ranges::any_of(ways_, [](const Way& way) { return structural(way.back().place); })) {
    if (++space_ > (started_ ? kSpace : 0)) return false;
  } else {
    space_ = 0;
    started_ = true;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ways_.size(); ++i) {
    if (!step(ways_[i], c)) continue;
    if (kept != i) std::swap(ways_[kept], ways_[i]);
    ++kept;
  }
  ways_.resize(kept);
  if (more_.empty()) return kept > 0;
  // Two ways may come to the same.
  std::vector<std::uint64_t> hashes;
  for (const Way& way : ways_) hashes.push_back(hash(way));
  for (Further& further : more_) {
    if (ways_.size() == kWays) break;
    bool known = false;
    for (std::size_t i = 0; i < kept && !known; ++i) {
      known = hashes[i] == further.hash && ways_[i] == further.way;
    }
    if (!known) ways_.push_back(std::move(further.way));
  }
  more_.clear();
  return true;
}

std::uint64_t JsonReader::hash(const Way& way) {
  std::uint64_t out = way.size();
  const auto mix = [&](std::uint64_t low, std::uint64_t high) {
    out = (out ^ low ^ (high << 32)) * 0x9E3779B97F4A7C15u;
    out ^= out >> 29;
  };
  for (const Frame& f : way) {
    mix(f.node, f.index);
    mix(f.count, f.at);
    mix(f.number, 0);
    mix(static_cast<std::uint64_t>(f.place) | f.rest << 8 | f.low << 16, f.high);
  }
  return out;
}

/// With as many, whatever ways_ keeps in front, no later one would be kept.
bool JsonReader::full() const { return more_.size() == kWays; }

void JsonReader::add(Way way) {
  if (full()) return;
  Further further{hash(way), std::move(way)};
  const bool known = std::ranges::any_of(more_, [&](const Further& other) {
    return other.hash == further.hash && other.way == further.way;
  });
  if (!known) more_.push_back(std::move(further));
}

bool JsonReader::step(Way& way, char c) {
  const Frame& frame = way.back();
  if (structural(frame.place) && whitespace(c)) return true;
  switch (frame.place) {
    case Place::value:
      return begin(way, frame.node, c);
    case Place::first_key:
    case Place::key:
    case Place::name:
    case Place::colon:
      return object(way, c);
    case Place::first_item:
      return array(way, c);
    case Place::after:
      return node(frame).kind == JsonGrammar::Kind::object ? object(way, c) : array(way, c);
    case Place::literal:
      return literal(way, c);
    case Place::string:
    case Place::escape:
    case Place::hex:
      return string(way, c);
    default:
      return number(way, c);
  }
}

bool JsonReader::begin(Way& way, JsonGrammar::Id id, char c) {
  const JsonGrammar::Node& n = grammar_->nodes[id];
  const auto byte = static_cast<unsigned char>(c);
  if (!n.first[byte] || !fits(id, way.size() - 1)) return false;
  way.back() = {.node = id};
  Frame& frame = way.back();
  switch (n.kind) {
    case JsonGrammar::Kind::any:
      return begin_any(way, c);
    case JsonGrammar::Kind::object:
      frame.place = Place::first_key;
      return c == '{';
    case JsonGrammar::Kind::array:
      frame.place = Place::first_item;
      return c == '[';
    case JsonGrammar::Kind::string:
      frame.place = Place::string;
      frame.count = static_cast<std::uint32_t>(n.literals.size());
      if (n.pattern) frame.index = Pattern::kStart;
      return c == '"';
    case JsonGrammar::Kind::number:
    case JsonGrammar::Kind::integer:
      frame.place = c == '-' ? Place::minus : c == '0' ? Place::zero : Place::whole;
      frame.rest = n.kind == JsonGrammar::Kind::integer ? kIntegerDigits : kDigits;
      if (n.bounded) {
        frame.low = c == '-';
        if (digit(c)) frame.number = static_cast<std::uint64_t>(c - '0');
      }
      return c == '-' || digit(c);
    case JsonGrammar::Kind::literal:
      frame.place = Place::literal;
      frame.count = static_cast<std::uint32_t>(n.literals.size());
      return literal(way, c);
    case JsonGrammar::Kind::choice:
      // A copy for those alone that can be kept: 128 choices of 256 ways come again with each byte.
      for (JsonGrammar::Id choice : n.choices) {
        if (full()) break;
        if (!grammar_->nodes[choice].first[byte]) continue;
        Way other = way;
        if (begin(other, choice, c)) add(std::move(other));
      }
      return false;
  }
  return false;
}

bool JsonReader::begin_any(Way& way, char c) {
  using G = JsonGrammar;
  if (c == '{' || c == '[') return begin(way, c == '{' ? G::kObject : G::kArray, c);
  return begin(way,
               c == '"'               ? G::kString
               : c == 'n'             ? G::kNull
               : c == 't' || c == 'f' ? G::kBoolean
                                      : G::kNumber,
               c);
}

bool JsonReader::has_key(const Way& way) const {
  const Frame& frame = way.back();
  const JsonGrammar::Node& n = node(frame);
  for (std::size_t p = frame.index; p < n.properties.size(); ++p) {
    if (fits(n.properties[p].value, way.size())) return true;
  }
  return n.open && fits(n.further, way.size());
}

bool JsonReader::begin_key(Way& way) {
  const JsonGrammar::Node& n = node(way.back());
  const auto further = [&](Way& on) {
    on.back().place = Place::colon;
    on.back().index = static_cast<std::uint32_t>(n.properties.size());
    on.push_back({.node = n.further_key});
    return begin(on, n.further_key, '"');
  };
  if (n.open && n.properties.empty()) return fits(n.further, way.size()) && further(way);
  // Properties may be left out up to the next one that is required.
  for (std::uint32_t p = way.back().index; p < n.properties.size(); ++p) {
    if (full()) return false;
    if (fits(n.properties[p].value, way.size())) {
      Way other = way;
      other.back().place = Place::name;
      other.back().index = p;
      other.back().at = 1;
      add(std::move(other));
    }
    if (n.required[p]) return false;
  }
  return n.open && fits(n.further, way.size()) && further(way);
}

bool JsonReader::object(Way& way, char c) {
  Frame& frame = way.back();
  const JsonGrammar::Node& n = node(frame);
  const auto close = [&] {
    const auto from =
        n.required.begin() + std::min<std::ptrdiff_t>(frame.index, std::ssize(n.required));
    if (std::find(from, n.required.end(), true) != n.required.end()) return false;
    way.pop_back();
    return true;
  };
  switch (frame.place) {
    case Place::first_key:
      if (c == '}') return close();
      [[fallthrough]];
    case Place::key:
      return c == '"' && begin_key(way);
    case Place::name: {
      const std::string& key = n.properties[frame.index].key;
      if (c != key[frame.at]) return false;
      if (++frame.at == key.size()) frame.place = Place::colon;
      return true;
    }
    case Place::colon: {
      if (c != ':') return false;
      const bool further = frame.index == n.properties.size();
      const JsonGrammar::Id value = further ? n.further : n.properties[frame.index].value;
      frame.place = Place::after;
      frame.at = 0;
      if (!further) ++frame.index;
      way.push_back({.node = value});
      return true;
    }
    default:
      if (c == '}') return close();
      frame.place = Place::key;
      return c == ',' && has_key(way);
  }
}

JsonGrammar::Id JsonReader::next_item(const Frame& frame) const {
  const JsonGrammar::Node& n = node(frame);
  return frame.count < n.first_items.size() ? n.first_items[frame.count] : n.items;
}

bool JsonReader::array(Way& way, char c) {
  Frame& frame = way.back();
  const JsonGrammar::Node& n = node(frame);
  if (c == ']') {
    if (frame.count < n.min_items) return false;
    way.pop_back();
    return true;
  }
  const bool first = frame.place == Place::first_item;
  if (frame.count >= n.max_items || (!first && c != ',')) return false;
  const JsonGrammar::Id item = next_item(frame);
  if (!fits(item, way.size())) return false;
  // What matters of a count is which of the bounds it has reached.
  const bool counts = frame.count < std::max(n.min_items, n.first_items.size());
  if (counts || n.max_items != JsonGrammar::kNoLimit) ++frame.count;
  frame.place = Place::after;
  way.push_back({.node = item});
  return !first || begin(way, item, c);
}

bool JsonReader::literal(Way& way, char c) {
  Frame& frame = way.back();
  const std::vector<std::string>& all = node(frame).literals;
  const auto at = frame.at;
  const auto begin = all.begin() + frame.index;
  // A number that is whole may end here, or be the beginning of another.
  if (begin->size() == at && ends_value(c)) {
    Way over = way;
    over.pop_back();
    if (!over.empty() && step(over, c)) add(std::move(over));
  }
  if (!narrow(all, c, frame.index, frame.count, at)) return false;
  ++frame.at;
  if (all[frame.index].size() == frame.at && !digit(c)) way.pop_back();
  return true;
}

bool JsonReader::end_number(Way& way, char c) {
  way.pop_back();
  return !way.empty() && step(way, c);
}

bool JsonReader::bounded_number(Way& way, char c) {
  Frame& frame = way.back();
  const JsonGrammar::Node& n = node(frame);
  const Digits digits(n, frame.low != 0);
  std::uint64_t part = digits.unit;  // of the last digit
  for (std::uint32_t i = 0; i < frame.at; ++i) part /= 10;
  if (digit(c)) {
    const std::uint64_t number = frame.number * 10 + static_cast<std::uint64_t>(c - '0');
    if (frame.place == Place::zero || (frame.place >= Place::point && part == 1)) return false;
    if (frame.place == Place::minus || frame.place == Place::whole) {
      if (!digits.begins(number)) return false;
      frame.place = number == 0 ? Place::zero : Place::whole;
    } else {
      if (!digits.meets(number * (part / 10), part / 10)) return false;
      frame.place = Place::fraction;
      ++frame.at;
    }
    frame.number = number;
    return true;
  }
  const bool whole = frame.place == Place::zero || frame.place == Place::whole;
  if (c == '.' && whole && n.decimals > 0 && digits.meets(frame.number * part, part)) {
    frame.place = Place::point;
    return true;
  }
  const bool over = whole || frame.place == Place::fraction;
  return over && digits.has(frame.number * part) && end_number(way, c);
}

bool JsonReader::number(Way& way, char c) {
  if (node(way.back()).bounded) return bounded_number(way, c);
  Frame& frame = way.back();
  const bool integer = node(frame).kind == JsonGrammar::Kind::integer;
  const auto go = [&](Place next) {
    frame.place = next;
    return true;
  };
  const bool exponent = c == 'e' || c == 'E';
  switch (frame.place) {
    case Place::minus:
      if (c == '0') return go(Place::zero);
      return digit(c) && go(Place::whole);
    case Place::zero:
    case Place::whole:
      if (frame.place == Place::whole && digit(c)) return frame.rest-- > 0;
      if (!integer && c == '.') return go(Place::point);
      if (!integer && exponent) return go(Place::exponent);
      break;
    case Place::point:
      return digit(c) && go(Place::fraction);
    case Place::fraction:
      if (digit(c)) return frame.rest-- > 0;
      if (exponent) return go(Place::exponent);
      break;
    case Place::exponent:
      if (c == '+' || c == '-') return go(Place::sign);
      [[fallthrough]];
    case Place::sign:
      frame.rest = kPower - 1;
      return digit(c) && go(Place::power);
    default:
      if (digit(c)) return frame.rest-- > 0;
      break;
  }
  return end_number(way, c);
}

bool JsonReader::string_character(Frame& frame, char c) const {
  const JsonGrammar::Node& n = node(frame);
  if (n.max_length != JsonGrammar::kNoLimit) {
    if (frame.number == n.max_length) return false;
    ++frame.number;
  } else if (frame.number < n.min_length) {
    ++frame.number;
  }
  return n.literals.empty() || c != '\\';
}

bool JsonReader::string(Way& way, char c) {
  Frame& f = way.back();
  const JsonGrammar::Node& n = node(f);
  const auto byte = static_cast<std::uint8_t>(c);
  if (n.pattern && f.rest == 0) {
    if (c == '"') {
      if (!n.pattern->accepts(f.index)) return false;
      way.pop_back();
      return true;
    }
    f.index = n.pattern->next(f.index, c);
    if (f.index == Pattern::kDead) return false;
  }
  switch (f.place) {
    case Place::escape:
      f.place = c == 'u' ? Place::hex : Place::string;
      f.rest = c == 'u' ? 4 : 0;
      return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
    case Place::hex:
      // D800 to DFFF are halves of pairs.
      if (f.rest == 3 && f.high == 1 && !(c >= '0' && c <= '7')) return false;
      f.high = f.rest == 4 && (c == 'd' || c == 'D') ? 1 : 0;
      if (--f.rest == 0) f.place = Place::string;
      return hex_digit(c);
    default:
      break;
  }
  if (!n.pattern && f.index < f.count && c != '"') {  // what it must not be
    if (narrow(n.literals, c, f.index, f.count, f.at)) {
      ++f.at;
    } else {
      f.index = f.count = f.at = 0;
    }
  }
  if (f.rest > 0) {
    if (byte < f.low || byte > f.high) return false;
    --f.rest;
    f.low = f.rest > 0 ? 0x80 : 0;
    f.high = f.rest > 0 ? 0xBF : 0;
    return true;
  }
  if (c == '"') {
    if (f.number < n.min_length) return false;
    if (f.index < f.count && n.literals[f.index].size() == f.at) return false;
    way.pop_back();
    return true;
  }
  if (!string_character(f, c)) return false;
  if (c == '\\') {
    f.place = Place::escape;
    return true;
  }
  if (byte < 0x80) return byte >= 0x20;
  // Well-formed sequences: table 3-7 of the Unicode standard.
  if (byte < 0xC2 || byte > 0xF4) return false;
  f.rest = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  f.low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  f.high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  return true;
}

TokenTexts::TokenTexts(const Tokenizer& tokenizer)
    : texts_(tokenizer.size()), plain_(tokenizer.size()) {
  auto grammar = std::make_shared<JsonGrammar>();
  grammar->root = JsonGrammar::kString;
  JsonReader string(grammar);
  string.push('"');
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (tokenizer.is_end(token)) ends_.push_back(i);
    if (tokenizer.is_special(token) || tokenizer.is_end(token)) continue;
    texts_[i] = tokenizer.decode({&token, 1}, {.special = false, .text_start = false});
    JsonReader reader = string;
    plain_[i] = texts_[i].find_first_of("\"\\") == std::string::npos &&
                std::ranges::all_of(texts_[i], [&](char c) { return reader.push(c); }) &&
                reader.in_free_string(0);
    if (plain_[i]) longest_plain_ = std::max(longest_plain_, texts_[i].size());
  }
  all_ = sorted(true);
  marked_ = sorted(false);
}

TokenTexts::Sorted TokenTexts::sorted(bool with_plain) const {
  Sorted out;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (!texts_[i].empty() && (with_plain || !plain_[i])) {
      out.tokens.push_back(static_cast<std::uint32_t>(i));
    }
  }
  std::ranges::sort(out.tokens, {},
                    [&](std::uint32_t i) -> const std::string& { return texts_[i]; });
  std::string_view before;
  for (std::uint32_t i : out.tokens) {
    const std::string_view text = texts_[i];
    out.common.push_back(
        static_cast<std::uint32_t>(std::ranges::mismatch(text, before).in1 - text.begin()));
    before = text;
  }
  return out;
}

template <typename Reader>
std::size_t TokenTexts::mask(const Reader& reader, std::span<float> logits) const {
  const bool free = reader.in_free_string(longest_plain_);
  std::vector<bool> takes = free ? plain_ : std::vector<bool>(texts_.size());
  const Sorted& sorted = free ? marked_ : all_;
  // states[d]: after d bytes of the text; a text starts where it departs from the one before.
  std::vector<Reader> states{reader};
  std::size_t good = 0;  // bytes of the text before that were taken
  for (std::size_t i = 0; i < sorted.tokens.size(); ++i) {
    const std::string& text = texts_[sorted.tokens[i]];
    const std::size_t common = sorted.common[i];
    if (common > good) continue;  // the byte at which the last one failed is in this one, too
    good = common;
    while (good < text.size()) {
      if (states.size() == good + 1)
        states.push_back(states[good]);
      else
        states[good + 1] = states[good];
      if (!states[good + 1].push(text[good])) break;
      ++good;
    }
    takes[sorted.tokens[i]] = good == text.size();
  }
  if (reader.may_end()) {
    for (const std::size_t end : ends_) takes[end] = true;
  }
  std::size_t left = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i < takes.size() && takes[i]) {
      ++left;
    } else {
      logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
  return left;
}

template std::size_t TokenTexts::mask(const JsonReader& reader, std::span<float> logits) const;
template std::size_t TokenTexts::mask(const GrammarReader& reader, std::span<float> logits) const;

}  // namespace ballast::serve
