#include "ballast/model.h"

#include <algorithm>

#include "base/fail.h"
#include "model/forward.h"

namespace ballast {

Model::Model(const std::filesystem::path& path)
    : file_(std::make_unique<ModelFile>(path)), weights_(std::make_unique<ModelWeights>(*file_)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const { return file_->config(); }
const ModelFile& Model::file() const { return *file_; }

CacheShape Model::cache_shape() const {
  const ModelConfig& c = config();
  CacheShape shape;
  shape.layers = c.layers;
  shape.kv_heads = c.kv_heads;
  shape.group = c.heads / c.kv_heads;
  shape.key_dim = c.key_dim;
  shape.value_dim = c.value_dim;
  shape.logits.scale = c.attention_scale;
  shape.logits.softcap = c.attention_softcap;
  const bool slides = std::ranges::any_of(c.sliding_windows, [](auto w) { return w > 0; });
  for (std::size_t w : c.sliding_windows) {
    if (slides) shape.sliding_windows.push_back(static_cast<Position>(w));
  }
  if (c.alibi_max_bias > 0.0f) shape.alibi_slopes = alibi_slopes(c.heads, c.alibi_max_bias);
  return shape;
}

Sequence::Sequence(const Model& model, const CacheOptions& options)
    : cache_((require_memory({0, model.estimate(options, options.expected_tokens).cache, 0},
                             available_memory(), "the cache"),
              model.cache_shape()),
             options),
      frequencies_(model.config().rope.frequencies(options.expected_tokens)) {}

Sequence::Sequence(const Model& model, Cache cache)
    : cache_(std::move(cache)),
      frequencies_(model.config().rope.frequencies(
          std::max(cache_.options().expected_tokens, cache_.tokens()))),
      prompt_finished_(true) {
  const CacheShape& have = cache_.shape();
  const CacheShape want = model.cache_shape();
  require(
      have.layers == want.layers && have.kv_heads == want.kv_heads && have.group == want.group &&
          have.key_dim == want.key_dim && have.value_dim == want.value_dim &&
          have.logits.scale == want.logits.scale && have.logits.softcap == want.logits.softcap &&
          have.sliding_windows == want.sliding_windows && have.alibi_slopes == want.alibi_slopes,
      "the cache is of another model: it has {} layers of {} × {} heads of {} numbers, "
      "{} has {} of {} × {} of {}",
      have.layers, have.kv_heads, have.group, have.key_dim, model.file().path().string(),
      want.layers, want.kv_heads, want.group, want.key_dim);
}

void Sequence::finish_prompt() {
  cache_.finish_prompt();
  prompt_finished_ = true;
}

}  // namespace ballast
