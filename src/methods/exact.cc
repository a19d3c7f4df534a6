// The whole cache: nothing is evicted.
#include "methods/registry.h"

namespace ballast {

const MethodInfo& exact_method() {
  static const MethodInfo info = {
      .name = "exact",
      .title = "every entry, the reference",
      .paper = "Vaswani et al. 2017",
      .parameters = {},
      .window_policy = WindowPolicy::all,
      .window = 0,
      .needs = {},
  };
  return info;
}

}  // namespace ballast
