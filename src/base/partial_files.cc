#include "base/partial_files.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

namespace ballast {
namespace {

// Taking a path out of its slot makes the taker its owner. The signal handler may not free memory:
// it keeps an unlinked path aside, and the next user of the slot frees it.
struct Slot {
  std::atomic<char*> path{};
  std::atomic<char*> removed{};
};
std::array<Slot, 16> partial_files;
static_assert(std::atomic<char*>::is_always_lock_free, "a signal handler uses it");

std::atomic<const char*> resumable{};

}  // namespace

void set_resumable_file(const std::string& path) {
  // Nothing is freed: the handler may be reading a path that is replaced.
  static std::mutex mutex;
  static std::deque<std::string>& paths = *new std::deque<std::string>;
  const std::lock_guard lock(mutex);
  resumable = path.empty() ? nullptr : paths.emplace_back(path).c_str();
}

const char* resumable_file() noexcept { return resumable; }

int note_partial_file(const std::string& path) {
  char* copy = ::strdup(path.c_str());
  for (std::size_t i = 0; copy != nullptr && i < partial_files.size(); ++i) {
    std::free(partial_files[i].removed.exchange(nullptr));
    char* empty = nullptr;
    if (partial_files[i].path.compare_exchange_strong(empty, copy)) return static_cast<int>(i);
  }
  std::free(copy);
  return -1;
}

void forget_partial_file(int note) {
  if (note >= 0) std::free(partial_files[static_cast<std::size_t>(note)].path.exchange(nullptr));
}

void remove_partial_files() noexcept {
  for (Slot& slot : partial_files) {
    if (char* path = slot.path.exchange(nullptr)) {
      ::unlink(path);
      slot.removed.store(path);
    }
  }
}

}  // namespace ballast
