#pragma once

#include <cstddef>

#include "ballast/engine/model.h"

namespace ballast::cli {

/// Bytes of this process besides pages of the model's files, plus an allowance for a run.
std::size_t program_memory(const Model& model);

}  // namespace ballast::cli
