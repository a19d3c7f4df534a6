// The first tokens, which attention uses as a sink, and the last ones.
#include "methods/registry.h"

namespace ballast {

const MethodInfo& streaming_llm_method() {
  static const MethodInfo info = {
      .name = "streaming-llm",
      .title = "the first tokens (attention sinks) and the last ones",
      .paper = "Xiao et al. 2024, StreamingLLM",
      .parameters = {},
      .sink = 4,
      .window_policy = WindowPolicy::rest,
      .window = 0,
      .keeps_generated = false,
      .needs = {},
  };
  return info;
}

}  // namespace ballast
