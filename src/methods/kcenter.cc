// Greedy k-center: the tokens whose keys cover all keys best. The practical form of ClusterGen
// (Zandieh et al. 2024, section 4): farthest point first (Dyer and Frieze 1985), which is within a
// factor of two of the best possible radius.
//
// In stream the centres are chosen anew among the old ones and every block that comes in.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/entry_store.h"
#include "ballast/serialize.h"
#include "base/checks.h"
#include "base/fail.h"
#include "methods/kernels/distances.h"
#include "methods/registry.h"

namespace ballast {
namespace {

constexpr std::size_t kLeastChunk = 256;

class KCenter : public Summary {
 public:
  explicit KCenter(const SummarySetup& setup)
      : capacity_(setup.capacity),
        weighted_(setup.policy.choice("weights") == "sizes"),
        store_(setup, setup.capacity),
        // prefill: the prompt comes in one block, for which there is scratch while it is worked on.
        chunk_(setup.protocol == Protocol::prefill ? std::numeric_limits<std::size_t>::max()
                                                   : std::max(setup.capacity, kLeastChunk)),
        centre_(setup.key_dim),
        sizes_(setup.capacity) {
    if (setup.protocol == Protocol::stream) reserve(capacity_ + chunk_);
  }

  void absorb(const Block& block) override {
    for (std::size_t done = 0; done < block.size();) {
      const std::size_t count = std::min(chunk_, block.size() - done);
      const Block piece = block.slice(done, count);
      take_in(piece);
      done += count;
    }
    for (std::size_t i = 0; weighted_ && i < store_.size(); ++i) {
      store_.set_log_weight(i, static_cast<float>(std::log(sizes_[i])));
    }
  }

  void segments(std::vector<Segment>& out) const override {
    if (store_.size() != 0) out.push_back(store_.segment(Role::both, weighted_));
  }

  std::size_t entries() const override { return store_.size(); }
  std::size_t bytes() const override {
    return store_.bytes() + centre_.size() * sizeof(float) + sizes_.size() * sizeof(double) +
           nearest_.size() *
               (sizeof(nearest_[0]) + sizeof(fresh_[0]) + sizeof(owner_[0]) + sizeof(cluster_[0]));
  }

  std::vector<KeptEntry> kept() const override {
    std::vector<KeptEntry> out;
    for (std::size_t i = 0; i < store_.size(); ++i) {
      const float weight = weighted_ ? static_cast<float>(sizes_[i]) : 1.0f;
      out.push_back({store_.position(i), weight, weight});
    }
    return out;
  }

  void save(ByteWriter& out) const override {
    store_.save(out);
    out.put_all<double>({sizes_.data(), store_.size()});
  }
  void load(ByteReader& in) override {
    store_.load(in);
    in.get_all<double>({sizes_.data(), store_.size()});
    for (std::size_t i = 0; i < store_.size(); ++i) {
      require(sizes_[i] >= 1 && sizes_[i] < 1e15, "{}: a cluster of {} tokens", in.what(),
              sizes_[i]);
    }
  }

 private:
  static constexpr float kChosen = -1.0f;

  void reserve(std::size_t candidates) {
    nearest_.resize(candidates);
    fresh_.resize(candidates);
    owner_.resize(candidates);
    cluster_.resize(candidates);
  }

  void take_in(const Block& block) {
    const std::size_t held = store_.size();
    const std::size_t total = held + block.size();
    if (total <= capacity_) {
      for (std::size_t i = 0; i < block.size(); ++i) {
        sizes_[store_.size()] = 1;
        store_.push(block, i);
      }
      return;
    }
    if (capacity_ == 0) return;
    const bool scratch = total > nearest_.size();
    if (scratch) reserve(total);
    choose(block, total);
    place(block, total);
    if (scratch) {
      nearest_ = std::vector<float>();  // which frees it; {} would only empty it
      fresh_ = std::vector<float>();
      owner_ = std::vector<std::uint32_t>();
      cluster_ = std::vector<double>();
    }
  }

  /// Marks the centres among `total` candidates (entries, then tokens), and gives every other
  /// candidate the nearest of them, the earlier one of equals.
  void choose(const Block& block, std::size_t total) {
    std::fill_n(nearest_.begin(), total, std::numeric_limits<float>::infinity());
    // The first centre may be any: the oldest candidate.
    std::size_t next = 0;
    for (std::size_t i = 1; i < store_.size(); ++i) {
      if (store_.position(i) < store_.position(next)) next = i;
    }
    std::fill_n(owner_.begin(), total, static_cast<std::uint32_t>(next));
    for (std::size_t k = 0; k < capacity_; ++k) {
      owner_[next] = static_cast<std::uint32_t>(next);
      nearest_[next] = kChosen;
      next = approach(block, total, next);
    }
  }

  /// A new centre: brings the others' nearest centres up to date and returns the farthest.
  std::size_t approach(const Block& block, std::size_t total, std::size_t centre) {
    const std::size_t held = store_.size();
    if (centre < held) {
      store_.keys().decode(centre, centre_);
    } else {
      block.keys.decode(centre - held, centre_);
    }
    kernels::squared_distances(store_.keys(), centre_, {fresh_.data(), held});
    kernels::squared_distances(block.keys, centre_, {fresh_.data() + held, total - held});
    for (std::size_t i = 0; i < total; ++i) {
      const bool nearer = fresh_[i] < nearest_[i];
      nearest_[i] = nearer ? fresh_[i] : nearest_[i];
      owner_[i] = nearer ? static_cast<std::uint32_t>(centre) : owner_[i];
    }
    const auto end = nearest_.begin() + static_cast<std::ptrdiff_t>(total);
    return static_cast<std::size_t>(std::max_element(nearest_.begin(), end) - nearest_.begin());
  }

  /// Centres that come in take the slots of those that go; clusters add up their sizes.
  void place(const Block& block, std::size_t total) {
    const std::size_t held = store_.size();
    std::fill_n(cluster_.begin(), total, 0.0);
    for (std::size_t i = 0; i < total; ++i) cluster_[owner_[i]] += i < held ? sizes_[i] : 1.0;
    std::size_t slot = 0;
    for (std::size_t i = 0; i < held; ++i) sizes_[i] = cluster_[i];
    for (std::size_t i = held; i < total; ++i) {
      if (nearest_[i] != kChosen) continue;
      while (slot < held && nearest_[slot] == kChosen) ++slot;
      if (slot < held) {
        store_.replace(slot, block, i - held);
        sizes_[slot] = cluster_[i];
        nearest_[slot] = kChosen;
      } else {
        sizes_[store_.size()] = cluster_[i];
        store_.push(block, i - held);
      }
    }
  }

  std::size_t capacity_;
  bool weighted_;
  EntryStore store_;
  std::size_t chunk_;
  std::vector<float> centre_;
  std::vector<double> sizes_;  ///< tokens that each entry stands for
  // Of every candidate: squared distances from the nearest centre and from the newest one, the
  // nearest centre, and for centres the tokens that they stand for.
  std::vector<float> nearest_;
  std::vector<float> fresh_;
  std::vector<std::uint32_t> owner_;
  std::vector<double> cluster_;
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<KCenter>(setup);
}

}  // namespace

const MethodInfo& kcenter_method() {
  static const MethodInfo info = {
      .name = "kcenter",
      .title = "tokens whose keys cover all keys: greedy k-center (ClusterGen's practical form)",
      .paper = "Zandieh et al. 2024, ClusterGen, section 4; Dyer and Frieze 1985",
      .parameters = {{"weights", Parameter::Kind::choice, "none", 0, 0, "none|sizes",
                      "whether a centre stands for all tokens of its cluster"}},
      .window_policy = WindowPolicy::half,
      .window = 0,
      .step = 1024,
      .needs = {},
      .make = make,
  };
  return info;
}

}  // namespace ballast
