// How much memory is available.
#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "ballast/engine/model.h"
#include "base/fail.h"

namespace ballast {
namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

std::size_t machine_memory() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  for (std::size_t kib = 0; in >> key >> kib; std::getline(in, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return kUnknown;
}

/// The value of `key` in a file of keys and values; 0 if it is missing.
std::size_t read_entry(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  std::string name;
  for (std::size_t number = 0; in >> name >> number;) {
    if (name == key) return number;
  }
  return 0;
}

std::size_t read_number(const std::string& path, std::size_t otherwise) {
  std::ifstream in(path);
  std::size_t number = 0;
  return in >> number ? number : otherwise;
}

/// What the limits of this process's control group and of its ancestors leave (version 2).
std::size_t group_memory() {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  std::size_t least = kUnknown;
  while (std::getline(in, line)) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = line.substr(3);; group.erase(group.find_last_of('/'))) {
      const std::string folder = "/sys/fs/cgroup" + group + (group == "/" ? "" : "/");
      const std::size_t most = read_number(folder + "memory.max", kUnknown);
      // The system drops pages of files, the model's among them, when memory is needed.
      const std::size_t pages =
          read_entry(folder + "memory.stat", "file") - read_entry(folder + "memory.stat", "shmem");
      const std::size_t held = read_number(folder + "memory.current", 0);
      const std::size_t used = held - std::min(held, pages);
      if (most != kUnknown) least = std::min(least, most - std::min(most, used));
      if (group.find_last_of('/') == std::string::npos || group.size() < 2) break;
    }
  }
  return least;
}

double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

std::size_t available_memory() { return std::min(machine_memory(), group_memory()); }

void require_memory(const MemoryEstimate& estimate, std::size_t available, std::string_view what) {
  require(
      estimate.total() <= available, ErrorCode::out_of_memory,
      "{} needs {:.2f} GiB of memory ({:.2f} weights, {:.2f} cache, {:.2f} scratch), {:.2f} GiB "
      "are available: choose a smaller budget, --protocol stream, or a smaller --cache-type",
      what, gib(estimate.total()), gib(estimate.weights), gib(estimate.cache),
      gib(estimate.scratch), gib(available));
}

}  // namespace ballast
