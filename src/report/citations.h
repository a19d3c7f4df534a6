// The sentences that an answer rests on, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "documents/passages.h"
#include "report/json.h"

namespace ballast {

/// A line each, "  [a.pdf, page 3, line 12] The sentence."; one that says so where there is none.
std::string to_text(const std::vector<Citation>& citations);

/// An array of objects: document, page (of a PDF), line (not of a web page), text, share, tokens
/// (first and end).
Json to_json(const std::vector<Citation>& citations);

}  // namespace ballast
