// Expressions as parts of a grammar.
#pragma once

#include <unicode/uniset.h>

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "serve/grammar/expression.h"

namespace ballast::serve {

/// The texts that match an expression as a whole. Throws Error as Expression does.
std::shared_ptr<const Grammar> parse_expression(std::string_view text);

/// How a character of a set is written.
using WriteCharacter = std::function<GrammarBuilder::Items(const icu::UnicodeSet&)>;

/// The texts that match all expressions, as wholes. Throws Error if none does, or if that takes
/// more than 20,000 states.
GrammarBuilder::Items matching(GrammarBuilder& builder, std::span<const Expression> expressions,
                               const WriteCharacter& write);

}  // namespace ballast::serve
