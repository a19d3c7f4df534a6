#include "ballast/engine/guard.h"

#include "base/fail.h"

namespace ballast {
namespace {

constexpr const char* kSizes[] = {"1/16", "1/8", "1/4", "1/2"};

}  // namespace

CacheOptions Guard::reading(CacheOptions options) const {
  const Policy method = model_.policy_for(kSizes[0]);
  options.policy = method;
  const std::string why = Gauge::why_not(model_, options);
  require(why.empty(), ErrorCode::unsupported,
          "a size that is chosen for the text needs the exact cache to compare with, but {}; give "
          "a size, such as 1/8",
          why);
  options.policy = Policy();
  options.recording.include(method);
  return options;
}

bool Guard::finish(Engine& engine, Sequence& sequence, const ReplayOptions& options,
                   Guarded& out) const {
  if (!engine.replay(sequence, options)) return false;
  Gauge gauge(options.wording);
  gauge.read_exact(engine, sequence);
  for (const char* bytes : kSizes) {
    Sequence fork = sequence.fork(model_.policy_for(bytes), sequence.cache().options().seed);
    fork.finish_prompt();
    const auto reading = gauge.read(engine, fork);
    if (!reading) break;
    out.tried.push_back({bytes, *reading});
    if (reading->kl > bound_) continue;
    sequence = std::move(fork);
    return true;
  }
  out.exact = true;
  sequence.finish_prompt();
  return true;
}

}  // namespace ballast
