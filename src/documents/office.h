// The text of Word and OpenDocument files.
#pragma once

#include <string>
#include <string_view>

namespace ballast {

/// Whether the bytes are of a ZIP archive, as office files are.
bool is_zip(std::string_view bytes);

/// The text of a .docx or an OpenDocument file: paragraphs, lists, tables and notes, as PageWriter
/// writes them; without what was deleted or remarked. `path`: what errors begin with; `note`: see
/// as_utf8(). Throws Error: unsupported, with the remedy, for other archives; bad_file for a
/// damaged one.
std::string office_text(std::string_view bytes, const std::string& path,
                        std::string* note = nullptr);

}  // namespace ballast
