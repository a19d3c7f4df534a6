// The methods, in the order in which tables show them. Adding one: a line here.
#include "summary/registry.h"

#include <fmt/ranges.h>

#include <array>

#include "ballast/summary.h"
#include "base/fail.h"

namespace ballast {

std::span<const MethodInfo* const> methods() {
  // clang-format off
  static const std::array all = {
      &exact_method(),
      &balancekv_method(),
      &balancekv_stream_method(),
      &clustergen_method(),
      &kcenter_method(),
      &h2o_method(),
      &streaming_llm_method(),
      &local_method(),
      &uniform_method(),
      &snapkv_method(),
      &pyramidkv_method(),
      &topk_method(),
      &strided_method(),
      &fixed_method(),
      &spatten_method(),
      &replay_method(),
  };
  // clang-format on
  return all;
}

const MethodInfo& find_method(std::string_view name) {
  std::vector<std::string_view> known;
  for (const MethodInfo* method : methods()) {
    if (method->name == name) return *method;
    known.push_back(method->name);
  }
  fail("unknown method '{}'; known: {}", name, fmt::join(known, ", "));
}

std::unique_ptr<Summary> make_summary(const SummarySetup& setup) {
  const MethodInfo& info = setup.policy.info();
  return info.make == nullptr ? nullptr : info.make(setup);
}

void Summary::observe(std::span<const float>) {}

void Summary::observe_last(std::span<const float>) {}

void Summary::merge(const Summary&) {
  throw Error("this method's summaries do not unite; `ballast methods` shows those that do");
}

}  // namespace ballast
