// KVzip: the text is read a second time; the entries of all layers and heads that get the most
// attention there are kept as they are. Kim et al. 2025 (arXiv:2505.23416), section 3 and equation
// 2: the score of an entry is the largest attention over queries and query heads of its KV head.
#include "methods/registry.h"
#include "methods/replay.h"

namespace ballast {

const MethodInfo& kvzip_method() {
  static const MethodInfo info = {
      .name = "kvzip",
      .title = "read twice; the entries that get most attention, over all layers and heads",
      .paper = "Kim et al. 2025, KVzip (arXiv:2505.23416), section 3",
      .parameters = rereading_parameters("bf16", "2048", "0"),
      .sink = 4,
      .window = 0,
      .global_budget = true,
      .needs = {.replay = ReplayScore::plain},
      .needs_of = [](const Policy& policy) -> Needs {
        return {.replay = ReplayScore::plain, .replay_own = reads_own(policy)};
      },
      .make = make_tiered,
  };
  return info;
}

}  // namespace ballast
