// Grammars in GBNF, llama.cpp's form, that answers are held to.
#pragma once

#include <memory>
#include <string_view>

#include "serve/grammar/grammar.h"

namespace ballast::serve {

/// Rules NAME ::= …, of which `root` is the first, of literals "…", classes […], any character
/// (.), names, groups, alternatives and repetitions (* + ? {m} {m,} {m,n}); # begins a comment.
/// Throws Error with the line on anything else, on a rule that begins with itself, and on
/// grammars above 64 KiB or 20,000 parts.
std::shared_ptr<const Grammar> parse_gbnf(std::string_view text);

}  // namespace ballast::serve
