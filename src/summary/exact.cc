// The whole cache, nothing summarised.
#include "summary/registry.h"

namespace ballast {

const MethodInfo& exact_method() {
  static const MethodInfo info = {
      .name = "exact",
      .title = "every entry, the reference",
      .paper = "Vaswani et al. 2017",
      .parameters = {},
      .share = WindowShare::all,
      .window = 0,
      .watch = {},
  };
  return info;
}

}  // namespace ballast
