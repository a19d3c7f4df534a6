#include "serve/http/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace ballast::serve {

void Histogram::add(double seconds) {
  const std::scoped_lock lock(mutex_);
  ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(kBounds, seconds) - kBounds.begin())];
  sum_ += seconds;
}

std::string Histogram::to_text(const std::string& name, const std::string& help) const {
  const std::scoped_lock lock(mutex_);
  std::string out = fmt::format("# HELP {} {}\n# TYPE {} histogram\n", name, help, name);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    count += counts_[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], count);
  }
  count += counts_.back();
  return out + fmt::format("{}_bucket{{le=\"+Inf\"}} {}\n{}_sum {}\n{}_count {}\n", name, count,
                           name, sum_, name, count);
}

void Metrics::count_response(int status) {
  const std::scoped_lock lock(mutex_);
  ++responses_[status];
}

std::string Metrics::to_text(std::size_t memory_taken, std::size_t memory_total,
                             std::size_t contexts, std::size_t context_bytes) const {
  std::string out;
  auto add = [&](const char* name, const char* type, const char* help, auto value) {
    out += fmt::format("# HELP ballast_{0} {2}\n# TYPE ballast_{0} {1}\nballast_{0} {3}\n", name,
                       type, help, value);
  };
  add("prompt_tokens_total", "counter", "Prompt tokens that the model read", prompt_tokens.load());
  add("cached_tokens_total", "counter", "Prompt tokens found in a cache", cached_tokens.load());
  add("generated_tokens_total", "counter", "Tokens made", generated_tokens.load());
  add("decode_steps_total", "counter", "Decode steps, of one or more streams", steps.load());
  add("replay_pauses_total", "counter", "Pauses of replay passes, in which other streams go on",
      replay_pauses.load());
  add("cancelled_total", "counter", "Answers whose client left", cancelled.load());
  add("requests_queued", "gauge", "Requests that wait for a slot", queued.load());
  add("streams", "gauge", "Answers being read or generated", streams.load());
  add("memory_taken_bytes", "gauge", "Memory of weights, caches and scratch, as planned",
      memory_taken);
  add("memory_limit_bytes", "gauge", "Memory that may be taken", memory_total);
  add("prefixes", "gauge", "Caches kept for requests that begin alike", prefixes.load());
  add("prefixes_packed", "gauge", "More of these, packed", prefixes_packed.load());
  add("prefix_bytes", "gauge", "Memory of these", prefix_bytes.load());
  add("contexts", "gauge", "Contexts", contexts);
  add("context_bytes", "gauge", "Memory of contexts that are loaded", context_bytes);
  out += first_token.to_text("ballast_first_token_seconds", "From the request to the first token");
  out += token.to_text("ballast_token_seconds", "From one decode step to the next");
  const std::scoped_lock lock(mutex_);
  out += "# HELP ballast_responses_total HTTP responses\n# TYPE ballast_responses_total counter\n";
  for (const auto& [status, count] : responses_) {
    out += fmt::format("ballast_responses_total{{status=\"{}\"}} {}\n", status, count);
  }
  return out;
}

}  // namespace ballast::serve
