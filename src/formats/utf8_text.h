// Texts that people hand in, as UTF-8, or refused by the name of what they are instead.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ballast {

/// Whether the first bytes of a text hold what no text has: many control characters.
bool looks_binary(std::string_view text);

/// `text` in UTF-8, without a byte order mark. A text that is no UTF-8 is decoded by its mark, by
/// the encoding `declared` for it, or else by what its bytes look like (ICU's detection). `note`:
/// receives what people should know: that the encoding is a guess, or which byte was replaced by
/// U+FFFD; else nothing. Throws Error (unsupported) that begins with `name` if no encoding is
/// found, or if it is no text, of a kind that is named where it is known.
std::string as_utf8(std::string text, const std::string& name, std::string_view declared = {},
                    std::string* note = nullptr);

/// The text of a file by as_utf8(). Throws Error, too, if it cannot be read.
std::string read_utf8(const std::filesystem::path& path);

/// The bytes of standard input. Throws Error if it cannot be read or has over a gibibyte.
std::string read_standard_input();

/// The same as read_utf8(); "-": of standard input. `note`: see as_utf8().
std::string read_input(const std::string& path, std::string* note = nullptr);

}  // namespace ballast
