// Texts that people hand in: UTF-8, or refused by the name of what they are instead.
#pragma once

#include <filesystem>
#include <string>

namespace ballast {

/// `text` without a byte order mark. Throws Error (unsupported) that begins with `name` if it is no
/// UTF-8 text: UTF-16, UTF-32, or bytes with a zero among them, of a kind that is named where it is
/// known.
std::string as_utf8(std::string text, const std::string& name);

/// The text of a file by as_utf8(). Throws Error, too, if it cannot be read.
std::string read_utf8(const std::filesystem::path& path);

/// The same; "-": of standard input.
std::string read_input(const std::string& path);

}  // namespace ballast
