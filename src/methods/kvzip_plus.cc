// KVzip+: KVzip with attention weighed by what its value writes into the residual stream, in
// proportion to that: p |W_O^T v| / |x|. in KVzap (2026, arXiv:2601.07891).
#include "methods/registry.h"
#include "methods/replay.h"

namespace ballast {

const MethodInfo& kvzip_plus_method() {
  static const MethodInfo info = {
      .name = "kvzip-plus",
      .title = "kvzip with attention weighed by values and residuals",
      .paper = "KVzip+, in KVzap (2026, arXiv:2601.07891)",
      .parameters = rereading_parameters("bf16", "2048", "0"),
      .sink = 4,
      .window = 0,
      .global_budget = true,
      .needs = {.replay = ReplayScore::max},
      .needs_of = [](const Policy& policy) -> Needs {
        return {.replay = ReplayScore::max, .replay_own = reads_own(policy)};
      },
      .make = make_tiered,
  };
  return info;
}

}  // namespace ballast
