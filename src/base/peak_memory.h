// The most memory that this process has held.
#pragma once

#include <cstddef>

namespace ballast {

/// Bytes (VmHWM), pages of mapped files included; 0 if the system does not say.
std::size_t peak_memory();

/// Restarts the count, where the system allows it.
void reset_peak_memory();

}  // namespace ballast
