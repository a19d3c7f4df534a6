#include "experiments/data/packed_variant.h"

#include <string_view>

#include "ballast/engine/packing.h"

namespace ballast {
namespace {
constexpr std::string_view kPrefix = "packed:";
}

std::string packed_form(const std::string& method) {
  return method.starts_with(kPrefix) ? method.substr(kPrefix.size()) : "";
}

Policy policy_of(const std::string& method) {
  return Policy::parse(packed_form(method).empty() ? method : "exact");
}

Unpacked through_packing(const Model& model, const Sequence& exact, const std::string& form) {
  const PackPreset preset = pack_preset(model, form);
  const auto codec = find_pack_codec(model);
  const std::vector<std::byte> file = pack(exact.cache(), *codec, preset);
  const auto text = exact.text();
  return {Sequence(model, unpack(file, "packed:" + form, *codec), {text.begin(), text.end()}),
          file.size()};
}

}  // namespace ballast
