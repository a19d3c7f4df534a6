#include "model/ranks.h"

#include <fmt/format.h>

#include "ballast/engine/calibration.h"
#include "ballast/engine/model.h"
#include "ballast/version.h"
#include "base/fail.h"
#include "base/fnv.h"

namespace ballast {

void require_equal(Ranks& ranks, std::span<const std::byte> bytes, std::string_view name) {
  Fnv hash;
  hash.add(bytes);
  const std::uint64_t mine = hash.value();
  std::vector<std::uint64_t> all(ranks.size());
  ranks.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 0; r < all.size(); ++r) {
    require(all[r] == all[0], "ranks 0 and {} have different {}", r, name);
  }
}

CacheOptions options_of_layers(const CacheOptions& options, const ModelConfig& whole,
                               const ModelConfig& share) {
  const Policy& policy = options.policy;
  if (!policy.has("bytes") || policy.memory("bytes").unit != MemorySize::Unit::bytes)
    return options;
  const double layer =
      policy.memory("bytes").amount / static_cast<double>(whole.attending().size());
  CacheOptions out = options;
  // As many bytes a layer on every rank, so that all compress at the same token.
  out.policy = policy.with(
      "bytes", fmt::format("{}B", static_cast<std::size_t>(layer) * share.attending().size()));
  return out;
}

void require_same_model(const Model& model, Ranks& ranks) {
  const std::string runs =
      fmt::format("{} {} {}", calibration_key(model), model.file().bytes(), BALLAST_VERSION);
  require_equal(ranks, std::as_bytes(std::span(runs)), "models or versions");
}

}  // namespace ballast
