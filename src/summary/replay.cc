// Replay: the text is read a second time against its own cache; one budget over all layers and
// heads then gives every entry a precision, or nothing, by the most attention it got. Score and
// global threshold: KVzip (Kim et al. 2025, arXiv:2505.23416), normalised as KVzip+
// (arXiv:2601.07891). More entries at fewer bits: arXiv:2412.12706.
#include "summary/replay.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "ballast/serialize.h"
#include "ballast/summary.h"
#include "base/checks.h"
#include "base/fail.h"
#include "storage/rows_bytes.h"
#include "summary/registry.h"

namespace ballast {
namespace {

/// The entries of one head in runs of equal precision, each in the order of the text.
class TieredSummary : public Summary {
 public:
  explicit TieredSummary(const SummarySetup& setup) : setup_(setup), runs_(tiers().size()) {}

  /// Entries held only move to tiers of fewer bytes: what was rounded is rounded again.
  void absorb(const Block& block) override {
    const std::size_t held = entries();
    require(block.tiers.size() == held + block.size(),
            "{} entries and {} tokens came with {} tiers", held, block.size(), block.tiers.size());
    const std::vector<Tier> tiers = this->tiers();
    const std::vector<float> key_mean = mean_for(&Run::keys, block.keys),
                             value_mean = mean_for(&Run::values, block.values);
    std::vector<Run> runs(runs_.size());
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      Run run(tiers[t], setup_, static_cast<std::size_t>(std::ranges::count(block.tiers, t)));
      if (run.positions.empty()) continue;
      if (is_rotated(tiers[t].key_type)) run.keys.set_mean(key_mean);
      if (is_rotated(tiers[t].value_type)) run.values.set_mean(value_mean);
      std::size_t at = 0;
      for (const Source& source : sources_of(block.tiers, t)) {
        const Run& from = runs_[source.run];
        const std::size_t all = from.positions.size();
        run.keys.copy(at, from.keys.view(0, all), source.entry);
        run.values.copy(at, from.values.view(0, all), source.entry);
        run.positions[at++] = source.position;
      }
      for (std::size_t i = 0; i < block.size(); ++i) {
        if (block.tiers[held + i] != t) continue;
        run.keys.copy(at, block.keys, i);
        run.values.copy(at, block.values, i);
        run.positions[at++] = block.first + static_cast<Position>(i);
      }
      runs[t] = std::move(run);
    }
    runs_ = std::move(runs);
    share_means();
  }

  void segments(std::vector<Segment>& out) const override {
    for (const Run& run : runs_) {
      if (run.positions.empty()) continue;
      Segment segment;
      segment.keys = run.keys.view(0, run.positions.size());
      segment.values = run.values.view(0, run.positions.size());
      segment.positions = run.positions.data();
      out.push_back(segment);
    }
  }

  std::size_t entries() const override {
    std::size_t count = 0;
    for (const Run& run : runs_) count += run.positions.size();
    return count;
  }

  std::size_t bytes() const override {
    std::size_t bytes = 0;
    for (const Run& run : runs_) {
      bytes += run.keys.bytes() + run.values.bytes() + run.positions.capacity() * sizeof(Position);
    }
    // Runs share their means.
    std::size_t key_means = 0, value_means = 0;
    for (const Run& run : runs_) {
      key_means += !run.keys.mean().empty();
      value_means += !run.values.mean().empty();
    }
    const auto shared = [](std::size_t means, std::size_t dim) {
      return means == 0 ? 0 : (means - 1) * dim * sizeof(float);
    };
    return bytes - shared(key_means, setup_.key_dim) - shared(value_means, setup_.value_dim);
  }

  std::vector<KeptEntry> kept() const override {
    std::vector<KeptEntry> out;
    for (const Run& run : runs_) {
      for (Position position : run.positions) out.push_back({position, 1, 1});
    }
    return out;
  }

  void save(ByteWriter& out) const override {
    for (const Run& run : runs_) {
      out.put<std::uint64_t>(run.positions.size());
      out.put_all<Position>(run.positions);
      save_rows(out, run.keys.view(0, run.positions.size()));
      save_rows(out, run.values.view(0, run.positions.size()));
    }
  }

  void load(ByteReader& in) override {
    const std::vector<Tier> tiers = this->tiers();
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      Run run(tiers[t], setup_, in.get_count(in.left() / sizeof(Position), "entries of a tier"));
      in.get_all<Position>(run.positions);
      for (std::size_t i = 0; i < run.positions.size(); ++i) {
        const Position before = i == 0 ? -1 : run.positions[i - 1];
        require(run.positions[i] > before, "{}: position {} comes after {}", in.what(),
                run.positions[i], before);
      }
      load_rows(in, run.keys, 0, run.positions.size());
      load_rows(in, run.values, 0, run.positions.size());
      runs_[t] = std::move(run);
    }
    share_means();
  }

 private:
  struct Run {
    Run() = default;
    Run(const Tier& tier, const SummarySetup& setup, std::size_t count)
        : keys(tier.key_type, setup.key_dim, count),
          values(tier.value_type, setup.value_dim, count),
          positions(count) {}
    Rows keys;
    Rows values;
    std::vector<Position> positions;
  };

  std::vector<Tier> tiers() const {
    return replay_tiers(setup_.policy, setup_.protocol, setup_.key_dim, setup_.value_dim);
  }

  /// An entry held.
  struct Source {
    Position position;
    std::size_t run;
    std::size_t entry;  ///< of the run
  };

  /// Entries held that go to tier t, in the order of the text.
  std::vector<Source> sources_of(std::span<const std::uint8_t> tiers, std::size_t t) const {
    std::vector<Source> out;
    std::size_t at = 0;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      for (std::size_t i = 0; i < runs_[r].positions.size(); ++i) {
        if (tiers[at++] == t) out.push_back({runs_[r].positions[i], r, i});
      }
    }
    std::ranges::sort(out, {}, &Source::position);
    return out;
  }

  /// What rotated rows are relative to: as those held, else the mean of the rows.
  std::vector<float> mean_for(Rows Run::*part, const RowsView& rows) const {
    for (const Run& run : runs_) {
      const std::span<const float> mean = (run.*part).mean();
      if (!mean.empty()) return {mean.begin(), mean.end()};
    }
    return mean_of(rows);
  }

  /// The mean row, in float64 sums.
  static std::vector<float> mean_of(const RowsView& rows) {
    std::vector<double> sums(rows.dim, 0.0);
    std::vector<float> row(rows.dim);
    for (std::size_t i = 0; i < rows.rows; ++i) {
      rows.decode(i, row);
      for (std::size_t c = 0; c < row.size(); ++c) sums[c] += double{row[c]};
    }
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = static_cast<float>(sums[c] / static_cast<double>(rows.rows));
    }
    return row;
  }

  /// One copy of equal means for all runs.
  void share_means() {
    const auto share = [&](Rows Run::*rows) {
      const Rows* first = nullptr;
      for (Run& run : runs_) {
        if ((run.*rows).mean().empty()) continue;
        if (first == nullptr) {
          first = &(run.*rows);
        } else if (std::ranges::equal(first->mean(), (run.*rows).mean())) {
          (run.*rows).share_mean(*first);
        }
      }
    };
    share(&Run::keys);
    share(&Run::values);
  }

  SummarySetup setup_;
  std::vector<Run> runs_;  ///< by tier
};

ReplayScore score_of(const Policy& policy) {
  constexpr std::array<std::pair<std::string_view, ReplayScore>, 4> kNames = {{
      {"max", ReplayScore::max},
      {"plain", ReplayScore::plain},
      {"rms", ReplayScore::rms},
      {"mean", ReplayScore::mean},
  }};
  const std::string_view name = policy.choice("score");
  return std::ranges::find(kNames, std::string_view(name), [](const auto& n) { return n.first; })
      ->second;
}

AttentionStats stats_of(const Policy& policy) { return {.replay = score_of(policy)}; }

}  // namespace

std::unique_ptr<Summary> make_tiered(const SummarySetup& setup) {
  return std::make_unique<TieredSummary>(setup);
}

std::vector<Parameter> tiered_parameters(std::string_view tiers, std::string_view chunk,
                                         std::string_view window) {
  using Kind = Parameter::Kind;
  return {{"bytes", Kind::memory, "", 0, 0, "", "of the whole cache: 1/8, 12%, 256M, 40K/token"},
          {"tiers", Kind::text, tiers, 0, 0, "", "precisions, key/value types joined by +"},
          {"chunk", Kind::integer, chunk, 16, 65536, "", "tokens that are read again at once"},
          {"sink", Kind::integer, "4", 0, 65536, "", "first tokens that no head drops"},
          {"window", Kind::integer, window, 0, 65536, "", "last tokens that no head drops"}};
}

std::vector<Tier> replay_tiers(const Policy& policy, Protocol protocol, std::size_t key_dim,
                               std::size_t value_dim) {
  const std::size_t kept = policy.attention_stats().replay == ReplayScore::max ? 2 : 1;
  const std::size_t more = protocol == Protocol::stream ? kept * sizeof(float) : 0;
  return parse_tiers(policy.text("tiers"), key_dim, value_dim, more);
}

const MethodInfo& replay_method() {
  static const std::vector<Parameter> parameters = [] {
    std::vector<Parameter> all = tiered_parameters("int8+q4+q4/q2+q2", "256", "8");
    all.insert(all.begin() + 1,
               {"score", Parameter::Kind::choice, "max", 0, 0, "max|plain|rms|mean",
                "what the second reading makes of attention; max weighs values and residuals"});
    return all;
  }();
  static const MethodInfo info = {
      .name = "replay",
      .title = "read twice; one budget in bytes gives each entry 8, 4 or 2 bits or nothing",
      .paper = "KVzip and KVzip+, with TurboQuant's codes in tiers",
      .parameters = parameters,
      .window = 8,
      .whole_cache = true,
      .attention_stats = {.replay = ReplayScore::max},
      .attention_stats_of = stats_of,
      .make = make_tiered,
  };
  return info;
}

}  // namespace ballast
