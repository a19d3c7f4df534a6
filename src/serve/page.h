// The page at /, from page.html.
#pragma once

#include <string_view>

namespace ballast::serve {

std::string_view page();

}  // namespace ballast::serve
