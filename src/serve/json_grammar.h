// Which tokens a JSON object may go on with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"

namespace ballast::serve {

/// Reads the beginning of a JSON object byte by byte (RFC 8259). Between two parts at most 16
/// whitespace characters may stand, so that a model cannot go on with them for ever. Numbers have
/// at most 33 digits and an exponent of two, so that they fit into a double.
class JsonReader {
 public:
  /// Whether the text so far may be followed by this byte; if not, the reader is spent.
  bool push(char c);
  /// Whether the object has ended.
  bool done() const { return place_ == Place::end; }

 private:
  enum class Place : std::uint8_t {
    start,       ///< before the object
    first_key,   ///< after '{': a key or '}'
    key,         ///< after ',' in an object
    colon,       ///< after a key
    first_item,  ///< after '[': a value or ']'
    value,
    after,  ///< a value: ',' or the end of what it is in
    string,
    escape,
    hex,      ///< rest_ digits are to come
    literal,  ///< word_ is to come
    minus,
    zero,
    whole,
    point,
    fraction,
    exponent,
    sign,
    power,  ///< parts of a number
    end
  };
  bool structure(char c);
  bool begin_value(char c);
  bool number(char c);
  bool close(char c);

  static constexpr std::size_t kSpace = 16, kDepth = 64;
  static constexpr std::uint8_t kDigits = 32, kPower = 2;

  Place place_ = Place::start;
  std::string open_;        ///< brackets that are open
  bool in_key_ = false;     ///< of a string
  std::uint8_t rest_ = 0;   ///< digits that may or must come
  std::uint8_t space_ = 0;  ///< whitespace since the last other byte
  std::string_view word_;   ///< of a literal
};

/// The texts of a vocabulary's tokens, for masks.
class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer);

  const std::string& operator[](std::size_t token) const { return texts_[token]; }
  /// Sets the logits of tokens that `reader` does not take to minus infinity. Returns how many
  /// are left.
  std::size_t mask(const JsonReader& reader, std::span<float> logits) const;

 private:
  std::vector<std::string> texts_;  ///< empty: a token without text
};

}  // namespace ballast::serve
