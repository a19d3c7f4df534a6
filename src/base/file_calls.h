// What committing a file asks of the system: a seam where tests put faults.
#pragma once

namespace ballast {

/// As the calls of the same names, with errno.
struct FileCalls {
  int (*fsync)(int file);
  int (*rename)(const char* from, const char* to);
};

/// The calls in use, those of the system unless a test has changed them.
FileCalls& file_calls();

}  // namespace ballast
