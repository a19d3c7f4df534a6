// SentencePiece's compiled normalisation rules, which the library follows without looking.
#pragma once

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

}  // namespace ballast
