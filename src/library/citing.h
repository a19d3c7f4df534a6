// What an answer from a section rests on, as places of its document.
#pragma once

#include <span>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "documents/passages.h"
#include "library/library.h"

namespace ballast {

/// The passage that the question's words found. Citation::part is in bytes of the document's text.
Citation found_passage(const FoundSection& found);

/// The citations of an answer from one section: see cite(). Their places and parts are those of the
/// document. Where the answer looked up hardly anything: the passage that was found, if one was.
/// `tokens`: of what was read of the section; `attention`: see Lookup.
std::vector<Citation> cite_section(const FoundSection& found, const Tokenizer& tokenizer,
                                   std::span<const Token> tokens, std::span<const float> attention);

}  // namespace ballast
