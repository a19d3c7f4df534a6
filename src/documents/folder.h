// The files of a folder that may be texts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "documents/document.h"

namespace ballast {

/// Files that are not hidden, at any depth, in the order of their names. What cannot be entered is
/// left out.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder);

/// Whether a file of a folder may be read as a text: its name or its first bytes say so.
bool may_be_text(const std::filesystem::path& path);

/// Whether the parts are pages of a PDF.
bool has_pages(const std::vector<DocumentPart>& parts);

}  // namespace ballast
