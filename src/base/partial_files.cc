#include "base/partial_files.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace ballast {
namespace {

// Whoever takes a pointer out of its slot owns it: the handler unlinks what it takes and leaks it,
// since it may not free; forget_partial_file frees what it takes.
std::array<std::atomic<char*>, 16> partial_files{};
static_assert(std::atomic<char*>::is_always_lock_free, "a signal handler uses it");

}  // namespace

int note_partial_file(const std::string& path) {
  char* copy = ::strdup(path.c_str());
  for (std::size_t i = 0; copy != nullptr && i < partial_files.size(); ++i) {
    char* empty = nullptr;
    if (partial_files[i].compare_exchange_strong(empty, copy)) return static_cast<int>(i);
  }
  std::free(copy);
  return -1;
}

void forget_partial_file(int note) {
  if (note >= 0) std::free(partial_files[static_cast<std::size_t>(note)].exchange(nullptr));
}

void remove_partial_files() noexcept {
  for (auto& slot : partial_files) {
    if (char* path = slot.exchange(nullptr)) ::unlink(path);
  }
}

}  // namespace ballast
