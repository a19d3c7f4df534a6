// Documents and answers for programs.
#pragma once

#include <string_view>

#include "library/asking.h"
#include "library/library.h"
#include "report/json.h"

namespace ballast {

/// id, name, tokens, sections, sections_read, bytes, text_bytes, added, files (paths).
Json to_json(const LibraryDocument& document, const Library& library);

/// An array of them.
Json to_json(const LibraryContent& content, const Library& library);

/// question, answer, supported, from (of documents), citations, and of each section that was asked
/// (documents) what it answered and how sure.
Json to_json(std::string_view question, const LibraryAnswer& answer, const Library& library);

}  // namespace ballast
