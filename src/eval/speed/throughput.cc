#include "eval/speed/throughput.h"

#include <algorithm>

#include "base/fail.h"
#include "eval/single_layer/mean_entries.h"
#include "eval/speed/timed_batch.h"

namespace ballast {
namespace {

/// The default chunk of a prefill in tokens.
constexpr std::size_t kChunk = 256;

/// The largest batch whose weights, scratch and caches fit, also during a prefill.
std::size_t largest_batch(const Model& model, const ThroughputOptions& o,
                          const ThroughputRow& row) {
  const CacheOptions any;
  std::size_t best = 0;
  for (std::size_t batch = 1; batch <= o.most_batch; ++batch) {
    const MemoryEstimate e = model.estimate(any, o.generate, 0, std::max(kChunk, batch));
    const std::size_t fixed =
        e.weights + e.scratch + batch * model.config().vocabulary * sizeof(float);
    const std::size_t caches =
        (batch - 1) * row.sequence_bytes + std::max(row.reading_bytes, row.sequence_bytes);
    if (fixed + caches > row.memory) break;
    best = batch;
  }
  return best;
}

ThroughputRow measure(const Model& model, const ThroughputOptions& o, std::size_t memory,
                      std::size_t prompt, const Policy& policy) {
  ThroughputRow row;
  row.memory = memory;
  row.method = policy.to_string();
  row.prompt = prompt;
  row.generated = o.generate;
  CacheOptions options = o.cache;
  options.policy = policy;
  options.expected_tokens = prompt + o.generate;
  TimedBatch batch(model, options);
  const double reading = batch.read(prompt);
  row.reading_bytes = batch.cache().bytes().total();
  const double compressing = batch.finish_prompt();
  row.entries = mean_entries(batch.cache());
  row.sequence_bytes = batch.cache().bytes().total();
  row.batch = largest_batch(model, o, row);
  if (row.batch == 0) return row;
  row.capped = row.batch == o.most_batch;
  row.prompt_seconds = reading + compressing;
  row.prompts_read = 1;
  if (o.read_once) {
    row.prompt_seconds *= static_cast<double>(row.batch);
    batch.copy_to(row.batch);
  }
  for (; batch.size() < row.batch; ++row.prompts_read) {
    row.prompt_seconds += batch.add_read(prompt);
  }
  row.decode_seconds = batch.generate(o.generate);
  return row;
}

}  // namespace

double ThroughputRow::rate() const {
  const double seconds = prompt_seconds + decode_seconds;
  return seconds > 0 ? static_cast<double>(batch * generated) / seconds : 0;
}

double ThroughputRow::decode_rate() const {
  return decode_seconds > 0 ? static_cast<double>(batch * generated) / decode_seconds : 0;
}

std::vector<ThroughputRow> measure_throughput(const Model& model, const ThroughputOptions& o,
                                              const Advance& advance) {
  require(!o.policies.empty() && !o.prompts.empty() && o.generate > 0 && !o.memory.empty() &&
              o.repeat > 0,
          "nothing to measure: no method, no prompt, no memory, no run or no token to generate");
  const std::size_t most = std::ranges::max(o.memory);
  require(most <= available_memory(), "--memory {:.2f} GiB exceeds the {:.2f} GiB available",
          static_cast<double>(most) / (1 << 30),
          static_cast<double>(available_memory()) / (1 << 30));
  check_lengths(model, o.cache, o.prompts, o.generate);
  std::vector<ThroughputRow> rows;
  const std::size_t policies = o.policies.size();
  const auto total = static_cast<double>(o.memory.size() * o.prompts.size() * o.repeat * policies);
  std::size_t done = 0;
  for (std::size_t memory : o.memory) {
    for (std::size_t prompt : o.prompts) {
      for (std::size_t run = 0; run < o.repeat; ++run) {
        for (std::size_t p = 0; p < policies; ++p) {
          const ThroughputRow row = measure(model, o, memory, prompt, o.policies[p]);
          if (run == 0) {
            rows.push_back(row);
          } else {
            ThroughputRow& best = rows[rows.size() - policies + p];
            best.prompt_seconds = std::min(best.prompt_seconds, row.prompt_seconds);
            best.decode_seconds = std::min(best.decode_seconds, row.decode_seconds);
          }
          if (advance) advance(static_cast<double>(++done) / total);
        }
      }
    }
  }
  return rows;
}

}  // namespace ballast
