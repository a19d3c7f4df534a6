// BalanceKV (Kochetkova et al. 2026, arXiv:2502.07861) as its authors run it: one set of entries
// for numerator and normaliser, halved by SoftmaxBalance in blocks.
//
// prefill: rounds over the whole middle. A round evicts half of the tokens, or fewer if that fills
// the budget exactly. To evict m tokens it halves the 2m oldest and leaves the rest as they are:
// late tokens weigh more in what follows. So rates need not be powers of two, and may be light
// (0.8, 0.9, 0.95).
// stream, and tokens after a prompt: MergeAndReduce, see merge_and_reduce.h. With outliers=yes a
// stream first goes through OutlierStream, which keeps its tokens beside these levels.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "ballast/serialize.h"
#include "base/fail.h"
#include "methods/balance_parameters.h"
#include "methods/outlier_stream.h"
#include "methods/outliers.h"
#include "methods/registry.h"

namespace ballast {
namespace {

/// Rooms of a stream's outliers and of those that wait; none where outliers are not kept.
struct OutlierRooms {
  explicit OutlierRooms(const SummarySetup& setup) {
    if (setup.policy.choice("outliers") != "yes" || setup.protocol != Protocol::stream) return;
    const std::int64_t first =
        std::min<std::int64_t>(setup.policy.integer("outlier-layer"), setup.layers - 1);
    if (static_cast<std::int64_t>(setup.random.layer) < first) return;
    most = static_cast<std::size_t>(setup.policy.real("outlier-share") *
                                    static_cast<double>(setup.capacity));
    if (most == 0) return;
    // Half of the rest at most, so that what is no outlier has room even in tiny budgets.
    waiting = std::min(static_cast<std::size_t>(setup.policy.integer("dilate")),
                       (setup.capacity - most) / 2);
  }
  std::size_t total() const { return most + waiting; }
  std::size_t most = 0;
  std::size_t waiting = 0;
};

class BalanceKv : public Summary {
 public:
  explicit BalanceKv(const SummarySetup& setup) : BalanceKv(setup, OutlierRooms(setup)) {}

  void absorb(const Block& block) override {
    // The prompt's middle, all at once.
    const bool prompt = setup_.protocol == Protocol::prefill && levels_.tokens() == 0;
    if (prompt && block.size() > setup_.capacity) return absorb_prompt(block);
    if (stream_.has_value()) return stream_->absorb(block, release());
    for (std::size_t i = 0; i < block.size(); ++i) levels_.push(block, i, rule_);
  }

  void segments(std::vector<Segment>& out) const override {
    if (stream_.has_value()) stream_->segments(out);
    if (rule_.options().weights == BalanceOptions::Weights::authors) {
      out.push_back(levels_.numerator(Role::numerator));
      out.push_back(levels_.normaliser());
    } else {
      out.push_back(levels_.numerator(Role::both));
    }
  }

  void merge(const Summary& other) override {
    const auto* same = dynamic_cast<const BalanceKv*>(&other);
    require(same != nullptr && same_setup(same->setup_, setup_),
            "method balancekv: only summaries made with the same setup unite");
    levels_.merge(same->levels_, rule_);
    rule_.add_counts(same->rule_);
    if (stream_.has_value()) stream_->merge(*same->stream_, release());
  }

  std::size_t entries() const override {
    return levels_.size() + (stream_.has_value() ? stream_->size() : 0);
  }
  std::size_t bytes() const override {
    return levels_.bytes() + (stream_.has_value() ? stream_->bytes() : 0);
  }

  std::vector<KeptEntry> kept() const override {
    std::vector<KeptEntry> out(levels_.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = {levels_.store().position(i), std::exp(levels_.store().log_weight(i)),
                std::exp(levels_.log_normaliser(i))};
    }
    if (stream_.has_value()) stream_->kept(out);
    return out;
  }

  std::string report() const override {
    const SoftmaxBalance* rule = &rule_;
    return balance_report({&rule, 1});
  }

  void save(ByteWriter& out) const override {
    levels_.save(out);
    rule_.save(out);
    if (stream_.has_value()) stream_->save(out);
  }
  void load(ByteReader& in) override {
    levels_.load(in);
    rule_.load(in);
    if (stream_.has_value()) stream_->load(in);
  }

 private:
  BalanceKv(const SummarySetup& setup, const OutlierRooms& rooms)
      : setup_(setup),
        rule_(balance_options(setup)),
        levels_(EntryStore(setup, setup.capacity - rooms.total()),
                balance_schedule(setup, setup.capacity - rooms.total())) {
    if (setup.policy.choice("outliers") != "yes") return;
    if (setup.protocol == Protocol::stream) {
      stream_.emplace(setup, rooms.most, rooms.waiting,
                      static_cast<std::size_t>(setup.policy.integer("block")));
    } else {
      outliers_ = static_cast<OutlierMemory*>(setup.shared);
    }
  }

  OutlierStream::Release release() {
    return [this](const Block& block, std::size_t i) { levels_.push(block, i, rule_); };
  }

  void absorb_prompt(const Block& block) {
    std::vector<std::uint8_t> exact(block.size(), 0);
    if (outliers_ != nullptr) {
      const double most =
          setup_.policy.real("outlier-share") * static_cast<double>(setup_.capacity);
      outliers_->mark(setup_, block, static_cast<std::size_t>(most), exact);
    }
    WeightedTokens tokens;
    tokens.keys = block.keys;
    tokens.values = block.values;
    tokens.reserve(block.size());
    std::size_t room = setup_.capacity;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const Position position = block.first + static_cast<Position>(i);
      if (exact[i] != 0) {
        levels_.place(block, i, 0.0f, 0.0f, 0);
        --room;
      } else {
        tokens.add(static_cast<std::uint32_t>(i), position, 0.0f, 0.0f);
      }
    }
    int rounds = 0;
    std::vector<std::uint8_t> dropped(tokens.size());
    while (tokens.size() > room) {
      const std::size_t drop = std::min((tokens.size() + 1) / 2, tokens.size() - room);
      rule_.reduce(tokens, drop, static_cast<std::uint32_t>(rounds++),
                   {dropped.data(), tokens.size()});
      tokens.remove(dropped);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      levels_.place(block, tokens.rows[i], tokens.log_weights[i], tokens.log_normalisers[i],
                    rounds);
    }
    levels_.count_tokens(block.size());
  }

  SummarySetup setup_;
  SoftmaxBalance rule_;
  MergeAndReduce levels_;
  OutlierMemory* outliers_ = nullptr;    // prefill
  std::optional<OutlierStream> stream_;  // stream
};

std::vector<Parameter> parameters() {
  using Kind = Parameter::Kind;
  auto all = balance_parameters();
  all.push_back({"outliers", Kind::choice, "no", 0, 0, "no|yes",
                 "keep tokens exactly whose keys point away from the others"});
  all.push_back({"outlier-layer", Kind::integer, "1", 0, 1e6, "",
                 "layer on which outliers are found, for the layers after it too; in a stream the "
                 "first that finds its own"});
  all.push_back(
      {"outlier-share", Kind::real, "0.5", 0, 1, "",
       "outliers and neighbours, at most this share of the budget; 1: the authors' rule"});
  all.push_back({"dilate", Kind::integer, "25", 0, 1e6, "", "neighbours kept with an outlier"});
  return all;
}

}  // namespace

const MethodInfo& balancekv_method() {
  static const MethodInfo info = {
      .name = "balancekv",
      .title = "halves tokens in balanced blocks, by a self-balancing walk",
      .paper = "Kochetkova et al. 2026, BalanceKV (arXiv:2502.07861)",
      .parameters = parameters(),
      .sink = 32,
      .window_policy = WindowPolicy::fixed,
      .window = 32,
      .step = 128,
      .merges = true,
      .needs = {},
      .make = [](const SummarySetup& setup) -> std::unique_ptr<Summary> {
        return std::make_unique<BalanceKv>(setup);
      },
      .make_shared = [](const Policy& policy) -> std::unique_ptr<SharedState> {
        if (policy.choice("outliers") != "yes") return nullptr;
        return std::make_unique<OutlierMemory>();
      },
  };
  return info;
}

}  // namespace ballast
