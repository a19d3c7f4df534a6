#include "experiments/speed/scale.h"

#include "base/fail.h"
#include "base/os/memory.h"
#include "base/stopwatch.h"
#include "cache/mean_entries.h"
#include "experiments/speed/timed_batch.h"

namespace ballast {
namespace {

/// Reads one text with one method, measuring at every length.
void measure_method(const Model& model, const ScaleOptions& o, const Policy& policy,
                    std::vector<ScaleRow>& rows, const Advance& advance) {
  CacheOptions options = o.cache;
  options.policy = policy;
  options.protocol = Protocol::stream;
  options.expected_tokens = o.to;
  reset_peak_memory();
  TimedBatch text(model, options);
  const Stopwatch watch;
  for (std::size_t length = o.from; length <= o.to; length *= 2) {
    const std::size_t reading = length - o.generate - text.cache().tokens();
    ScaleRow row;
    row.method = policy.to_string();
    row.tokens = length;
    row.prompt_rate = static_cast<double>(reading) / text.read(reading);
    row.token_seconds = text.generate(o.generate) / static_cast<double>(o.generate);
    row.entries = mean_entries(text.cache());
    row.cache_bytes = text.cache().bytes().total();
    row.peak_memory = peak_memory();
    rows.push_back(row);
    if (advance) advance(static_cast<double>(length));
    if (o.seconds > 0 && watch.seconds() > o.seconds) return;
  }
}

}  // namespace

std::vector<ScaleRow> measure_scale(const Model& model, const ScaleOptions& o,
                                    const Advance& advance) {
  require(!o.policies.empty(), "nothing to measure: no method");
  require(o.generate > 0 && o.from / 2 > o.generate && o.from <= o.to,
          "lengths from {} to {}: expected a range whose least is more than twice the {} tokens "
          "that are generated",
          o.from, o.to, o.generate);
  check_lengths(model, o.cache, {o.to}, 0);
  std::vector<ScaleRow> rows;
  const auto total = static_cast<double>(o.policies.size());
  for (std::size_t i = 0; i < o.policies.size(); ++i) {
    measure_method(model, o, o.policies[i], rows, [&](double length) {
      if (advance) advance((static_cast<double>(i) + length / static_cast<double>(o.to)) / total);
    });
  }
  return rows;
}

}  // namespace ballast
