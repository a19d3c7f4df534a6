// A disk that fills up.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstddef>

namespace ballast {

/// Files may grow to `bytes` and no further, as on a disk that is full then: the write that passes
/// it is cut short, the next one fails.
class FileLimit {
 public:
  explicit FileLimit(std::size_t bytes) {
    before_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const struct rlimit limit = {bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, before_);
  }

 private:
  struct rlimit old_ = {};
  void (*before_)(int) = nullptr;
};

}  // namespace ballast
