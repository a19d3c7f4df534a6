#include "ballast/engine/model.h"

#include <algorithm>

#include "ballast/engine/calibration.h"
#include "base/fail.h"
#include "cache/byte_budget.h"
#include "methods/replay.h"
#include "model/layer_pages.h"
#include "model/layer_share.h"
#include "model/ranks.h"
#include "model/value_norms.h"
#include "model/weights.h"

namespace ballast {
namespace {

/// Elements of the state of a layer that does not attend: what a convolution sees before a token,
/// then a matrix for each head of the delta rule.
std::size_t state_size(const ModelConfig& c, std::size_t layer) {
  const bool delta = c.kind(layer) == LayerKind::delta_rule;
  return (c.conv_width - 1) * c.conv_channels(layer) +
         (delta ? c.delta_value_heads * c.delta_key_dim * c.delta_value_dim : 0);
}

}  // namespace

Model::Model(const std::filesystem::path& path)
    : file_(std::make_shared<ModelFile>(path)),
      weights_(std::make_shared<ModelWeights>(*file_, file_->config())) {
  calibration_ = find_calibration(*this);
  fit_weights();
}

void Model::fit_weights() {
  const std::size_t available = available_memory();
  if (estimate(CacheOptions{}, config().max_positions).weights > available) {
    limit_weights(available / 2);
  }
}

void Model::limit_weights(std::size_t bytes) {
  pages_ = nullptr;
  const std::size_t whole = estimate(CacheOptions{}, config().max_positions).weights;
  if (whole > bytes) {
    pages_ =
        std::make_shared<LayerPages>(*file_, config(), share_ ? share_->first() : 0, whole, bytes);
  }
}

Policy Model::policy_for(std::string_view bytes) const {
  // What means gain: docs/methods.md. A stream has none.
  return Policy::parse(calibration_ ? "calibrated:means=0.02" : "replay").with("bytes", bytes);
}

void Model::split_layers(std::shared_ptr<Ranks> ranks) {
  require_same_model(*this, *ranks);
  auto share = std::make_shared<const LayerShare>(config(), std::move(ranks));
  auto weights = std::make_shared<ModelWeights>(*file_, share->config(), share->first());
  weights->pictures = weights_->pictures;
  if (calibration_) {
    const auto before = std::ranges::count_if(weights_->attending,
                                              [&](std::size_t l) { return l < share->first(); });
    calibration_ = calibration_->part(static_cast<std::size_t>(before), weights->attending.size());
  }
  share_ = std::move(share);
  weights_ = std::move(weights);
  pages_ = nullptr;
  fit_weights();
}

const ModelConfig& Model::config() const { return share_ ? share_->config() : file_->config(); }
const ModelFile& Model::file() const { return *file_; }

CacheShape Model::cache_shape(std::size_t context) const {
  const ModelConfig& c = config();
  CacheShape shape;
  shape.layers = weights_->attending.size();
  shape.kv_heads = c.kv_heads;
  shape.queries_per_kv_head = c.heads / c.kv_heads;
  shape.key_dim = c.key_dim;
  shape.value_dim = c.value_dim;
  shape.logits.scale = c.attention_scale;
  shape.logits.softcap = c.attention_softcap;
  const bool slides = std::ranges::any_of(c.sliding_windows, [](auto w) { return w > 0; });
  for (std::size_t l : weights_->attending) {
    if (slides) shape.sliding_windows.push_back(static_cast<Position>(c.sliding_windows[l]));
    const std::vector<float>& sinks = weights_->layers[l].sink_logits;
    shape.sink_logits.insert(shape.sink_logits.end(), sinks.begin(), sinks.end());
  }
  if (c.alibi_max_bias > 0.0f) shape.alibi_slopes = alibi_slopes(c.heads, c.alibi_max_bias);
  const auto rotary = [&](const Rope& rope) -> Rotary {
    if (rope.style == RopeStyle::none) return {};
    return {rope.frequencies(context), rope.magnitude, rope.style == RopeStyle::pairs};
  };
  shape.rotary = rotary(c.rope);
  for (std::size_t l : weights_->attending) {
    if (!c.takes_second_rope.empty()) shape.rotations.push_back(rotary(c.rope_of(l)));
  }
  for (std::size_t l = 0; l < c.layers; ++l) {
    if (c.kind(l) != LayerKind::attention) shape.recurrent.push_back(state_size(c, l));
  }
  return shape;
}

bool is_endless(const CacheOptions& options) {
  return options.positions == Positions::rolling || reach_of(options.policy) > 0;
}

bool Model::turns_only() const {
  return !config().learned_positions && !config().norms_after_rope && config().query_growth == 0.0f;
}

CacheOptions Model::cache_options(CacheOptions options) const {
  if (options.positions == Positions::rolling && options.protocol == Protocol::stream &&
      takes_reach(options.policy)) {
    options.positions = Positions::absolute;
    if (reach_of(options.policy) == 0) {
      options.policy = options.policy.with("reach", std::to_string(config().max_positions));
    }
  }
  return options;
}

namespace {

/// A cache for the model. Checks first that the options suit it and that memory suffices.
Cache make_cache(const Model& model, const CacheOptions& given) {
  const ModelConfig& config = model.config();
  CacheOptions options = model.cache_options(given);
  options.value_norms = make_value_norms(model);
  if (is_endless(options)) {
    require(!config.learned_positions, ErrorCode::unsupported,
            "{}: {} has learned positions, which cannot be rolling", model.file().path().string(),
            to_string(config.family));
    const bool rolls = options.positions == Positions::rolling;
    require(model.turns_only() && (!rolls || config.takes_second_rope.empty()),
            ErrorCode::unsupported,
            "{}: rolling positions need keys that differ by one rotation only, and {} has more; "
            "leave --positions rolling out",
            model.file().path().string(), to_string(config.family));
  }
  if (options.positions == Positions::rolling) {
    const bool stream = options.protocol == Protocol::stream;
    const Policy counted =
        fit_bytes(model.cache_shape(options.expected_tokens), options, options.expected_tokens);
    const Budget budget =
        counted.budget(std::max<std::size_t>(1, options.expected_tokens), options.protocol, 0,
                       static_cast<int>(model.weights().attending.size()));
    require(!stream || options.policy.info().window_policy == WindowPolicy::all ||
                budget.total() <= config.max_positions,
            ErrorCode::over_limit,
            "{}: a budget of {} entries, but the model has {} positions: give budget={} or less",
            model.file().path().string(), budget.total(), config.max_positions,
            config.max_positions);
  }
  MemoryEstimate estimate = model.estimate(options, options.expected_tokens);
  estimate.weights = estimate.scratch = 0;  // there already
  require_memory(estimate, available_memory(), "the cache");
  return Cache(model.cache_shape(options.expected_tokens), options);
}

}  // namespace

Sequence::Sequence(const Model& model, const CacheOptions& options)
    : cache_(make_cache(model, options)) {}

Sequence::Sequence(const Model& model, Cache cache, std::vector<Token> text)
    : cache_(std::move(cache)), prompt_finished_(true), text_(std::move(text)) {
  require(text_.size() <= tokens(), "a text of {} tokens for a cache of {}", text_.size(),
          tokens());
  unknown_ = tokens() - text_.size();
  const CacheShape& have = cache_.shape();
  const CacheShape want = model.cache_shape(cache_.options().expected_tokens);
  require(
      have.layers == want.layers && have.kv_heads == want.kv_heads &&
          have.queries_per_kv_head == want.queries_per_kv_head && have.key_dim == want.key_dim &&
          have.value_dim == want.value_dim && have.logits.scale == want.logits.scale &&
          have.logits.softcap == want.logits.softcap &&
          have.sliding_windows == want.sliding_windows && have.alibi_slopes == want.alibi_slopes &&
          have.sink_logits == want.sink_logits && have.recurrent == want.recurrent,
      "the cache is of another model: it has {} layers of {} × {} heads of {} numbers, "
      "{} has {} of {} × {} of {}",
      have.layers, have.kv_heads, have.queries_per_kv_head, have.key_dim,
      model.file().path().string(), want.layers, want.kv_heads, want.queries_per_kv_head,
      want.key_dim);
  set_host(cache_, cache_.options().pool, make_value_norms(model));
}

std::size_t Sequence::positions_after(std::size_t more) const {
  const CacheOptions& options = cache_.options();
  if (options.positions == Positions::absolute) {
    const std::size_t reach = reach_of(options.policy), all = tokens() + more;
    return reach > 0 ? std::min(all, reach) : all;
  }
  const std::size_t kept = cache_.entries() + more;
  // A budget holds at every step of a stream. In prefill it holds once the prompt is summarized,
  // unless generated tokens are kept.
  const bool bounded = options.policy.info().window_policy != WindowPolicy::all &&
                       (options.protocol == Protocol::stream ||
                        (prompt_finished_ && !options.policy.keeps_generated()));
  if (!bounded) return kept;
  return std::min(kept, most_entries(cache_));
}

Sequence Sequence::fork(const Policy& policy, std::uint64_t seed) const {
  return Sequence(fork_of(cache_, policy, seed), *this);
}

Sequence Sequence::fork(const Recording& recording) const {
  return Sequence(fork_of(cache_, recording), *this);
}

Sequence Sequence::clone() const { return Sequence(cache_.clone(), *this); }

void Sequence::truncate(std::size_t tokens) {
  cache_.truncate(tokens);
  text_.resize(std::min(text_.size(), tokens - std::min(tokens, unknown_)));
}

void Sequence::finish_prompt() {
  cache_.finish_prompt();
  prompt_finished_ = true;
}

}  // namespace ballast
