// Running chat templates.
#pragma once

#include <string>

#include "text/jinja/parser.h"
#include "text/jinja/value.h"

namespace ballast::jinja {

/// What the template writes, given these variables. Throws Error that names the line.
std::string render(const Block& block, const Dict& variables, const Budget& budget);

}  // namespace ballast::jinja
