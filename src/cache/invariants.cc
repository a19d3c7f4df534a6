#include "cache/invariants.h"

#include <algorithm>
#include <cmath>

#include "base/checks.h"
#include "base/fail.h"

namespace ballast {
namespace {

void check_numbers(const CacheShape& shape, std::string_view what) {
  const auto finite = [](std::span<const float> x) { return first_not_finite(x) == x.size(); };
  require(std::isfinite(shape.logits.scale) && std::isfinite(shape.logits.softcap) &&
              shape.logits.softcap >= 0,
          "{}: a scale of {} and a soft cap of {} cannot be", what, shape.logits.scale,
          shape.logits.softcap);
  for (std::size_t l = 0; l < std::max<std::size_t>(shape.rotations.size(), 1); ++l) {
    const Rotary& rotary = shape.rotary_of(l);
    require(std::isfinite(rotary.magnitude) && finite(rotary.frequencies),
            "{}: rotations of magnitude {} cannot be", what, rotary.magnitude);
  }
  require(finite(shape.alibi_slopes) &&
              std::ranges::all_of(shape.alibi_slopes, [](float x) { return x >= 0; }),
          "{}: a slope of ALiBi is negative or not finite", what);
  require(finite(shape.sink_logits), "{}: a sink logit is not finite", what);
  Position least = shape.logits.sliding_window;
  for (Position window : shape.sliding_windows) least = std::min(least, window);
  require(least >= 0, "{}: a sliding window of {} tokens", what, least);
}

void check_positions(const HeadCache& head, std::size_t tokens, Position skipped,
                     std::string_view what, std::size_t layer) {
  if (!head.summary) return;
  const auto first = static_cast<Position>(head.ahead());
  const auto end = static_cast<Position>(tokens - head.window.size());
  for (const KeptEntry& entry : head.summary->kept()) {
    require(entry.position >= first && entry.position < end,
            "{}: layer {}: a summary of the tokens from {} to {} has an entry of position {}", what,
            layer, first, end, entry.position);
    if (skipped == 0) continue;
    const auto sink = static_cast<Position>(head.setup.policy.integer("sink"));
    require(entry.position < sink || entry.position >= sink + skipped,
            "{}: layer {}: an entry of position {} is out of reach", what, layer, entry.position);
  }
}

}  // namespace

/// LayerCache makes it a friend.
struct Invariants {
  static void check(const CacheOptions& options, const LayerCache& layer, std::string_view what);
};

void Invariants::check(const CacheOptions& options, const LayerCache& layer,
                       std::string_view what) {
  using State = LayerCache::State;
  const MethodInfo& info = options.policy.info();
  const Budget& budget = layer.budget_;
  const State state = layer.state_;
  const std::size_t tokens = layer.tokens();
  const bool stream = options.protocol == Protocol::stream;
  const bool all = info.window_policy == WindowPolicy::all;
  const bool leaves =
      !all && (stream || (layer.prompt_ended_ && !options.policy.keeps_generated()));
  const bool chunks = layer.works_in_chunks();
  const bool possible = chunks ? state != State::sliding && budget.sink + budget.step == 0
                        : state == State::whole ? !leaves || tokens <= budget.total()
                        : state == State::growing
                            ? !all && !stream && layer.prompt_ended_ && budget.step == 0
                            : leaves && budget.step > 0;
  constexpr const char* kStates[] = {"whole", "growing", "sliding"};
  const char* const name = kStates[static_cast<std::size_t>(state)];
  require(possible,
          "{}: layer {} is {} after {} tokens, which {} in {} with sink={}, summary={}, window={}, "
          "step={} cannot be",
          what, layer.layer_, name, tokens, info.name, to_string(options.protocol), budget.sink,
          budget.summary, budget.window, budget.step);
  const auto low = [](StorageType type) { return is_low_bit(type); };
  const bool rounds = low(options.key_type) || low(options.value_type);
  require(layer.as_read_ ? rounds && state == State::whole && layer.rounded_ == 0
                         : rounds == (layer.rounded_ > 0) && layer.rounded_ <= tokens,
          "{}: layer {}: rows of few bits after {} tokens, {} of them in their mean, cannot be",
          what, layer.layer_, tokens, layer.rounded_);
  std::size_t capacities = 0;
  for (std::size_t h = 0; h < layer.heads_.size(); ++h) {
    const HeadCache& head = layer.heads_[h];
    const std::size_t window = head.window.size();
    bool fits = window <= tokens && window == layer.heads_[0].window.size();
    const bool rounded = rounds && !layer.as_read_;
    require((head.setup.key_mean != nullptr || !rounded || !low(options.key_type)) &&
                (head.setup.value_mean != nullptr || !rounded || !low(options.value_type)) &&
                (rounded || head.first == 0),
            "{}: layer {}, head {}: a mean of rows of few bits is missing", what, layer.layer_, h);
    const std::size_t ahead = head.ahead();
    if (state == State::whole) {
      fits &= ahead + window == tokens && head.sink == 0 && head.summary == nullptr;
    } else {
      fits &= window >= budget.window && ahead == budget.sink && ahead + window <= tokens;
      if (state == State::sliding) {
        const std::size_t ring = budget.window + budget.step;
        fits &= window <= ring && head.window.capacity() == ring;
      }
    }
    require(fits,
            "{}: layer {}, head {}: a {} cache of {} tokens holds {} in its sink and {} in "
            "its window, which cannot be",
            what, layer.layer_, h, name, tokens, ahead, window);
    if (state == State::whole) continue;
    capacities += head.setup.capacity;
    const std::size_t expected = layer.adapts()                  ? head.setup.capacity
                                 : layer.global_ && head.summary ? head.summary->entries()
                                                                 : budget.summary;
    require(head.setup.capacity == expected && capacities <= layer.heads_.size() * budget.summary,
            "{}: layer {}, head {}: a summary has room for {} entries, expected {}", what,
            layer.layer_, h, head.setup.capacity, expected);
    require(head.summary != nullptr || make_summary(head.setup) == nullptr,
            "{}: layer {}, head {}: the summary is missing", what, layer.layer_, h);
    check_positions(head, tokens, layer.attention().skipped(), what, layer.layer_);
  }
}

void check_invariants(const CacheShape& shape, const CacheOptions& options,
                      std::span<const std::unique_ptr<LayerCache>> layers, std::string_view what) {
  check_numbers(shape, what);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    require(layers[l]->tokens() == layers[0]->tokens() &&
                layers[l]->prompt_ended() == layers[0]->prompt_ended(),
            "{}: layer {} has read {} tokens, layer 0 {}, or one has finished its prompt alone",
            what, l, layers[l]->tokens(), layers[0]->tokens());
    Invariants::check(options, *layers[l], what);
  }
}

std::size_t summary_bytes(const SummarySetup& setup, std::size_t capacity) {
  constexpr std::size_t kOfEntry = 64;   // positions, weights, scores, scratch
  constexpr std::size_t kOfHead = 8192;  // scratch for a block
  const std::size_t key = stored_row_bytes(setup.key_type, setup.key_dim);
  const std::size_t value = stored_row_bytes(setup.value_type, setup.value_dim);
  // ClusterGen divides the bytes of an entry among keys alone.
  const std::size_t keys = 1 + (value + key - 1) / key;
  return kOfHead + capacity * (key + value + kOfEntry * keys);
}

}  // namespace ballast
