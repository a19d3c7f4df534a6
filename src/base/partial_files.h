// The unfinished files of this process, which a signal handler removes.
#pragma once

#include <string>

namespace ballast {

/// Registers `path` for removal when the process is interrupted. Returns the registration's number,
/// or -1 when too many are taken; the file then remains after an interrupt.
int note_partial_file(const std::string& path);

/// Unregisters a file that is finished or removed. Does nothing for -1.
void forget_partial_file(int note);

/// Removes every registered file. Safe in a signal handler.
void remove_partial_files() noexcept;

}  // namespace ballast
