// Which bytes and tokens a JSON text may go on with, by a schema.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "serve/pattern.h"

namespace ballast::serve {

/// A set of JSON texts: nodes that name each other by index. A cycle leads through an object or an
/// array.
struct JsonGrammar {
  using Id = std::uint32_t;
  enum class Kind : std::uint8_t { any, object, array, string, number, integer, literal, choice };
  struct Property {
    std::string key;  ///< as it is written, with its quotes
    Id value = 0;
  };
  static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);
  static constexpr std::uint8_t kDepth = 64;  ///< of objects and arrays in each other
  struct Node {
    Kind kind = Kind::any;
    /// Of an object: these properties in this order; if it is open, then any further keys that
    /// `further` takes.
    std::vector<Property> properties = {};
    std::vector<bool> required = {};
    bool open = false;
    Id further_key = 3, further = 0;
    Id items = 0;
    std::vector<Id> first_items = {};  ///< those of the first places; `items` follow
    std::size_t min_items = 0, max_items = kNoLimit;
    std::size_t min_length = 0, max_length = kNoLimit;  ///< of a string, in characters
    std::shared_ptr<const Pattern> pattern = {};        ///< of a string; it says its length, too
    /// Of a number or an integer: its values times 10^decimals lie in [low, high], and it has no
    /// more decimals and no exponent, and are multiples of `step`. At most 18 digits.
    bool bounded = false;
    std::int64_t low = 0, high = 0;
    std::uint8_t decimals = 0;
    std::uint64_t step = 1;
    /// Sorted, each once. Of a string: the texts, without quotes, that it must differ from; such a
    /// string has no escapes.
    std::vector<std::string> literals = {};
    std::vector<Id> choices = {};
    std::bitset<256> first = {};  ///< bytes that its texts begin with
    std::uint8_t height = 0;      ///< nesting that its texts need; above kDepth: it has none
  };

  // The first nodes of every grammar.
  static constexpr Id kAny = 0, kObject = 1, kArray = 2, kString = 3, kNumber = 4, kInteger = 5,
                      kBoolean = 6, kNull = 7;
  std::vector<Node> nodes;
  Id root = kObject;

  /// The first nodes; the texts are all objects.
  JsonGrammar();
  /// What the node names is there already, or complete() is called later.
  Id add(Node node);
  /// Sets what nodes that name later ones know of them. False: a choice is one of its own choices.
  bool complete();

 private:
  void set_first(Node& node) const;
  void set_height(Node& node) const;
};

/// Reads the beginning of such a text byte by byte (RFC 8259, well-formed UTF-8, no halves of
/// surrogate pairs). What it takes can always be gone on with to the end.
///
/// Between two parts at most 8 whitespace characters may stand, and none before the first, so that
/// a model cannot go on with them for ever. Numbers have at most 33 digits and an exponent of two,
/// integers 18 digits, so that they fit into a double and an int64. Values nest at most 64 deep.
class JsonReader {
 public:
  explicit JsonReader(std::shared_ptr<const JsonGrammar> grammar);

  /// Whether the text so far may be followed by this byte; if not, the reader is spent.
  bool push(char c);
  /// Whether the text has ended.
  bool done() const { return !ways_.empty() && ways_[0].empty(); }
  /// Never: a text that may end has ended.
  static bool may_end() { return false; }
  /// Whether any characters that need no escape, up to so many, may follow in a string.
  bool in_free_string(std::size_t characters) const;

 private:
  enum class Place : std::uint8_t {
    value,       ///< before a value
    first_key,   ///< after '{': a key or '}'
    key,         ///< after ',' in an object
    name,        ///< in the key of a property
    colon,       ///< after a key
    first_item,  ///< after '[': a value or ']'
    after,       ///< a value: ',' or the end of what it is in
    literal,
    string,
    escape,
    hex,
    minus,
    zero,
    whole,
    point,
    fraction,
    exponent,
    sign,
    power  ///< parts of a number
  };
  /// What is open: objects and arrays, and on top a scalar or the place of a value.
  struct Frame {
    JsonGrammar::Id node = JsonGrammar::kAny;
    Place place = Place::value;
    std::uint8_t rest = 0;           ///< digits, or bytes of a character, that may or must come
    std::uint8_t low = 0, high = 0;  ///< bounds of the character's next byte
    std::uint32_t index = 0;         ///< the property; the first literal; the pattern's state
    std::uint32_t count = 0;         ///< items so far; the literal after the last possible one
    std::uint32_t at = 0;            ///< bytes of the name or literal so far; decimals
    std::uint64_t number = 0;        ///< digits so far, where they have bounds; else characters
    bool operator==(const Frame&) const = default;
  };
  using Way = std::vector<Frame>;
  struct Further {
    std::uint64_t hash = 0;
    Way way;
  };

  const JsonGrammar::Node& node(const Frame& frame) const { return grammar_->nodes[frame.node]; }
  static bool structural(Place place);
  static std::uint64_t hash(const Way& way);
  bool full() const;
  void add(Way way);
  // Each moves a way on by a byte, or returns false; further ways go to more_ while it is not full.
  bool step(Way& way, char c);
  bool begin(Way& way, JsonGrammar::Id id, char c);
  bool begin_any(Way& way, char c);
  bool object(Way& way, char c);
  bool begin_key(Way& way);
  /// Whether a value of this node may stand in so many objects and arrays.
  bool fits(JsonGrammar::Id id, std::size_t depth) const {
    return depth + grammar_->nodes[id].height <= JsonGrammar::kDepth;
  }
  /// Whether a key may follow in the object on top.
  bool has_key(const Way& way) const;
  JsonGrammar::Id next_item(const Frame& frame) const;
  bool array(Way& way, char c);
  bool literal(Way& way, char c);
  bool number(Way& way, char c);
  bool bounded_number(Way& way, char c);
  bool end_number(Way& way, char c);
  bool string(Way& way, char c);
  /// Begins a character of a string, where it may have one more.
  bool string_character(Frame& frame, char c) const;

  std::shared_ptr<const JsonGrammar> grammar_;
  std::vector<Way> ways_;      ///< in which the text so far can be understood
  std::vector<Further> more_;  ///< no two of them the same
  bool started_ = false;
  std::uint8_t space_ = 0;  ///< whitespace since the last other byte
};

/// The texts of a vocabulary's tokens, for masks.
class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer);

  const std::string& operator[](std::size_t token) const { return texts_[token]; }
  /// Sets the logits of tokens that `reader` does not take to minus infinity. Returns how many
  /// are left. Tokens that end a text are taken where it may end.
  template <typename Reader>
  std::size_t mask(const Reader& reader, std::span<float> logits) const;

 private:
  /// Tokens in the order of their texts.
  struct Sorted {
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint32_t> common;  ///< bytes that a text begins with like the one before
  };
  Sorted sorted(bool with_plain) const;

  std::vector<std::string> texts_;  ///< empty: a token without text
  std::vector<std::size_t> ends_;   ///< tokens that end a text
  std::vector<bool> plain_;         ///< characters that need no escape in a string
  std::size_t longest_plain_ = 0;   ///< bytes
  Sorted all_, marked_;             ///< marked: not plain
};

}  // namespace ballast::serve
