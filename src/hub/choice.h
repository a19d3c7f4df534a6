// Which model a name means.
#pragma once

#include <string>

namespace ballast::hub {

/// The path of the file, the folder or the model of this name that is here. Throws Error that says
/// what to type if there is none.
std::string resolve_model(const std::string& text);

/// The path of the one model that is here. Throws Error if there is none, or several.
std::string only_model();

}  // namespace ballast::hub
