// PyramidKV: SnapKV with more room for the first layers than for the last ones.
// Cai et al. 2024; policy.cc computes the layers' budgets.
#include "methods/registry.h"
#include "methods/snapkv.h"

namespace ballast {

const MethodInfo& pyramidkv_method() {
  static const MethodInfo info = {
      .name = "pyramidkv",
      .title = "snapkv with a pyramid of layer budgets",
      .paper = "Cai et al. 2024, PyramidKV",
      .parameters = snapkv_parameters(),
      .step = 32,
      .pyramid = true,
      .needs = {.recent_queries = true},
      .make = make_snapkv,
  };
  return info;
}

}  // namespace ballast
