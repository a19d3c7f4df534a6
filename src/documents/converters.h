// Files that other programs turn into texts, where they are installed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ballast {

/// Whether a file of this name is one that pandoc (.epub, .rtf, .fb2) or LibreOffice (.doc, .xls,
/// .ppt and their followers) reads, and that program is in PATH.
bool can_convert(const std::string& name);

/// The text of such a file. `path`: what errors begin with. Throws Error: bad_file where the
/// program cannot read it.
std::string converted_text(std::string_view bytes, const std::string& name,
                           const std::string& path);

}  // namespace ballast
