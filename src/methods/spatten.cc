// SpAtten's cascade (Wang et al. 2021; a baseline of H2O, appendix C.9). Importance adds up over
// heads and layers. All heads of a layer keep the same tokens, and later layers do not have a token
// that a layer evicted. Layers keep fewer and fewer tokens, so the pyramid of budgets is the
// default.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>

#include "ballast/selection.h"
#include "ballast/serialize.h"
#include "base/checks.h"
#include "base/fail.h"
#include "methods/entry_budget.h"
#include "methods/registry.h"

namespace ballast {
namespace {

/// Of any model, which bounds what a file can make a reader allocate.
constexpr std::uint32_t kMostLayers = 1 << 16;

struct Importance {
  Position position;
  float sum;  ///< over this layer and those before it
};

/// What a layer kept when it last chose.
struct Survivors {
  std::vector<Importance> kept;  ///< by position
  Position end = 0;              ///< tokens before this one had come in

  /// Null: the layer evicted the token.
  const Importance* find(Position position) const {
    const auto it = std::ranges::lower_bound(kept, position, {}, &Importance::position);
    return it != kept.end() && it->position == position ? &*it : nullptr;
  }
};

/// The survivors of every layer. A layer's first head writes its own, the heads of the next layer
/// read them: within a step the layers come in order.
class Cascade : public BoundedState {
 public:
  std::shared_ptr<const Survivors> of_layer(std::uint32_t layer) const {
    const std::lock_guard lock(mutex_);
    const auto it = layers_.find(layer);
    return it == layers_.end() ? nullptr : it->second;
  }
  void set_layer(std::uint32_t layer, std::shared_ptr<const Survivors> survivors) {
    const std::lock_guard lock(mutex_);
    layers_[layer] = std::move(survivors);
  }

  std::size_t bytes() const override {
    const std::lock_guard lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [layer, survivors] : layers_) {
      bytes += sizeof(Survivors) + survivors->kept.capacity() * sizeof(Importance);
    }
    return bytes;
  }

  std::size_t most_bytes(Protocol, std::size_t layers, std::size_t, std::size_t entries,
                         std::size_t) const override {
    return layers * sizeof(Survivors) + entries * sizeof(Importance);
  }

  void save(ByteWriter& out) const override {
    const std::lock_guard lock(mutex_);
    out.put<std::uint64_t>(layers_.size());
    for (const auto& [layer, survivors] : layers_) {
      out.put(layer);
      out.put(survivors->end);
      out.put<std::uint64_t>(survivors->kept.size());
      out.put_all<Importance>(survivors->kept);
    }
  }

  void load(ByteReader& in) override {
    std::map<std::uint32_t, std::shared_ptr<const Survivors>> layers;
    const std::size_t count =
        in.get_count(in.left() / 16, "the number of layers that chose tokens");
    for (std::size_t l = 0; l < count; ++l) {
      const auto layer = in.get<std::uint32_t>();
      require(layer < kMostLayers && (layers.empty() || layer > layers.rbegin()->first),
              "{}: layer {} chose tokens, after layer {}", in.what(), layer,
              layers.empty() ? 0 : layers.rbegin()->first);
      auto survivors = std::make_shared<Survivors>();
      survivors->end = in.get<Position>();
      survivors->kept.resize(
          in.get_count(in.left() / sizeof(Importance), "the number of tokens a layer kept"));
      in.get_all<Importance>(survivors->kept);
      for (std::size_t i = 0; i < survivors->kept.size(); ++i) {
        const Importance& entry = survivors->kept[i];
        const Position before = i == 0 ? -1 : survivors->kept[i - 1].position;
        require(entry.position > before && entry.sum >= 0 && std::isfinite(entry.sum),
                "{}: layer {} kept token {} with importance {} after token {}", in.what(), layer,
                entry.position, entry.sum, before);
      }
      layers[layer] = std::move(survivors);
    }
    const std::lock_guard lock(mutex_);
    layers_ = std::move(layers);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<const Survivors>> layers_;
};

class SpAtten : public SelectionSummary {
 public:
  explicit SpAtten(const SummarySetup& setup)
      : SelectionSummary(setup, {.by_rule = setup.capacity}),
        layer_(setup.random.layer),
        first_head_(setup.random.head == 0),
        cascade_(dynamic_cast<Cascade*>(setup.shared)) {}

 protected:
  void prepare(const Block&) override {
    if (cascade_ != nullptr && layer_ > 0) before_ = cascade_->of_layer(layer_ - 1);
    for (std::size_t i = 0; i < ranks().size(); ++i) {
      ranks()[i] = importance(store().position(i), attention_sums()[i]);
    }
  }

  float rank(const Block& block, std::size_t i) override {
    return importance(block.first + static_cast<Position>(i), block.attention_sum[i]);
  }

  void finish(const Block& block) override {
    before_.reset();
    if (cascade_ == nullptr || !first_head_) return;
    auto survivors = std::make_shared<Survivors>();
    survivors->end = block.first + static_cast<Position>(block.size());
    survivors->kept.reserve(store().size());
    for (std::size_t i = 0; i < store().size(); ++i) {
      survivors->kept.push_back({store().position(i), ranks()[i]});
    }
    std::ranges::sort(survivors->kept, {}, &Importance::position);
    cascade_->set_layer(layer_, std::move(survivors));
  }

 private:
  float importance(Position position, float attention_sum) const {
    if (before_ == nullptr || position >= before_->end) return attention_sum;
    const Importance* earlier = before_->find(position);
    return earlier == nullptr ? kNever : attention_sum + earlier->sum;
  }

  std::uint32_t layer_;
  bool first_head_;
  Cascade* cascade_;
  std::shared_ptr<const Survivors> before_;  ///< of the layer before, while a block comes in
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<SpAtten>(setup);
}

std::unique_ptr<SharedState> make_shared(const Policy&) { return std::make_unique<Cascade>(); }

}  // namespace

const MethodInfo& spatten_method() {
  static const MethodInfo info = {
      .name = "spatten",
      .title = "importance over heads and layers; what a layer drops stays dropped in later ones",
      .paper = "Wang et al. 2021, SpAtten (baseline of H2O)",
      .parameters = {},
      .step = 16,
      .pyramid = true,
      .needs = {.attention_sums = true, .whole_layer = true},
      .make = make,
      .make_shared = make_shared,
  };
  return info;
}

}  // namespace ballast
