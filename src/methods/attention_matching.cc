// Attention Matching: a few entries whose weights and values are fitted so that they answer the
// last queries as all would. arXiv:2602.16284, section 3: keys of the highest attention
// (keys=highest) or by orthogonal matching pursuit (keys=omp), then weights, then values.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ballast/entry_store.h"
#include "base/fail.h"
#include "methods/registry.h"
#include "methods/ridge.h"

namespace ballast {
namespace {

constexpr std::size_t kObserve = 128;  // by default
/// Multiplications of one KV head: at a time, where more than kObserve tokens are observed or keys
/// are pursued; and for each token that comes in, where few come in at a time.
constexpr double kMostWork = 4294967296;    // 2^32
constexpr double kMostTokenWork = 4194304;  // 2^22

/// Of weights and values of `chosen` entries that answer `rows` queries.
double fit_work(double rows, double chosen) {
  return 2 * std::pow(std::min(rows, chosen), 2) * std::max(rows, chosen);
}

/// Of the choice among `entries`: a search every four that are chosen, a fit of weights every
/// eight, of a size that grows.
double pursuit_work(double rows, double entries, double chosen) {
  return chosen / 4 * rows * entries + chosen / 48 * fit_work(rows, chosen);
}

class AttentionMatching : public Summary {
 public:
  explicit AttentionMatching(const SummarySetup& setup)
      : setup_(setup),
        pursuit_(setup.policy.choice("keys") == "omp"),
        ridge_(setup.policy.real("ridge")),
        observe_(setup.policy.observed()),
        store_(setup, setup.capacity) {
    if (setup.step > 0 && setup.capacity > 0)
      check_work(observe_ * setup.queries_per_kv_head, setup.capacity + setup.step);
  }

  void absorb(const Block& block) override {
    if (store_.size() + block.size() <= store_.capacity()) {
      for (std::size_t i = 0; i < block.size(); ++i) store_.push(block, i);
      return;
    }
    if (store_.capacity() > 0) compact(block);
  }

  void segments(std::vector<Segment>& out) const override {
    if (store_.size() != 0) out.push_back(store_.segment());
  }
  std::size_t entries() const override { return store_.size(); }
  std::size_t bytes() const override { return store_.bytes(); }
  std::vector<KeptEntry> kept() const override {
    std::vector<KeptEntry> out;
    for (std::size_t i = 0; i < store_.size(); ++i) {
      const float weight = std::exp(store_.log_weight(i));
      out.push_back({store_.position(i), weight, weight});
    }
    return out;
  }
  void save(ByteWriter& out) const override { store_.save(out); }
  void load(ByteReader& in) override { store_.load(in); }

 private:
  /// The entries held, then the block, and what the queries see of them.
  struct Problem {
    Matrix keys, values;
    std::vector<Position> positions;
    std::vector<float> log_weights;
    Columns shares;              ///< E: e^(logit - the query's largest), a column an entry
    std::vector<double> totals;  ///< y: of each query, summed over the entries
    Columns answers;             ///< Y: a column a number of the value
  };

  Problem problem(const Block& block) const {
    Problem p;
    const std::size_t held = store_.size(), n = held + block.size();
    p.keys = Matrix(n, setup_.key_dim);
    p.values = Matrix(n, setup_.value_dim);
    for (std::size_t j = 0; j < n; ++j) {
      const bool old = j < held;
      (old ? store_.keys() : block.keys).decode(old ? j : j - held, p.keys[j]);
      (old ? store_.values() : block.values).decode(old ? j : j - held, p.values[j]);
      p.positions.push_back(old ? store_.position(j)
                                : block.first + static_cast<Position>(j - held));
      p.log_weights.push_back(old ? store_.log_weight(j) : 0.0f);
    }
    const ConstMatrix queries = block.observed->queries();
    const std::span<const Position> positions = block.observed->query_positions();
    const std::size_t m = queries.rows;
    p.shares.assign(n, std::vector<double>(m, 0.0));
    p.totals.assign(m, 0.0);
    p.answers.assign(setup_.value_dim, std::vector<double>(m, 0.0));
    std::vector<double> logits(n);
    for (std::size_t i = 0; i < m; ++i) {
      double most = -HUGE_VAL;
      for (std::size_t j = 0; j < n; ++j) {
        if (p.positions[j] > positions[i]) {
          logits[j] = -HUGE_VAL;  // not seen
          continue;
        }
        double dot = 0;
        for (std::size_t c = 0; c < setup_.key_dim; ++c)
          dot += double{queries.row(i)[c]} * double{p.keys[j][c]};
        logits[j] = double{setup_.logits.scale} * dot + double{p.log_weights[j]};
        most = std::max(most, logits[j]);
      }
      if (most == -HUGE_VAL) continue;
      for (std::size_t j = 0; j < n; ++j)
        p.totals[i] += p.shares[j][i] = std::exp(logits[j] - most);
      for (std::size_t j = 0; j < n; ++j) {
        const double share = p.shares[j][i] / p.totals[i];
        for (std::size_t c = 0; c < setup_.value_dim; ++c)
          p.answers[c][i] += share * double{p.values[j][c]};
      }
    }
    return p;
  }

  /// Throws Error where fitting entries to `rows` queries would take too long.
  void check_work(std::size_t rows_, std::size_t entries_) const {
    const auto rows = static_cast<double>(rows_), entries = static_cast<double>(entries_);
    const auto chosen = static_cast<double>(store_.capacity());
    const double fit = fit_work(rows, chosen);
    double work = pursuit_ ? pursuit_work(rows, entries, chosen) : 0;
    if (observe_ > kObserve)
      work += fit + rows * entries * static_cast<double>(setup_.key_dim + setup_.value_dim);
    require(work <= kMostWork, ErrorCode::unsupported,
            "method attention-matching: {} entries fitted to {} queries would take {:.0f} million "
            "multiplications a KV head, more than {:.0f} million; give a smaller budget or "
            "observe{}",
            store_.capacity(), rows_, work / 1e6, kMostWork / 1e6,
            pursuit_ ? ", or keys=highest" : "");
    if (setup_.step == 0) return;
    // A refit takes as long however few tokens came in.
    const std::size_t least =
        std::min(std::clamp<std::size_t>(observe_ / 4, 16, kObserve), store_.capacity() / 4);
    require(setup_.step >= least ||
                std::max(work, fit) <= kMostTokenWork * static_cast<double>(setup_.step),
            ErrorCode::unsupported,
            "method attention-matching: a refit of {} entries every {} tokens is too slow; give "
            "step={} or more",
            store_.capacity(), setup_.step, least);
  }

  void compact(const Block& block) {
    // Of steps the first check holds: they come in while other sequences do.
    if (setup_.step == 0) check_work(block.observed->queries().rows, store_.size() + block.size());
    const Problem p = problem(block);
    const Chosen chosen = pursuit_ ? pursue(p.shares, p.totals, store_.capacity(), ridge_)
                                   : highest(p.shares, p.totals, store_.capacity(), ridge_);
    const std::size_t count = chosen.columns.size(), m = p.totals.size();
    // What the chosen entries answer with their weights, and values that answer better.
    Columns shares(count, std::vector<double>(m, 0.0));
    for (std::size_t i = 0; i < m; ++i) {
      double sum = 0;
      for (std::size_t a = 0; a < count; ++a)
        sum += chosen.weights[a] * p.shares[chosen.columns[a]][i];
      for (std::size_t a = 0; a < count && sum > 0; ++a)
        shares[a][i] = chosen.weights[a] * p.shares[chosen.columns[a]][i] / sum;
    }
    Matrix keys(count, setup_.key_dim), values(count, setup_.value_dim);
    for (std::size_t a = 0; a < count; ++a)
      std::ranges::copy(p.keys[chosen.columns[a]], keys[a].begin());
    const RidgeSolver solver(shares, ridge_);
    for (std::size_t c = 0; c < setup_.value_dim; ++c) {
      std::vector<double> start(count);
      for (std::size_t a = 0; a < count; ++a) start[a] = p.values[chosen.columns[a]][c];
      const std::vector<double> fitted = solver.solve(p.answers[c], start);
      for (std::size_t a = 0; a < count; ++a) values[a][c] = static_cast<float>(fitted[a]);
    }
    store_.clear();
    for (std::size_t a = 0; a < count; ++a) {
      Block one;
      one.keys = view_f32(keys.view().slice(a, 1));
      one.values = view_f32(values.view().slice(a, 1));
      one.first = p.positions[chosen.columns[a]];
      store_.push(
          one, 0,
          p.log_weights[chosen.columns[a]] + static_cast<float>(std::log(chosen.weights[a])));
    }
  }

  SummarySetup setup_;
  bool pursuit_;
  double ridge_;
  std::size_t observe_;
  EntryStore store_;
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<AttentionMatching>(setup);
}

}  // namespace

const MethodInfo& attention_matching_method() {
  using Kind = Parameter::Kind;
  static const MethodInfo info = {
      .name = "attention-matching",
      .title = "entries whose weights and values are fitted to the answers to the last queries",
      .paper = "Attention Matching 2026 (arXiv:2602.16284), section 3",
      .parameters = {{"keys", Kind::choice, "highest", 0, 0, "highest|omp",
                      "by root mean square attention, or by orthogonal matching pursuit"},
                     {"observe", Kind::integer, "128", 1, 65536, "",
                      "last tokens whose queries are answered"},
                     {"ridge", Kind::real, "0.3", 0, 1000, "",
                      "pull towards weights of 1 and the values that were, in mean squares"}},
      .step = 128,
      .needs = {.recent_queries = true, .fits_values = true},
      .make = make,
  };
  return info;
}

}  // namespace ballast
