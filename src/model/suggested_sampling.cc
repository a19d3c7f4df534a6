#include "model/suggested_sampling.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "ballast/engine/gguf.h"
#include "base/read_file.h"
#include "formats/json.h"
#include "formats/json_text.h"

namespace ballast {
namespace {

using Look = std::function<std::optional<double>(const std::string& name)>;

void take(SamplingOptions& out, const Look& look) {
  if (const auto t = look("temperature"); t && *t >= 0 && *t <= 2) {
    out.temperature = static_cast<float>(*t);
  }
  if (const auto k = look("top_k"); k && *k >= 0 && *k <= 1e6) {
    out.top_k = static_cast<std::size_t>(*k);
  }
  if (const auto p = look("top_p"); p && *p > 0 && *p <= 1) out.top_p = static_cast<float>(*p);
  if (const auto p = look("min_p"); p && *p >= 0 && *p < 1) out.min_p = static_cast<float>(*p);
}

}  // namespace

SamplingOptions suggested_sampling(const TokenizerSource& files, SamplingOptions standard) {
  if (const Gguf* gguf = files.gguf) {
    take(standard, [&](const std::string& name) {
      return gguf->find<double>("general.sampling." + (name == "temperature" ? "temp" : name));
    });
    return standard;
  }
  const std::filesystem::path path = files.folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return standard;
  const SortedJson config = parse_json_text<SortedJson>(
      read_file(path, {.most = std::size_t{1} << 20, .pipes = false}), path.string());
  if (!config.is_object()) return standard;
  take(standard, [&](const std::string& name) -> std::optional<double> {
    const auto found = config.find(name);
    if (found == config.end() || !found->is_number()) return std::nullopt;
    return found->get<double>();
  });
  if (config.value("do_sample", SortedJson()) == false) standard.temperature = 0;
  return standard;
}

}  // namespace ballast
