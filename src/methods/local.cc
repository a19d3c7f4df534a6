// The last tokens only.
#include "methods/registry.h"

namespace ballast {

const MethodInfo& local_method() {
  static const MethodInfo info = {
      .name = "local",
      .title = "the last tokens only",
      .paper = "H2O, section 5 (baseline)",
      .parameters = {},
      .window_policy = WindowPolicy::rest,
      .window = 0,
      .keeps_generated = false,
      .needs = {},
  };
  return info;
}

}  // namespace ballast
