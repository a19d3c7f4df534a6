// SentencePiece's compiled normalisation rules, which the library follows without looking.
#pragma once

#include <bitset>
#include <string>
#include <string_view>

namespace ballast {

/// Checks that no text can lead out of the rules: u32 bytes of a double array (Darts-clone: a trie
/// of the texts to replace), the array, and the replacements, each with a zero behind it. Empty: no
/// rules. Throws Error that begins with `source`.
void check_character_map(std::string_view map, const std::string& source);

/// The same for every map in the content of a .model file. Throws Error too where the content is no
/// protocol buffer.
void check_character_maps(std::string_view model, const std::string& source);

/// A letter or a digit of ASCII.
inline bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Whether the rules of a map that was checked leave "a b" in two words, for any a and b that
/// is_word() and whatever is around them: no text to replace is the space, begins with it and such
/// a b, or holds such an a before a space; and what replaces a text with such a letter or digit is
/// not empty and has no space and no U+2581 (nor any character whose first byte is the same).
bool keeps_words_apart(std::string_view map);

/// Which bytes, and which bytes in a row, stand anywhere in the texts to replace.
struct RuleBytes {
  std::bitset<256> bytes;
  std::bitset<65536> pairs;  ///< 256 times the first and the second

  /// Whether a text to replace may hold `character`: one of UTF-8, whole.
  bool may_hold(std::string_view character) const {
    const auto first = static_cast<unsigned char>(character[0]);
    return character.size() == 1 ? bytes[first]
                                 : pairs[256u * first + static_cast<unsigned char>(character[1])];
  }
};

/// Adds those of a map that was checked.
void add_rule_bytes(std::string_view map, RuleBytes& found);

}  // namespace ballast
