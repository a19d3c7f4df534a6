// The unfinished files of this process: a signal handler removes them, or names the one from which
// the same command goes on.
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

/// Sets the file that stays when the command ends early, because the same command goes on from it;
/// empty: none.
void set_resumable_file(const std::string& path);
/// nullptr: none. Safe in a signal handler.
const char* resumable_file() noexcept;

}  // namespace ballast
