// How much memory there is, and how much a model will take.
#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "attention/rotary.h"
#include "ballast/model.h"
#include "ballast/threads.h"
#include "base/fail.h"
#include "model/forward.h"

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

/// The number that follows `key` in a file of keys and numbers.
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

/// What the limits of this process's control group, and of those around it, leave (version 2).
std::size_t group_memory() {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  std::size_t least = kUnknown;
  while (std::getline(in, line)) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = line.substr(3);; group.erase(group.find_last_of('/'))) {
      const std::string folder = "/sys/fs/cgroup" + group + (group == "/" ? "" : "/");
      const std::size_t most = read_number(folder + "memory.max", kUnknown);
      // Pages of files, this model's among them, give way when memory is asked for.
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

std::size_t entry_bytes(StorageType type, std::size_t dim) {
  return row_bytes(type, dim) + row_scales(type, dim) * sizeof(std::uint16_t);
}

/// What a method remembers of an entry beside its key and value: position, weight, where it
/// belongs. Between 18 and 41 bytes, by method.
constexpr std::size_t kBookkeeping = 32;

/// What one KV head holds, in entries of one size and in bytes beside them.
struct HeadNeed {
  std::size_t entries = 0;
  std::size_t beside = 0;
};

/// After a method's work, of a text of that many tokens, `kept` of them in a summary.
HeadNeed need_of(const CacheOptions& options, const ModelConfig& c, std::size_t entries,
                 std::size_t kept) {
  const Watch::Kind watch = options.policy.watch().kind;
  const bool accumulates = watch == Watch::Kind::every || watch == Watch::Kind::both;
  return {entries,
          kept * kBookkeeping + (accumulates ? entries * sizeof(float) : 0) +
              options.policy.observed() * c.heads / c.kv_heads * c.key_dim * sizeof(float)};
}

/// Rolling positions: keys at their places in the cache, for each thread that works on a head.
std::size_t rolling_scratch(const ModelConfig& c, std::size_t entries) {
  const auto busy = std::min(static_cast<std::size_t>(threads()), c.kv_heads);
  return busy * entries * (c.key_dim * sizeof(float) + 2 * sizeof(Position));
}

}  // namespace

std::size_t available_memory() { return std::min(machine_memory(), group_memory()); }

void require_memory(const MemoryEstimate& estimate, std::size_t available, std::string_view what) {
  require(
      estimate.total() <= available,
      "{} needs {:.2f} GiB of memory ({:.2f} weights, {:.2f} cache, {:.2f} scratch), {:.2f} GiB "
      "are available: choose a smaller budget, --protocol stream, or a smaller --cache-type",
      what, gib(estimate.total()), gib(estimate.weights), gib(estimate.cache),
      gib(estimate.scratch), gib(available));
}

MemoryEstimate Model::estimate(const CacheOptions& options, std::size_t tokens,
                               std::size_t chunk) const {
  const ModelConfig& c = config();
  const std::size_t entry =
      entry_bytes(options.key_type, c.key_dim) + entry_bytes(options.value_type, c.value_dim);
  HeadNeed all;
  std::size_t largest = 0, most = 0;
  for (std::size_t l = 0; l < c.layers; ++l) {
    const Shares shares = options.policy.shares(std::max<std::size_t>(tokens, 1), options.protocol,
                                                static_cast<int>(l), static_cast<int>(c.layers));
    const bool everything = options.policy.info().share == WindowShare::all;
    const bool fits = everything || tokens <= shares.total();
    const std::size_t kept = fits ? tokens : shares.total();
    // prefill holds the whole prompt until its end.
    const bool whole = fits || options.protocol == Protocol::prefill;
    const HeadNeed need = need_of(options, c, whole ? tokens : kept, whole ? 0 : shares.summary);
    all.entries += need.entries;
    all.beside += need.beside;
    // A layer's old and new form stand side by side while it is summarised.
    if (!fits) largest = std::max(largest, kept);
    most = std::max(most, need.entries);
  }
  MemoryEstimate estimate;
  estimate.weights = file().bytes() + weights_->copied_bytes;
  estimate.cache = c.kv_heads * (all.entries * entry + all.beside);
  estimate.scratch = ForwardScratch::bytes(c, std::min(chunk, std::max<std::size_t>(tokens, 1))) +
                     c.vocabulary * sizeof(float) + largest * c.kv_heads * (entry + kBookkeeping);
  if (options.positions == Positions::rolling) {
    estimate.cache += RotaryTable::bytes_for(most + 1, c.rope.dimension / 2);
    estimate.scratch += rolling_scratch(c, most);
  }
  return estimate;
}

std::size_t Model::exact_bytes(const Cache& cache) const {
  CacheOptions exact = cache.options();
  exact.policy = Policy();
  return estimate(exact, std::max(cache.tokens(), exact.expected_tokens)).cache;
}

}  // namespace ballast
