// ClusterGen: value samples for the numerator, clusters of keys for the normaliser.
// Zandieh et al. 2024, Algorithm 1.
//
// A capacity of C entries is a budget of C (key row + value row) bytes. Each of the s value samples
// takes a pair. The rest is room for keys alone: a cluster needs one key for its representative and
// one for each of its t samples.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "ballast/random.h"
#include "ballast/serialize.h"
#include "base/fail.h"
#include "methods/key_clusters.h"
#include "methods/registry.h"
#include "methods/sample_slots.h"

namespace ballast {
namespace {

// Purposes of random numbers; key_clusters.cc has its own.
constexpr std::uint32_t kReplaceValue = 0x100;
constexpr std::uint32_t kUniteValues = 0x101;

/// How a capacity is divided.
struct Division {
  std::size_t values = 0;    ///< s
  std::size_t samples = 1;   ///< t
  std::size_t clusters = 0;  ///< at most
  double pairs_per_key = 0;  ///< part of a pair's bytes that a key alone takes

  explicit Division(const SummarySetup& setup) {
    const double key = static_cast<double>(stored_row_bytes(setup.key_type, setup.key_dim));
    const double value = static_cast<double>(stored_row_bytes(setup.value_type, setup.value_dim));
    pairs_per_key = key / (key + value);
    const Policy& policy = setup.policy;
    values = policy.has("s") ? static_cast<std::size_t>(policy.integer("s")) : setup.capacity / 2;
    // At least one entry is left for a cluster, whatever s is.
    values = std::min(values, setup.capacity - std::min<std::size_t>(setup.capacity, 1));
    const auto keys =
        static_cast<std::size_t>(static_cast<double>(setup.capacity - values) / pairs_per_key);
    samples =
        std::min(static_cast<std::size_t>(policy.integer("t")), std::max<std::size_t>(keys, 2) - 1);
    clusters = keys / (samples + 1);
    if (policy.has("clusters")) {
      clusters = std::min(clusters, static_cast<std::size_t>(policy.integer("clusters")));
    }
    if (clusters == 0 || values == 0) clusters = values = 0;
  }
};

/// Tokens are kept exactly while all fit (where the number that will come is not known to be
/// larger); after that Algorithm 1 goes over them in their order.
class ClusterGen : public Summary {
 public:
  explicit ClusterGen(const SummarySetup& setup) : setup_(setup), division_(setup) {
    setup_.shared = nullptr;
    const bool may_fit =
        setup.tokens == 0 ? setup.protocol == Protocol::prefill : setup.tokens <= setup.capacity;
    if (may_fit) {
      exact_.emplace(setup, setup.capacity);
    } else {
      start_sampling();
    }
  }

  void absorb(const Block& block) override {
    if (exact_ && exact_->size() + block.size() <= setup_.capacity) {
      for (std::size_t i = 0; i < block.size(); ++i) exact_->push(block, i);
      return;
    }
    if (exact_) start_sampling();
    for (std::size_t i = 0; i < block.size(); ++i) add(block, i);
    weigh();
  }

  void segments(std::vector<Segment>& out) const override {
    if (exact_) {
      if (exact_->size() != 0) out.push_back(exact_->segment(Role::both, false));
      return;
    }
    if (values_.store().size() != 0) out.push_back(values_.store().segment(Role::numerator, true));
    if (clusters_.size() != 0) out.push_back(clusters_.segment());
  }

  void merge(const Summary& other) override;

  /// In pairs of a key and a value.
  std::size_t entries() const override {
    if (exact_) return exact_->size();
    return values_.store().size() +
           static_cast<std::size_t>(
               std::ceil(static_cast<double>(clusters_.rows()) * division_.pairs_per_key - 1e-9));
  }

  std::size_t bytes() const override {
    if (exact_) return exact_->bytes();
    return values_.bytes() + clusters_.bytes() + value_.size() * sizeof(float) +
           chosen_.size() * sizeof(chosen_[0]);
  }

  std::vector<KeptEntry> kept() const override;

  std::string report() const override {
    if (exact_) return {};
    if (division_.clusters == 0) {
      return fmt::format("room for {} entries is too little for one cluster: nothing is kept",
                         setup_.capacity);
    }
    if (clusters_.growths() == 0) return {};
    return fmt::format("{} clusters (at most {}), their distance grew {} times, to {:.4g}",
                       clusters_.size(), clusters_.most(), clusters_.growths(), clusters_.delta());
  }

  void save(ByteWriter& out) const override;
  void load(ByteReader& in) override;

 private:
  void start_sampling();
  void add(const Block& block, std::size_t i);
  void add_all(const EntryStore& entries);
  void weigh();
  void merge_values(const ClusterGen& that);

  SummarySetup setup_;
  Division division_;
  std::optional<EntryStore> exact_;
  SampleSlots values_;  ///< M; an entry's tag is ln ‖v‖²
  KeyClusters clusters_;
  double mu_ = 0;  ///< Σ‖v‖²
  std::vector<float> value_;
  std::vector<std::uint32_t> chosen_;
};

void ClusterGen::start_sampling() {
  std::optional<EntryStore> held = std::move(exact_);
  exact_.reset();
  if (held && held->size() == 0) held.reset();  // never more than the promise, where possible
  values_ = SampleSlots(setup_, setup_.value_dim, division_.values);
  clusters_ =
      KeyClusters(setup_, setup_.policy.real("delta"), division_.samples, division_.clusters);
  value_.resize(setup_.value_dim);
  chosen_.resize(division_.values);
  if (held) add_all(*held);
}

void ClusterGen::add_all(const EntryStore& entries) {
  Block block;
  block.keys = entries.keys();
  block.values = entries.values();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    block.first = entries.position(i) - static_cast<Position>(i);
    add(block, i);
  }
  weigh();
}

void ClusterGen::add(const Block& block, std::size_t i) {
  clusters_.add(block, i);
  block.values.decode(i, value_);
  double squared = 0;
  for (float x : value_) squared += double{x} * x;
  // A value of zero adds nothing to the numerator, and is never drawn.
  if (!(squared > 0)) return;
  mu_ += squared;
  // Every slot takes the token with probability p; the gaps between those that do are geometric.
  const double p = squared / mu_;
  const auto position = static_cast<std::uint64_t>(block.first + static_cast<Position>(i));
  std::size_t count = 0;
  double slot = -1;
  for (std::uint32_t draw = 0;; ++draw) {
    const double u = random_unit(setup_.random, position, kReplaceValue, draw);
    slot += 1 + (p < 1 ? std::floor(std::log1p(-u) / std::log1p(-p)) : 0);
    if (!(slot < static_cast<double>(division_.values))) break;
    chosen_[count++] = static_cast<std::uint32_t>(slot);
  }
  if (count != 0) {
    values_.put({chosen_.data(), count}, block, i, static_cast<float>(std::log(squared)));
  }
}

// μ / (s‖v‖²), times the multiplicity.
void ClusterGen::weigh() {
  const double common = std::log(mu_) - std::log(static_cast<double>(division_.values));
  for (std::size_t e = 0; e < values_.store().size(); ++e) {
    values_.store().set_log_weight(
        e, static_cast<float>(common - values_.tag(e) + std::log(values_.multiplicity(e))));
  }
}

std::vector<KeptEntry> ClusterGen::kept() const {
  std::vector<KeptEntry> out;
  if (exact_) {
    for (Position position : exact_->positions()) out.push_back({position, 1, 1});
    return out;
  }
  const EntryStore& values = values_.store();
  for (std::size_t i = 0; i < values.size(); ++i) {
    out.push_back({values.position(i), std::exp(values.log_weight(i)), 0});
  }
  const EntryStore& keys = clusters_.store();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    out.push_back({keys.position(i), 0, std::exp(keys.log_weight(i))});
  }
  return out;
}

void ClusterGen::merge(const Summary& other) {
  const auto* that = dynamic_cast<const ClusterGen*>(&other);
  require(that != nullptr && that->setup_.capacity == setup_.capacity &&
              that->setup_.random == setup_.random && that->setup_.key_dim == setup_.key_dim &&
              that->setup_.value_dim == setup_.value_dim &&
              that->setup_.policy.to_string() == setup_.policy.to_string(),
          "a clustergen summary unites only with one of the same setup");
  if (exact_ && that->exact_ && exact_->size() + that->exact_->size() <= setup_.capacity) {
    for (std::size_t i = 0; i < that->exact_->size(); ++i) exact_->push(*that->exact_, i);
    return;
  }
  if (exact_) start_sampling();
  if (that->exact_) return add_all(*that->exact_);
  merge_values(*that);
  clusters_.merge(that->clusters_);
  weigh();
}

// Each slot takes the other's sample with the probability that a sample of the union is there.
void ClusterGen::merge_values(const ClusterGen& that) {
  if (!(that.mu_ > 0)) return;
  const double p = that.mu_ / (mu_ + that.mu_);
  const auto first = static_cast<std::uint64_t>(that.values_.store().position(0));
  std::vector<std::vector<std::uint32_t>> taken(that.values_.store().size());
  for (std::uint32_t slot = 0; slot < division_.values; ++slot) {
    if (random_unit(setup_.random, first, kUniteValues, slot) < p) {
      taken[that.values_.entry(slot)].push_back(slot);
    }
  }
  for (std::size_t entry = 0; entry < taken.size(); ++entry) {
    if (!taken[entry].empty()) values_.put(taken[entry], that.values_, entry);
  }
  mu_ += that.mu_;
}

void ClusterGen::save(ByteWriter& out) const {
  out.put<std::uint8_t>(exact_.has_value());
  if (exact_) return exact_->save(out);
  out.put(mu_);
  values_.save(out, division_.values);
  clusters_.save(out);
}

void ClusterGen::load(ByteReader& in) {
  if (in.get<std::uint8_t>() != 0) {
    require(exact_.has_value(), "{}: a summary that samples is said to hold every token",
            in.what());
    return exact_->load(in);
  }
  if (exact_) {
    exact_->clear();
    start_sampling();
  }
  mu_ = in.get<double>();
  values_.load(in, division_.values);
  clusters_.load(in);
  bool drawn = true;
  for (std::size_t slot = 0; slot < division_.values; ++slot) {
    drawn = drawn && (values_.entry(slot) != SampleSlots::kNone) == (mu_ > 0);
  }
  require(std::isfinite(mu_) && mu_ >= 0 && drawn, "{}: value samples of a total of {}", in.what(),
          mu_);
  weigh();
}

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<ClusterGen>(setup);
}

}  // namespace

const MethodInfo& clustergen_method() {
  using Kind = Parameter::Kind;
  static const MethodInfo info = {
      .name = "clustergen",
      .title = "value samples by norm, and clusters of keys for the normaliser",
      .paper = "Zandieh et al. 2024, ClusterGen, Algorithm 1",
      .parameters =
          {{"delta", Kind::real, "0", 0, 1e18, "",
            "distance within which keys share a cluster; grows when there are too many clusters"},
           {"t", Kind::integer, "2", 1, 65536, "", "key samples of each cluster"},
           {"s", Kind::integer, "", 1, 1e9, "", "value samples; not set: half of the summary"},
           {"clusters", Kind::integer, "", 1, 1e9, "",
            "most clusters; not set: as many as the bytes allow"}},
      .sink = 32,
      .step = 16,
      .merges = true,
      .needs = {},
      .make = make,
  };
  return info;
}

}  // namespace ballast
