// The printable alphabet in which byte-level BPE vocabularies spell bytes (GPT-2's encoder.py:
// bytes that are visible in Latin-1 stand for themselves, the others take U+0100 and on, in order).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ballast {

/// The bytes of a piece, or none if a character is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view piece);

/// Spells bytes in the alphabet.
std::string to_byte_alphabet(std::string_view bytes);

}  // namespace ballast
