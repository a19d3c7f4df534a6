// BalanceKV as its paper prints it (Kochetkova et al. 2026, arXiv:2502.07861, Algorithm 1): tokens
// are bucketed by the norm of their value, each bucket runs MergeAndReduce for the numerator, and
// one more MergeAndReduce over (k, 1) holds the keys of the normaliser.
//
// The buckets have one store together and the normaliser has another. Both hold the same number of
// entries. A normaliser's entry has no value, so capacity·(key + value) bytes are enough for
// capacity·(key + value)/(2·key + value) of each: two thirds when keys and values cost the same.
//
// mode=theory runs Algorithm 4 with one t and T in every bucket and in the normaliser. The smaller
// class of n tokens has less than n/2, so a halving loses weight; with one t both sums lose the
// same share of it.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "ballast/serialize.h"
#include "base/fail.h"
#include "methods/balance_parameters.h"
#include "methods/registry.h"

namespace ballast {
namespace {

struct RowBytes {
  explicit RowBytes(const SummarySetup& setup)
      : key(stored_row_bytes(setup.key_type, setup.key_dim)),
        value(stored_row_bytes(setup.value_type, setup.value_dim)) {}
  std::size_t key;
  std::size_t value;
};

std::size_t store_capacity(const SummarySetup& setup) {
  const RowBytes row(setup);
  const double fraction =
      static_cast<double>(row.key + row.value) / static_cast<double>(2 * row.key + row.value);
  return static_cast<std::size_t>(static_cast<double>(setup.capacity) * fraction);
}

/// Theory mode: t and T as given; else t of Theorem 3.1, √d·e^{2r²·scale}/ε, for the radius r; else
/// the largest t for which two buckets of t·(T + 1)/2 + t entries fit, about what they hold at
/// most.
MergeAndReduce::Schedule schedule_of(const SummarySetup& setup) {
  if (setup.policy.choice("mode") != "theory") return {};
  auto levels_for = [&](std::size_t t) {
    std::size_t levels = 1;
    while (levels < 40 && (t << levels) < setup.tokens) ++levels;
    return levels;
  };
  const auto given_t = static_cast<std::size_t>(setup.policy.integer("t"));
  const auto given_levels = static_cast<std::size_t>(setup.policy.integer("T"));
  std::size_t t = given_t;
  if (t == 0 && setup.policy.real("r") > 0) {
    const double r = setup.policy.real("r");
    const double batch = std::sqrt(static_cast<double>(setup.key_dim)) *
                         std::exp(2 * r * r * setup.logits.scale) / setup.policy.real("epsilon");
    require(batch < 1e9,
            "method balancekv-stream: r={} makes t = √d·e^(2r²·scale)/epsilon = {:.3g}", r, batch);
    t = std::max<std::size_t>(2, static_cast<std::size_t>(std::ceil(batch)));
  }
  // Nothing says what T is: both sums go on lazily.
  if (setup.tokens == 0 && (t == 0 || given_levels == 0)) return {};
  if (t == 0) {
    const std::size_t room = store_capacity(setup);
    t = 2;
    for (std::size_t more = 4; more <= room; more += 2) {
      if (more * (levels_for(more) + 3) > room) break;
      t = more;
    }
  }
  return {t, given_levels > 0 ? given_levels : levels_for(t)};
}

class BalanceKvStream : public Summary {
 public:
  explicit BalanceKvStream(const SummarySetup& setup)
      : setup_(setup),
        numerator_rule_(balance_options(setup, 1)),
        normaliser_rule_(balance_options(setup, 2)),
        numerator_(EntryStore(setup, store_capacity(setup)), schedule_of(setup)),
        normaliser_(EntryStore(setup, store_capacity(setup), false), schedule_of(setup)),
        epsilon_(setup.policy.real("epsilon")),
        row_(std::max(setup.key_dim, setup.value_dim)) {}

  void absorb(const Block& block) override {
    for (std::size_t i = 0; i < block.size(); ++i) {
      largest_key_ = std::max(largest_key_, norm(block.keys, i));
      const double value = norm(block.values, i);
      normaliser_.push(block, i, normaliser_rule_);
      // A value of norm 0 adds nothing to the numerator.
      if (value == 0.0) continue;
      int bucket = 0;
      std::frexp(value, &bucket);  // 2^(bucket-1) ≤ ‖v‖ < 2^bucket
      if (value > largest_value_) {
        largest_value_ = value;
        numerator_.erase_groups_to(floor_bucket());
      }
      if (bucket > floor_bucket()) numerator_.push(block, i, numerator_rule_, bucket);
    }
    numerator_.erase_groups_to(floor_bucket());
  }

  void segments(std::vector<Segment>& out) const override {
    out.push_back(numerator_.numerator(Role::numerator));
    out.push_back(normaliser_.normaliser());
  }

  void merge(const Summary& other) override {
    const auto* same = dynamic_cast<const BalanceKvStream*>(&other);
    require(same != nullptr && same_setup(same->setup_, setup_),
            "method balancekv-stream: only summaries made with the same setup unite");
    numerator_.merge(same->numerator_, numerator_rule_);
    normaliser_.merge(same->normaliser_, normaliser_rule_);
    numerator_rule_.add_counts(same->numerator_rule_);
    normaliser_rule_.add_counts(same->normaliser_rule_);
    largest_key_ = std::max(largest_key_, same->largest_key_);
    largest_value_ = std::max(largest_value_, same->largest_value_);
    numerator_.erase_groups_to(floor_bucket());
  }

  std::size_t entries() const override {
    const RowBytes row(setup_);
    const std::size_t bytes =
        numerator_.size() * (row.key + row.value) + normaliser_.size() * row.key;
    return (bytes + row.key + row.value - 1) / (row.key + row.value);
  }
  std::size_t bytes() const override {
    return numerator_.bytes() + normaliser_.bytes() + row_.size() * sizeof(float);
  }

  std::vector<KeptEntry> kept() const override {
    std::vector<KeptEntry> out;
    for (std::size_t i = 0; i < numerator_.size(); ++i) {
      const EntryStore& store = numerator_.store();
      out.push_back({store.position(i), std::exp(store.log_weight(i)), 0.0f});
    }
    for (std::size_t i = 0; i < normaliser_.size(); ++i) {
      out.push_back(
          {normaliser_.store().position(i), 0.0f, std::exp(normaliser_.log_normaliser(i))});
    }
    return out;
  }

  std::string report() const override {
    const std::array rules = {&numerator_rule_, &normaliser_rule_};
    std::string text = balance_report(rules);
    if (const std::uint64_t full = numerator_.overflows() + normaliser_.overflows(); full != 0) {
      text += fmt::format("{}no room for batches of t at {} of {} tokens", text.empty() ? "" : "; ",
                          full, 2 * normaliser_.tokens());
    }
    return text;
  }

  void save(ByteWriter& out) const override {
    numerator_.save(out);
    normaliser_.save(out);
    out.put<double>(largest_key_);
    out.put<double>(largest_value_);
    for (const SoftmaxBalance* rule : {&numerator_rule_, &normaliser_rule_}) rule->save(out);
  }
  void load(ByteReader& in) override {
    numerator_.load(in);
    normaliser_.load(in);
    largest_key_ = in.get<double>();
    largest_value_ = in.get<double>();
    require(largest_key_ >= 0 && largest_value_ >= 0, "{}: a largest norm is {} or {}", in.what(),
            largest_key_, largest_value_);
    for (SoftmaxBalance* rule : {&numerator_rule_, &normaliser_rule_}) rule->load(in);
  }

 private:
  double norm(const RowsView& rows, std::size_t i) {
    const std::span row(row_.data(), rows.dim);
    rows.decode(i, row);
    double square = 0;
    for (float x : row) square += double{x} * x;
    return std::sqrt(square);
  }

  /// Buckets up to this one are too small to matter: 2^i ≤ ε/(2n)·e^{−r²·scale}·v_max.
  int floor_bucket() const {
    const double n = std::max<double>(1, static_cast<double>(normaliser_.tokens()));
    const double exponent = std::log2(epsilon_ / (2 * n)) -
                            largest_key_ * largest_key_ * setup_.logits.scale * M_LOG2E +
                            std::log2(largest_value_);
    return static_cast<int>(std::floor(std::max(exponent, -1000.0)));
  }

  SummarySetup setup_;
  SoftmaxBalance numerator_rule_;
  SoftmaxBalance normaliser_rule_;
  MergeAndReduce numerator_;
  MergeAndReduce normaliser_;
  double epsilon_;
  double largest_key_ = 0;
  double largest_value_ = 0;
  std::vector<float> row_;
};

std::vector<Parameter> parameters() {
  auto all = balance_parameters();
  // The normaliser has entries of its own here: the numerator need not carry it.
  for (Parameter& p : all) {
    if (p.name == "offset") p.standard = "0";
  }
  all.push_back({"epsilon", Parameter::Kind::real, "0.1", 1e-9, 1, "",
                 "precision; sets which small values are dropped"});
  all.push_back({"t", Parameter::Kind::integer, "0", 0, 1e9, "",
                 "theory: batch size; 0: from r, else from the budget"});
  all.push_back(
      {"T", Parameter::Kind::integer, "0", 0, 40, "", "theory: levels; 0: log2(tokens/t)"});
  all.push_back({"r", Parameter::Kind::real, "0", 0, 1e6, "",
                 "theory: radius of queries and keys; sets t by Theorem 3.1"});
  return all;
}

}  // namespace

const MethodInfo& balancekv_stream_method() {
  static const MethodInfo info = {
      .name = "balancekv-stream",
      .title = "BalanceKV with value-norm buckets and a separate normaliser",
      .paper = "Kochetkova et al. 2026, BalanceKV, Algorithm 1 (arXiv:2502.07861)",
      .parameters = parameters(),
      .sink = 32,
      .window_policy = WindowPolicy::fixed,
      .window = 32,
      .step = 128,
      .merges = true,
      .needs = {},
      .make = [](const SummarySetup& setup) -> std::unique_ptr<Summary> {
        return std::make_unique<BalanceKvStream>(setup);
      },
  };
  return info;
}

}  // namespace ballast
