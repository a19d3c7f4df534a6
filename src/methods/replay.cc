// Replay: the text is read a second time against its own cache; one budget over all layers and
// heads then gives every entry a precision, or nothing, by the most attention it got. Score and
// global threshold: KVzip (Kim et al. 2025, arXiv:2505.23416), normalised as KVzip+
// (arXiv:2601.07891). More entries at fewer bits: arXiv:2412.12706.
#include "methods/replay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <new>
#include <numeric>
#include <utility>

#include "ballast/serialize.h"
#include "ballast/summary.h"
#include "base/checks.h"
#include "base/fail.h"
#include "methods/registry.h"
#include "storage/gap_code.h"
#include "storage/row_memory.h"
#include "storage/rows_bytes.h"

namespace ballast {
namespace {

/// The entries of one head in runs of equal precision, each in the order of the text.
class TieredSummary : public Summary {
 public:
  explicit TieredSummary(const SummarySetup& setup) : setup_(setup), runs_(tiers().size()) {
    means_tier_ = means_of(setup.policy, setup.protocol, tiers());
  }

  /// Entries held only move to tiers of fewer bytes: what was rounded is rounded again.
  void absorb(const Block& block) override {
    const std::size_t held = entries();
    require(block.tiers.size() == held + block.size(),
            "{} entries and {} tokens came with {} tiers", held, block.size(), block.tiers.size());
    const std::vector<Tier> tiers = this->tiers();
    std::vector<std::vector<Source>> sources = sources_of(block.tiers);
    std::vector<std::vector<Position>> positions(tiers.size());
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      for (const Source& source : sources[t]) positions[t].push_back(source.position);
      for (std::size_t i = 0; i < block.size(); ++i) {
        if (block.tiers[held + i] == t)
          positions[t].push_back(block.first + static_cast<Position>(i));
      }
    }
    std::vector<Run> runs = make_runs(tiers, positions);
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      Run& run = runs[t];
      if (run.count == 0) continue;
      std::size_t at = 0;
      for (const Source& source : sources[t]) {
        const Run& from = runs_[source.run];
        run.keys.copy(at, from.keys.view(source.entry, 1, source.position), 0);
        run.values.copy(at++, from.values.view(source.entry, 1), 0);
      }
      for (std::size_t i = 0; i < block.size(); ++i) {
        if (block.tiers[held + i] != t) continue;
        run.keys.copy(at, block.keys, i);
        run.values.copy(at++, block.values, i);
      }
    }
    runs_ = std::move(runs);
    if (means_tier_.part > 0 && entries() < setup_.capacity) {
      average(block, setup_.capacity - entries());
    }
  }

  void segments(std::vector<Segment>& out) const override {
    const auto add = [&](const Run& run, const float* log_weights) {
      for (const std::size_t part : {0, 1}) {
        Segment segment;
        segment.keys = run.keys_of(part);
        if (segment.keys.rows == 0) continue;
        segment.values = run.values.view(run.begin(part), segment.keys.rows);
        segment.positions = segment.keys.positions;
        if (log_weights != nullptr) segment.log_weights = log_weights + run.begin(part);
        out.push_back(segment);
      }
    };
    for (const Run& run : runs_) add(run, nullptr);
    add(means_, log_weights_.data());
  }

  std::size_t entries() const override {
    std::size_t count = means_.count;
    for (const Run& run : runs_) count += run.count;
    return count;
  }

  std::size_t bytes() const override {
    std::size_t bytes = log_weights_.capacity() * sizeof(float);
    const auto add = [&](const Run& run) {
      bytes += run.keys.bytes() + run.values.bytes() + run.positions.size_bytes() + run.code_bytes;
    };
    for (const Run& run : runs_) add(run);
    add(means_);
    return bytes;
  }

  std::vector<KeptEntry> kept() const override {
    std::vector<KeptEntry> out;
    for (const Run& run : runs_) {
      for (Position position : run.all_positions()) out.push_back({position, 1, 1});
    }
    const std::vector<Position> positions = means_.all_positions();
    for (std::size_t i = 0; i < means_.count; ++i) {
      const float weight = std::exp(log_weights_[i]);
      out.push_back({positions[i], weight, weight});
    }
    return out;
  }

  void save(ByteWriter& out) const override {
    for (const Run& run : runs_) save(out, run);
    if (means_tier_.part == 0) return;
    save(out, means_);
    out.put_all<float>(log_weights_);
  }

  void load(ByteReader& in) override {
    const std::vector<Tier> tiers = this->tiers();
    for (std::size_t t = 0; t < tiers.size(); ++t) {
      runs_[t] = load(in, tiers[t]);
    }
    if (means_tier_.part > 0) {
      means_ = load(in, means_tier_.tier);
      log_weights_.resize(means_.count);
      in.get_all<float>(log_weights_);
      require(std::ranges::all_of(log_weights_, [](float x) { return x >= 0 && x < 40; }),
              "{}: a weight of a mean is below 1 or not finite", in.what());
    }
  }

 private:
  struct Run {
    std::shared_ptr<const RowMemory> memory;  ///< that of all runs made with this one
    std::size_t count = 0;
    /// With reach= those of the text's first tokens, part 0: a segment of their own. Part 1: the
    /// others.
    std::size_t first = 0;
    Rows keys;
    Rows values;
    std::span<Position> positions;           ///< where attention asks for them; else empty
    std::array<std::uint8_t*, 2> gaps = {};  ///< else the code of each part
    std::size_t code_bytes = 0;

    std::size_t begin(std::size_t part) const { return part == 0 ? 0 : first; }
    std::size_t size(std::size_t part) const { return part == 0 ? first : count - first; }

    RowsView keys_of(std::size_t part) const {
      if (size(part) == 0) return {};
      RowsView view = keys.view(begin(part), size(part));
      if (!positions.empty()) view.positions = positions.data() + begin(part);
      view.gaps = gaps[part];
      return view;
    }

    std::vector<Position> all_positions() const {
      std::vector<Position> out(positions.begin(), positions.end());
      out.resize(count);
      for (const std::size_t part : {0, 1}) {
        if (gaps[part] == nullptr) continue;
        decode_gaps(gaps[part], std::span(out).subspan(begin(part), size(part)));
      }
      return out;
    }
  };

  /// Of ascending positions, those of a run's part 0.
  std::size_t first_of(std::span<const Position> positions) const {
    if (reach_of(setup_.policy) == 0) return 0;
    const auto sink = static_cast<Position>(setup_.policy.integer("sink"));
    return static_cast<std::size_t>(std::ranges::lower_bound(positions, sink) - positions.begin());
  }

  /// A run of entries at positions[t] for each tier. All lie in one piece of memory: a stream makes
  /// them anew after every chunk.
  std::vector<Run> make_runs(std::span<const Tier> tiers,
                             std::span<const std::vector<Position>> positions) const {
    const auto up = [](std::size_t bytes) {
      return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    };
    const auto key_bytes = [&](std::size_t t) {
      return up(Rows::memory_for(tiers[t].key_type, setup_.key_dim, positions[t].size()));
    };
    const auto value_bytes = [&](std::size_t t) {
      return up(Rows::memory_for(tiers[t].value_type, setup_.value_dim, positions[t].size()));
    };
    const auto position_bytes = [&](std::size_t t) {
      const std::span<const Position> all = positions[t];
      if (setup_.asks_positions) return all.size_bytes();
      const std::size_t first = first_of(all);
      return gap_bytes(all.first(first)) + gap_bytes(all.subspan(first));
    };
    std::size_t bytes = 0;
    for (std::size_t t = 0; t < positions.size(); ++t) {
      bytes += key_bytes(t) + value_bytes(t) + up(position_bytes(t));
    }
    std::vector<Run> runs(positions.size());
    if (bytes == 0) return runs;
    const auto memory = std::make_shared<RowMemory>(setup_.protocol == Protocol::stream
                                                        ? allocate_rows_in_own_pages(bytes)
                                                        : allocate_rows(bytes));
    std::byte* at = memory->get();
    const auto take = [&](std::size_t size) { return std::exchange(at, at + size); };
    for (std::size_t t = 0; t < positions.size(); ++t) {
      const std::size_t count = positions[t].size();
      if (count == 0) continue;
      Run& run = runs[t];
      run.memory = memory;
      run.count = count;
      run.first = first_of(positions[t]);
      run.keys = Rows(tiers[t].key_type, setup_.key_dim, count, take(key_bytes(t)));
      run.values = Rows(tiers[t].value_type, setup_.value_dim, count, take(value_bytes(t)));
      run.keys.set_mean(setup_.key_mean);
      run.values.set_mean(setup_.value_mean);
      std::byte* const rest = take(up(position_bytes(t)));
      if (setup_.asks_positions) {
        run.positions = {new (rest) Position[count], count};
        std::ranges::copy(positions[t], run.positions.begin());
      } else {
        auto* code = reinterpret_cast<std::uint8_t*>(rest);
        for (const std::size_t part : {0, 1}) {
          const auto of = std::span(positions[t]).subspan(run.begin(part), run.size(part));
          if (of.empty()) continue;
          run.gaps[part] = code;
          encode_gaps(of, code);
          code += gap_bytes(of);
        }
        run.code_bytes = position_bytes(t);
      }
    }
    return runs;
  }

  Run make_run(const Tier& tier, const std::vector<Position>& positions) const {
    return std::move(make_runs({&tier, 1}, {&positions, 1})[0]);
  }

  static void save(ByteWriter& out, const Run& run) {
    out.put<std::uint64_t>(run.count);
    out.put_all<Position>(run.all_positions());
    save_rows(out, run.keys.view(0, run.count));
    save_rows(out, run.values.view(0, run.count));
  }

  Run load(ByteReader& in, const Tier& tier) const {
    std::vector<Position> positions(
        in.get_count(in.left() / sizeof(Position), "entries of a tier"));
    in.get_all<Position>(positions);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const Position before = i == 0 ? -1 : positions[i - 1];
      require(positions[i] > before, "{}: position {} comes after {}", in.what(), positions[i],
              before);
    }
    Run run = make_run(tier, positions);
    load_rows(in, run.keys, 0, run.count);
    load_rows(in, run.values, 0, run.count);
    return run;
  }

  /// Lets means of `count` runs of neighbours stand for the block's evicted tokens, each with the
  /// weight of its tokens.
  void average(const Block& block, std::size_t count) {
    std::vector<std::uint32_t> evicted;
    for (std::uint32_t i = 0; i < block.size(); ++i) {
      if (block.tiers[i] >= runs_.size()) evicted.push_back(i);
    }
    count = std::min(count, evicted.size());
    if (count == 0) return;
    const auto begin = [&](std::size_t i) { return i * evicted.size() / count; };
    std::vector<Position> middle;
    log_weights_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t at = evicted[(begin(i) + begin(i + 1)) / 2];
      middle.push_back(block.first + static_cast<Position>(at));
      log_weights_.push_back(std::log(static_cast<float>(begin(i + 1) - begin(i))));
    }
    means_ = make_run(means_tier_.tier, middle);
    for (std::size_t i = 0; i < count; ++i) {
      const auto rows = std::span(evicted).subspan(begin(i), begin(i + 1) - begin(i));
      means_.keys.set(i, mean_of(block.keys, rows), middle[i]);
      means_.values.set(i, mean_of(block.values, rows), middle[i]);
    }
  }
  static std::vector<float> mean_of(const RowsView& all, std::span<const std::uint32_t> rows) {
    std::vector<double> sum(all.dim, 0);
    std::vector<float> row(all.dim);
    for (const std::uint32_t i : rows) {
      all.decode(i, row);
      for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += row[d];
    }
    const auto count = static_cast<double>(rows.size());
    std::ranges::transform(sum, row.begin(),
                           [&](double x) { return static_cast<float>(x / count); });
    return row;
  }

  std::vector<Tier> tiers() const {
    return replay_tiers(setup_.policy, setup_.protocol, setup_.key_dim, setup_.value_dim);
  }

  /// An entry held.
  struct Source {
    Position position;
    std::uint32_t run;
    std::uint32_t entry;  ///< of the run
  };

  /// Entries held that go to each tier, in the order of the text.
  std::vector<std::vector<Source>> sources_of(std::span<const std::uint8_t> tiers) const {
    std::vector<std::vector<Source>> out(runs_.size());
    std::size_t at = 0;
    for (std::uint32_t r = 0; r < runs_.size(); ++r) {
      std::uint32_t entry = 0;
      for (Position position : runs_[r].all_positions()) {
        if (const std::size_t t = tiers[at++]; t < out.size()) {
          out[t].push_back({position, r, entry});
        }
        ++entry;
      }
    }
    for (std::vector<Source>& sources : out) std::ranges::sort(sources, {}, &Source::position);
    return out;
  }

  SummarySetup setup_;
  std::vector<Run> runs_;  ///< by tier
  MeansTier means_tier_;
  Run means_;
  std::vector<float> log_weights_;  ///< of the entries of means_
};

ReplayScore score_of(const Policy& policy) {
  for (ReplayScore score : {ReplayScore::plain, ReplayScore::rms, ReplayScore::mean}) {
    if (policy.choice("score") == to_string(score)) return score;
  }
  return ReplayScore::max;
}

Needs needs_of(const Policy& policy) {
  return {.replay = score_of(policy),
          .replay_own = reads_own(policy),
          .question = policy.choice("question") == "known"};
}

}  // namespace

MeansTier means_of(const Policy& policy, Protocol protocol, std::span<const Tier> tiers) {
  if (protocol != Protocol::prefill || policy.real("means") == 0) return {};
  MeansTier out{policy.real("means"), tiers[safe_tier(tiers)]};
  out.tier.bytes += sizeof(float);
  return out;
}

bool reads_own(const Policy& policy) { return policy.choice("reading") == "own"; }

std::unique_ptr<Summary> make_tiered(const SummarySetup& setup) {
  return std::make_unique<TieredSummary>(setup);
}

std::vector<Parameter> tiered_parameters(std::string_view tiers, std::string_view chunk,
                                         std::string_view window, std::string_view floor) {
  using Kind = Parameter::Kind;
  return {{"bytes", Kind::memory, "", 0, 0, "", "of the whole cache: 1/8, 12%, 256M, 40K/token"},
          {"tiers", Kind::text, tiers, 0, 0, "", "precisions, key/value types joined by +"},
          {"chunk", Kind::integer, chunk, 16, 65536, "",
           "tokens that are read again at once; in stream, between two divisions of the budget"},
          {"floor", Kind::real, floor, 0, 1, "",
           "each head keeps its best entries in any case, in this part of an equal share"},
          {"means", Kind::real, "0", 0, 1, "",
           "part of the bytes that means of neighbours among the evicted take (prefill)"},
          {"sink", Kind::integer, "4", 0, 65536, "", "first tokens that no head drops"},
          {"window", Kind::integer, window, 0, 65536, "", "last tokens that no head drops"}};
}

std::vector<Parameter> rereading_parameters(std::string_view tiers, std::string_view chunk,
                                            std::string_view window) {
  std::vector<Parameter> all = tiered_parameters(tiers, chunk, window);
  all.insert(all.begin() + 3, {"reading", Parameter::Kind::choice, "all", 0, 0, "all|own",
                               "own: a chunk that is read again scores its own tokens only"});
  return all;
}

std::vector<Tier> replay_tiers(const Policy& policy, Protocol protocol, std::size_t key_dim,
                               std::size_t value_dim) {
  const std::size_t kept = policy.needs().replay == ReplayScore::max ? 2 : 1;
  const std::size_t more = protocol == Protocol::stream ? kept * sizeof(float) : 0;
  const std::string text(policy.text("tiers"));
  std::vector<Tier> tiers = parse_tiers(text, key_dim, value_dim, more);
  // The first and the last tokens take one of 8 bits or more.
  const Tier& safe = tiers[safe_tier(tiers)];
  if (!is_low_bit(safe.key_type) && !is_low_bit(safe.value_type)) return tiers;
  return parse_tiers(text + "+int8", key_dim, value_dim, more);
}

const MethodInfo& replay_method() {
  static const std::vector<Parameter> parameters = [] {
    std::vector<Parameter> all = rereading_parameters(kTiers, "256", "8");
    all.insert(all.begin() + 1,
               {"score", Parameter::Kind::choice, "max", 0, 0, "max|plain|rms|mean",
                "what the replay pass makes of attention; max weighs values and residuals"});
    all.push_back({"question", Parameter::Kind::choice, "later", 0, 0, "later|known",
                   "known: what the question looks at counts, too (run --question)"});
    return all;
  }();
  static const MethodInfo info = {
      .name = "replay",
      .title = "read twice; one budget in bytes gives each entry 8, 4, 3 or 2 bits or nothing",
      .paper = "KVzip and KVzip+, with TurboQuant's codes in tiers",
      .parameters = parameters,
      .window = 8,
      .global_budget = true,
      .needs = {.replay = ReplayScore::max},
      .needs_of = needs_of,
      .make = make_tiered,
  };
  return info;
}

}  // namespace ballast
