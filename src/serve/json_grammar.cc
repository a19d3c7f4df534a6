#include "serve/json_grammar.h"

#include <array>
#include <limits>

namespace ballast::serve {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }
bool hex_digit(char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool whitespace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

bool JsonReader::push(char c) {
  switch (place_) {
    case Place::string:
      if (c == '"') {
        place_ = in_key_ ? Place::colon : Place::after;
      } else if (c == '\\') {
        place_ = Place::escape;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        return false;
      }
      return true;
    case Place::escape:
      if (c == 'u') {
        place_ = Place::hex;
        rest_ = 4;
        return true;
      }
      place_ = Place::string;
      return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    case Place::hex:
      if (--rest_ == 0) place_ = Place::string;
      return hex_digit(c);
    case Place::literal:
      if (c != word_[0]) return false;
      word_.remove_prefix(1);
      if (word_.empty()) place_ = Place::after;
      return true;
    case Place::minus:
    case Place::zero:
    case Place::whole:
    case Place::point:
    case Place::fraction:
    case Place::exponent:
    case Place::sign:
    case Place::power:
      return number(c);
    default:
      break;
  }
  if (whitespace(c)) return ++space_ <= (place_ == Place::start ? 1 : kSpace);
  space_ = 0;
  return structure(c);
}

bool JsonReader::structure(char c) {
  switch (place_) {
    case Place::start:
      open_ = "{";
      place_ = Place::first_key;
      return c == '{';
    case Place::first_key:
      if (c == '}') return close(c);
      [[fallthrough]];
    case Place::key:
      in_key_ = true;
      place_ = Place::string;
      return c == '"';
    case Place::colon:
      place_ = Place::value;
      return c == ':';
    case Place::first_item:
      if (c == ']') return close(c);
      return begin_value(c);
    case Place::value:
      return begin_value(c);
    case Place::after:
      if (c != ',') return close(c);
      place_ = open_.back() == '{' ? Place::key : Place::value;
      return true;
    default:
      return false;  // nothing follows the object
  }
}

bool JsonReader::begin_value(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() == kDepth) return false;
    open_ += c;
    place_ = c == '{' ? Place::first_key : Place::first_item;
    return true;
  }
  if (c == '"') {
    in_key_ = false;
    place_ = Place::string;
    return true;
  }
  if (c == '-' || digit(c)) {
    place_ = c == '-' ? Place::minus : c == '0' ? Place::zero : Place::whole;
    rest_ = kDigits;
    return true;
  }
  place_ = Place::literal;
  word_ = c == 't' ? "rue" : c == 'f' ? "alse" : c == 'n' ? "ull" : "";
  return !word_.empty();
}

bool JsonReader::number(char c) {
  auto go = [&](Place next) {
    place_ = next;
    return true;
  };
  const bool exponent = c == 'e' || c == 'E';
  bool whole = false;  // the number may end here
  switch (place_) {
    case Place::minus:
      if (c == '0') return go(Place::zero);
      if (digit(c)) return go(Place::whole);
      return false;
    case Place::zero:
    case Place::whole:
      if (place_ == Place::whole && digit(c)) return rest_-- > 0;
      if (c == '.') return go(Place::point);
      if (exponent) return go(Place::exponent);
      whole = true;
      break;
    case Place::point:
      return digit(c) && go(Place::fraction);
    case Place::fraction:
      if (digit(c)) return rest_-- > 0;
      if (exponent) return go(Place::exponent);
      whole = true;
      break;
    case Place::exponent:
      if (c == '+' || c == '-') return go(Place::sign);
      [[fallthrough]];
    case Place::sign:
      rest_ = kPower - 1;
      return digit(c) && go(Place::power);
    default:
      if (digit(c)) return rest_-- > 0;
      whole = true;
      break;
  }
  place_ = Place::after;
  return whole && push(c);
}

bool JsonReader::close(char c) {
  if (c != (open_.back() == '{' ? '}' : ']')) return false;
  open_.pop_back();
  place_ = open_.empty() ? Place::end : Place::after;
  return true;
}

TokenTexts::TokenTexts(const Tokenizer& tokenizer) : texts_(tokenizer.size()) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (tokenizer.is_special(token) || tokenizer.is_end(token)) continue;
    texts_[i] = tokenizer.decode({&token, 1}, {.special = false, .text_start = false});
  }
}

std::size_t TokenTexts::mask(const JsonReader& reader, std::span<float> logits) const {
  std::array<bool, 256> first{};
  for (std::size_t c = 0; c < first.size(); ++c) {
    JsonReader next = reader;
    first[c] = next.push(static_cast<char>(c));
  }
  std::size_t left = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const std::string& text = texts_[i];
    bool takes = !text.empty() && first[static_cast<unsigned char>(text[0])];
    if (takes && text.size() > 1) {
      JsonReader next = reader;
      for (std::size_t j = 0; takes && j < text.size(); ++j) takes = next.push(text[j]);
    }
    if (takes) {
      ++left;
    } else {
      logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
  return left;
}

}  // namespace ballast::serve
