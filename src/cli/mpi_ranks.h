// The processes that mpirun has started.
#pragma once

#include <memory>

#include "ballast/engine/ranks.h"

namespace ballast::cli {

/// Null: mpirun did not start this process, or started it alone. Throws Error if the program was
/// built without MPI. Where an Error ends the process, mpirun ends the others.
std::shared_ptr<Ranks> mpi_ranks();

}  // namespace ballast::cli
