// The unfinished files of this process, so that a signal can take them away.
#pragma once

#include <string>

namespace ballast {

/// Notes that `path` is to go when the process is interrupted. The number names the note; -1 when
/// too many are taken, the file then stays behind after an interrupt.
int note_partial_file(const std::string& path);

/// The file is finished or gone. Does nothing for -1.
void forget_partial_file(int note);

/// Removes every noted file. Made to be called from a signal handler.
void remove_partial_files() noexcept;

}  // namespace ballast
