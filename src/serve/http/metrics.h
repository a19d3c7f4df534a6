// What the server counts, in the text format of Prometheus.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace ballast::serve {

/// Seconds, in buckets.
class Histogram {
 public:
  void add(double seconds);
  /// Lines of Prometheus for the metric `name`.
  std::string to_text(const std::string& name, const std::string& help) const;

 private:
  static constexpr std::array kBounds = {0.01, 0.025, 0.05, 0.1,  0.25, 0.5,
                                         1.0,  2.5,   5.0,  10.0, 30.0, 60.0};
  mutable std::mutex mutex_;
  std::array<std::uint64_t, kBounds.size() + 1> counts_ = {};
  double sum_ = 0;
};

/// Counters and gauges. Safe to use from many threads.
struct Metrics {
  std::atomic<std::uint64_t> prompt_tokens = 0;  ///< read by the model
  std::atomic<std::uint64_t> cached_tokens = 0;  ///< found in a cache
  std::atomic<std::uint64_t> generated_tokens = 0;
  std::atomic<std::uint64_t> steps = 0;          ///< decode steps
  std::atomic<std::uint64_t> replay_pauses = 0;  ///< of replay passes, for other streams
  std::atomic<std::uint64_t> cancelled = 0;      ///< answers whose client left
  std::atomic<std::size_t> queued = 0;
  std::atomic<std::size_t> streams = 0;          ///< choices being read or generated
  std::atomic<std::size_t> prefixes = 0;         ///< caches kept for their prefixes
  std::atomic<std::size_t> prefixes_packed = 0;  ///< of others that rest in memory
  std::atomic<std::size_t> prefix_bytes = 0;     ///< of both
  Histogram first_token;                         ///< from the request to the first token
  Histogram token;                               ///< between two decode steps of a stream

  void count_response(int status);
  std::string to_text(std::size_t memory_taken, std::size_t memory_total, std::size_t contexts,
                      std::size_t context_bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, std::uint64_t> responses_;
};

}  // namespace ballast::serve
