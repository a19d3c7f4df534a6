#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/pack.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "pack/coder.h"
#include "pack/products.h"
#include "storage/round.h"

namespace ballast {
namespace {

constexpr std::size_t kBlock = PackedRows::kBlock;
constexpr std::size_t kTableBytes = sizeof(PackTable::frequency) + sizeof(PackTable::less);

/// The tokens of a group: exact ones [first, coded) and [end, tokens), others coded in blocks.
struct Layout {
  std::size_t first = 0, coded = 0, end = 0, tokens = 0;

  Layout(std::size_t tokens, std::size_t first) : first(first), tokens(tokens) {
    coded = std::max(first, std::min(tokens, PackedRows::kExactFirst));
    end = std::max(coded, tokens - std::min(tokens, PackedRows::kExactLast));
  }
  /// `window`: 0: all tokens.
  static Layout of(std::size_t tokens, std::size_t window) {
    const std::size_t kept = std::max(window, PackedRows::kExactLast);
    return {tokens, window == 0 || kept >= tokens ? 0 : (tokens - kept) / kBlock * kBlock};
  }
  std::size_t exact() const { return (coded - first) + (tokens - end); }
  /// The token of exact row i.
  std::size_t exact_token(std::size_t i) const {
    return i < coded - first ? first + i : end + (i - (coded - first));
  }
  std::size_t first_block() const { return first / kBlock; }
  std::size_t blocks() const {
    return end == coded ? 0 : (end + kBlock - 1) / kBlock - first_block();
  }
  /// The coded tokens of block b: from begin(b) on.
  std::size_t begin(std::size_t b) const { return std::max(coded, (first_block() + b) * kBlock); }
  std::size_t size(std::size_t b) const {
    const std::size_t until = std::min(end, (first_block() + b + 1) * kBlock);
    return until - std::min(until, begin(b));
  }
};

/// Which of some tokens lie far from the others: more than kFar times the median's square of the
/// distance to the mean. Of many the farthest.
constexpr double kFar = 6;
constexpr std::size_t kFarPart = 64;
std::vector<std::uint32_t> far_tokens(std::span<const double> squares, std::size_t first) {
  std::vector<double> sorted(squares.begin(), squares.end());
  const std::size_t most = squares.size() / kFarPart;
  if (most == 0) return {};
  std::ranges::sort(sorted);
  const double least = std::max(kFar * sorted[sorted.size() / 2], sorted[sorted.size() - most - 1]);
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    if (squares[i] > least) out.push_back(static_cast<std::uint32_t>(first + i));
  }
  return out;
}

/// Tokens far from all others, with their rows. Throws Error where they are none of the coded.
void load_far(ByteReader& in, const Layout& layout, std::size_t width, PackedRows::Group& group) {
  const auto far = in.get<std::uint32_t>();
  require(far <= (layout.end - layout.coded) / kFarPart &&
              far <= in.left() / (sizeof(std::uint32_t) + sizeof(std::uint16_t) * width),
          "{}: {} far tokens of {}", in.what(), far, layout.tokens);
  group.far.resize(far);
  in.get_all<std::uint32_t>(group.far);
  for (std::size_t i = 0; i < far; ++i) {
    require(
        group.far[i] >= (i == 0 ? layout.coded : group.far[i - 1] + 1) && group.far[i] < layout.end,
        "{}: a far token {} of {}", in.what(), group.far[i], layout.tokens);
  }
  group.far_rows.resize(far * width);
  in.get_all<std::uint16_t>(group.far_rows);
}

/// The inverse of a symmetric positive definite matrix, in float64.
std::vector<float> inverse_of(std::size_t n, std::span<const float> matrix) {
  std::vector<double> lower(n * n);  // matrix = lower · lower^T
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = matrix[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= lower[i * n + k] * lower[j * n + k];
      require(i != j || sum > 0, "the metric of a basis for packing is not positive definite");
      lower[i * n + j] = i == j ? std::sqrt(sum) : sum / lower[j * n + j];
    }
  }
  // Row c of `columns`: column c of lower^-1.
  std::vector<double> columns(n * n);
  for (std::size_t c = 0; c < n; ++c) {
    double* x = columns.data() + c * n;
    for (std::size_t i = c; i < n; ++i) {
      double sum = i == c ? 1 : 0;
      for (std::size_t k = c; k < i; ++k) sum -= lower[i * n + k] * x[k];
      x[i] = sum / lower[i * n + i];
    }
  }
  std::vector<float> out(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (std::size_t k = i; k < n; ++k) sum += columns[i * n + k] * columns[j * n + k];
      out[i * n + j] = out[j * n + i] = static_cast<float>(sum);
    }
  }
  require(first_not_finite(out) == out.size(), "the metric of a basis for packing has no inverse");
  return out;
}

/// How the coefficients of a group are rounded and coded.
struct Plan {
  std::vector<std::uint8_t> spreads;
  PackTables tables{};
  double bits = 0;  ///< that the coefficients it was made from take
};

/// Rounds coefficients of one spread: a dead zone about 0, and steps whose edges lie a little
/// outwards, as the density falls.
class Quantizer {
 public:
  Quantizer(std::uint8_t spread, float step) : inverse_(1 / step) {
    constexpr double kOutwards = 0.0578;
    const double steps = pack_spread::steps(spread);
    dead_ = static_cast<float>(0.5 + kOutwards * (1.5 + std::min(6.0, 1.2 / steps)));
    edge_ = static_cast<float>(0.5 + kOutwards * std::min(2.0, 1 / steps));
  }
  float in_steps(float y) const {
    return std::min(std::fabs(y) * inverse_, static_cast<float>(kMostPacked));
  }
  std::int32_t magnitude(float steps) const {
    if (!(steps >= dead_)) return 0;
    return std::min(std::max(1, static_cast<std::int32_t>(steps - edge_ + 1.0f)), kMostPacked);
  }
  std::int32_t operator()(float y) const {
    const std::int32_t m = magnitude(in_steps(y));
    return y < 0 ? -m : m;
  }

 private:
  float inverse_, dead_, edge_;
};

/// `samples`: rows of coefficients.
Plan make_plan(const PackGroup& group, ConstMatrix samples, float step) {
  constexpr double kWeight = 16;  // of the calibration's variance, in tokens
  Plan out;
  const std::size_t k = group.directions();
  out.spreads.resize(k);
  std::vector<double> sums(k);
  for (std::size_t t = 0; t < samples.rows; ++t) {
    for (std::size_t i = 0; i < k; ++i) sums[i] += double{samples[t][i]} * samples[t][i];
  }
  struct Seen {
    std::array<std::uint64_t, PackTable::kClasses> classes{};
    std::array<double, 3> less{};
    std::array<std::uint64_t, 3> count{};
    double more_bits = 0;
  };
  std::array<Seen, pack_spread::kCount> seen{};
  for (std::size_t i = 0; i < k; ++i) {
    const double variance = (sums[i] + kWeight * double{group.variance[i]}) /
                            (static_cast<double>(samples.rows) + kWeight);
    const std::uint8_t spread = pack_spread::of(std::sqrt(variance) / double{step});
    out.spreads[i] = spread;
    if (spread == pack_spread::kNone) continue;
    const Quantizer quantizer(spread, step);
    Seen& of = seen[spread];
    for (std::size_t t = 0; t < samples.rows; ++t) {
      const float steps = quantizer.in_steps(samples[t][i]);
      const std::int32_t q = quantizer.magnitude(steps);
      const PackClass c = pack_class(spread, static_cast<std::uint32_t>(q));
      ++of.classes[c.number];
      of.more_bits += static_cast<double>(c.more_bits);
      if (q == 0) continue;
      const std::size_t which = std::min(q, 3) - 1;
      of.less[which] += double{static_cast<float>(q)} - double{steps};
      ++of.count[which];
    }
  }
  for (std::size_t s = 0; s < seen.size(); ++s) {
    if (std::ranges::find(out.spreads, s) == out.spreads.end() || s == pack_spread::kNone) continue;
    PackTable& table = out.tables[s];
    table = PackTable::of(static_cast<std::uint8_t>(s), seen[s].classes);
    for (std::size_t i = 0; i < 3; ++i) {
      if (seen[s].count[i] == 0) continue;
      const double less = seen[s].less[i] / static_cast<double>(seen[s].count[i]);
      table.less[i] = static_cast<std::int8_t>(std::clamp(std::round(256 * less), -127.0, 127.0));
    }
    for (std::size_t c = 0; c < PackTable::kClasses; ++c) {
      out.bits += static_cast<double>(seen[s].classes[c]) *
                  (PackTable::kBits - std::log2(static_cast<double>(table.frequency[c])));
    }
    out.bits += seen[s].more_bits;
  }
  return out;
}

void save_tables(ByteWriter& out, const Plan& plan) {
  for (std::size_t s = 0; s < plan.tables.size(); ++s) {
    if (plan.tables[s].frequency[0] != 0) plan.tables[s].save(out);
  }
}

PackTables load_tables(const PackedRows::Group& group) {
  std::array<bool, pack_spread::kCount> used{};
  for (std::uint8_t spread : group.spread) used[spread] = true;
  PackTables out{};
  ByteReader in(group.tables, "packed rows");
  for (std::size_t s = pack_spread::kLeast; s < used.size(); ++s) {
    if (used[s]) out[s] = PackTable::load(in);
  }
  require(in.left() == 0, "packed rows: {} bytes too many of tables", in.left());
  return out;
}

/// Tokens from which a plan is made: runs of them, evenly over the coded ones.
std::vector<std::size_t> sample_of(const Layout& layout) {
  constexpr std::size_t kRun = 16, kLeastRuns = 32, kTokensARun = 256;
  const std::size_t coded = layout.end - layout.coded;
  const std::size_t runs = std::max(kLeastRuns, coded / kTokensARun);
  std::vector<std::size_t> out;
  if (coded <= runs * kRun) {
    for (std::size_t t = 0; t < coded; ++t) out.push_back(layout.coded + t);
    return out;
  }
  for (std::size_t run = 0; run < runs; ++run) {
    const std::size_t begin = (coded - kRun) * run / (runs - 1);
    for (std::size_t t = 0; t < kRun; ++t) out.push_back(layout.coded + begin + t);
  }
  return out;
}

/// The integers of coefficients y, direction by direction.
std::vector<std::int32_t> integers_of(const Matrix& y, const Plan& plan, float step) {
  std::vector<std::int32_t> out(y.cols() * y.rows());
  for (std::size_t i = 0; i < y.cols(); ++i) {
    if (plan.spreads[i] == pack_spread::kNone) continue;
    const Quantizer quantizer(plan.spreads[i], step);
    for (std::size_t t = 0; t < y.rows(); ++t) out[i * y.rows() + t] = quantizer(y[t][i]);
  }
  return out;
}

}  // namespace

struct PackCodec::Prepared {
  struct Group {
    kernels::PackBlocks metric, inverse;
    kernels::PackMatrix forward, back;
    std::vector<float> minus_mean;
  };
  std::vector<Group> groups;

  Prepared(const PackBasis& basis) {
    for (const PackGroup& g : basis.groups) {
      const std::size_t n = g.width(), k = g.directions();
      Group& out = groups.emplace_back(Group{{},
                                             {},
                                             kernels::PackMatrix(g.basis, n, k, true),
                                             kernels::PackMatrix(g.basis, k, n, false),
                                             g.mean});
      for (float& x : out.minus_mean) x = -x;
      struct Place {
        std::size_t size, at;
      };
      std::vector<Place> places;
      std::size_t at = 0;
      for (std::size_t l = 0; l < g.layers.size(); ++l) {
        for (std::size_t size : {basis.key_dim, basis.value_dim}) {
          for (std::size_t h = 0; h < basis.kv_heads; ++h) {
            places.push_back({size, at});
            at += size * size;
          }
        }
      }
      std::vector<std::vector<float>> inverses(places.size());
      const auto matrix = [&](std::size_t i) {
        return std::span(g.metric).subspan(places[i].at, places[i].size * places[i].size);
      };
      parallel_for(places.size(),
                   [&](std::size_t i) { inverses[i] = inverse_of(places[i].size, matrix(i)); });
      for (std::size_t i = 0; i < places.size(); ++i) {
        out.metric.add(places[i].size, matrix(i));
        out.inverse.add(places[i].size, inverses[i]);
      }
    }
  }

  /// The coefficients of rows x, which are changed.
  void transform(const PackBasis& basis, std::size_t g, MutableMatrix x, MutableMatrix y) const {
    const Group& group = groups[g];
    for (std::size_t t = 0; t < x.rows; ++t) {
      require(first_not_finite(x[t]) == x.cols, ErrorCode::not_finite,
              "a row to be packed has an element that is not finite");
    }
    group.metric.apply(x, group.minus_mean, {});
    kernels::PackRows rows;
    rows.set(x);
    kernels::pack_product(rows, group.forward, x.cols, 0, kernels::pack_strips(y.cols), y);
    const std::vector<float>& scale = basis.groups[g].basis_scale;
    for (std::size_t t = 0; t < y.rows; ++t) {
      for (std::size_t i = 0; i < y.cols; ++i) y.row(t)[i] *= scale[i];
    }
  }

  /// The coefficients of some tokens.
  Matrix sample(const PackBasis& basis, std::size_t g, const Rows& rows,
                std::span<const std::size_t> tokens) const {
    const std::size_t n = basis.groups[g].width();
    Matrix out(tokens.size(), basis.groups[g].directions());
    parallel_for((tokens.size() + kBlock - 1) / kBlock, [&](std::size_t part) {
      const std::size_t begin = part * kBlock, count = std::min(kBlock, tokens.size() - begin);
      Matrix x(count, n);
      for (std::size_t i = 0; i < count;) {  // runs of consecutive tokens
        std::size_t run = 1;
        while (i + run < count && tokens[begin + i + run] == tokens[begin + i] + run) ++run;
        rows(g, tokens[begin + i], x.view().slice(i, run));
        i += run;
      }
      transform(basis, g, x.view(), out.view().slice(begin, count));
    });
    return out;
  }
};

PackCodec::PackCodec(std::shared_ptr<const PackBasis> basis)
    : basis_(std::move(basis)), prepared_(std::make_unique<Prepared>(*basis_)) {}
PackCodec::~PackCodec() = default;
PackCodec::PackCodec(PackCodec&&) noexcept = default;
PackCodec& PackCodec::operator=(PackCodec&&) noexcept = default;

PackedRows PackCodec::encode(std::size_t tokens, const Rows& rows, float step,
                             std::span<const std::size_t> windows) const {
  require(step > 0 && std::isfinite(step) && std::isfinite(1 / step),
          "a step of {} to pack with: it must be positive", step);
  PackedRows out;
  out.tokens = tokens;
  out.step = step;
  out.basis = basis_->hash();
  for (std::size_t g = 0; g < basis_->groups.size(); ++g) {
    const PackGroup& basis = basis_->groups[g];
    const std::size_t n = basis.width(), k = basis.directions();
    const Layout layout = Layout::of(tokens, windows.empty() ? 0 : windows[g]);
    PackedRows::Group& group = out.groups.emplace_back();
    group.first = layout.first;
    Matrix one(1, n);
    const auto add_row = [&](std::size_t token, std::vector<std::uint16_t>& to) {
      rows(g, token, one.view());
      require(first_not_finite(one[0]) == n, ErrorCode::not_finite,
              "a row to be packed has an element that is not finite");
      std::ranges::transform(one[0], std::back_inserter(to), kernels::bf16_encode);
    };
    for (std::size_t i = 0; i < layout.exact(); ++i) add_row(layout.exact_token(i), group.exact);
    const Plan plan =
        make_plan(basis, prepared_->sample(*basis_, g, rows, sample_of(layout)).view(), step);
    group.spread = plan.spreads;
    MemoryWriter tables;
    save_tables(tables, plan);
    group.tables = std::move(tables.bytes);
    group.blocks.resize(layout.blocks());
    std::vector<double> squares(layout.end - layout.coded);  // of the distance to the mean
    parallel_for(layout.blocks(), [&](std::size_t b) {
      const std::size_t count = layout.size(b);
      Matrix x(count, n), y(count, k);
      rows(g, layout.begin(b), x.view());
      prepared_->transform(*basis_, g, x.view(), y.view());
      for (std::size_t t = 0; t < count; ++t) {
        double& sum = squares[layout.begin(b) + t - layout.coded];
        for (const float element : x[t]) sum += double{element} * double{element};
      }
      const std::vector<std::int32_t> integers = integers_of(y, plan, step);
      group.blocks[b] = encode_integers(integers, count, plan.spreads, plan.tables);
    });
    group.far = far_tokens(squares, layout.coded);
    for (const std::uint32_t token : group.far) add_row(token, group.far_rows);
  }
  return out;
}

float PackCodec::step_for(std::size_t tokens, const Rows& rows, double divisor,
                          std::span<const std::size_t> windows) const {
  require(divisor >= 1 && std::isfinite(divisor), "packing to 1/{} of the bytes", divisor);
  struct Part {
    const PackGroup* group;
    Matrix samples;
    double scale;  ///< from the samples' bits to the bytes of all coded tokens
  };
  std::vector<Part> parts;
  double all = 0, fixed = 0, most = 0;
  for (std::size_t g = 0; g < basis_->groups.size(); ++g) {
    const PackGroup& group = basis_->groups[g];
    const Layout layout = Layout::of(tokens, windows.empty() ? 0 : windows[g]);
    const auto sample = sample_of(layout);
    all += 2.0 * static_cast<double>((tokens - layout.first) * group.width());
    fixed += 2.0 * static_cast<double>(layout.exact() * group.width());
    most = std::max(most, double{*std::ranges::max_element(group.variance)});
    if (sample.empty()) continue;
    parts.push_back(
        {&group, prepared_->sample(*basis_, g, rows, sample),
         static_cast<double>(layout.end - layout.coded) / 8 / static_cast<double>(sample.size())});
  }
  // Where the exact tokens take most of it, the others get a quarter still.
  const double wanted = std::max(all / divisor - fixed, all / divisor / 4);
  double low = -20 + std::log(most) / 2, high = 20 + std::log(most) / 2;
  double found = low;
  for (int round = 0; round < 40 && high - low > 1e-4; ++round) {
    found = (low + high) / 2;
    double sum = 0;
    for (const Part& part : parts) {
      const auto step = static_cast<float>(std::exp(found));
      sum += make_plan(*part.group, part.samples.view(), step).bits * part.scale;
    }
    (sum > wanted ? low : high) = found;
  }
  return static_cast<float>(std::exp(found));
}

void PackCodec::decode(const PackedRows& packed, std::size_t g, std::size_t first,
                       MutableMatrix out) const {
  const PackGroup& basis = basis_->groups.at(g);
  const PackedRows::Group& group = packed.groups.at(g);
  const std::size_t n = basis.width();
  const Layout layout(packed.tokens, group.first);
  require(out.cols == n && first + out.rows <= packed.tokens,
          "tokens {} to {} of {} elements are asked of {} packed ones of {}", first,
          first + out.rows, out.cols, packed.tokens, n);
  const std::size_t end = first + out.rows;
  for (std::size_t t = first; t < std::min(end, layout.first); ++t) {
    std::ranges::fill(out[t - first], 0.0f);
  }
  for (std::size_t i = 0; i < layout.exact(); ++i) {
    const std::size_t t = layout.exact_token(i);
    if (t < first || t >= end) continue;
    std::ranges::transform(std::span(group.exact).subspan(i * n, n), out[t - first].begin(),
                           kernels::bf16_decode);
  }
  const std::size_t begin = std::max(first, layout.coded), until = std::min(end, layout.end);
  if (begin >= until) return;
  const PackDecoder decoder(group.spread, load_tables(group));
  const PackTables tables = load_tables(group);
  std::size_t live = group.spread.size();
  while (live > 0 && group.spread[live - 1] == pack_spread::kNone) --live;
  const std::span spreads = std::span(group.spread).first(live);
  const std::size_t first_block = begin / kBlock - layout.first_block();
  const std::size_t blocks = (until - 1) / kBlock - layout.first_block() + 1 - first_block;
  parallel_for(blocks, [&](std::size_t i) {
    const std::size_t b = first_block + i, count = layout.size(b);
    std::vector<std::int32_t> integers(live * count);
    decoder.decode(group.blocks[b], count, spreads, integers);
    Matrix y(count, live), x(count, n);
    for (std::size_t c = 0; c < live; ++c) {
      const float unit = packed.step * basis.basis_scale[c];
      const PackTable& table = tables[spreads[c]];
      for (std::size_t t = 0; t < count; ++t) {
        const std::int32_t q = integers[c * count + t];
        if (q == 0) continue;
        const std::int32_t magnitude = std::abs(q);
        const float less = table.less[static_cast<std::size_t>(std::min(magnitude, 3) - 1)];
        const float at = (static_cast<float>(magnitude) - less / 256.0f) * unit;
        y[t][c] = q < 0 ? -at : at;
      }
    }
    kernels::PackRows codes;
    codes.set(y.view());
    const Prepared::Group& prepared = prepared_->groups[g];
    kernels::pack_product(codes, prepared.back, live, 0, kernels::pack_strips(n), x.view());
    prepared.inverse.apply(x.view(), {}, basis.mean);
    for (std::size_t t = 0; t < count; ++t) {
      const std::size_t token = layout.begin(b) + t;
      if (token >= begin && token < until) std::ranges::copy(x[t], out[token - first].begin());
    }
  });
  for (std::size_t i = 0; i < group.far.size(); ++i) {
    if (group.far[i] < begin || group.far[i] >= until) continue;
    std::ranges::transform(std::span(group.far_rows).subspan(i * n, n),
                           out[group.far[i] - first].begin(), kernels::bf16_decode);
  }
}

void PackedRows::save(ByteWriter& out) const {
  out.put<std::uint64_t>(tokens);
  out.put(step);
  out.put(basis);
  out.put<std::uint64_t>(groups.size());
  for (const Group& group : groups) {
    out.put<std::uint64_t>(group.first);
    std::vector<std::byte> plain;
    const auto add = [&](std::span<const std::byte> bytes) {
      plain.insert(plain.end(), bytes.begin(), bytes.end());
    };
    add(std::as_bytes(std::span(group.spread)));
    add(group.tables);
    std::vector<std::byte> small(compressBound(plain.size()));
    uLongf size = small.size();
    const int status =
        compress2(reinterpret_cast<Bytef*>(small.data()), &size,
                  reinterpret_cast<const Bytef*>(plain.data()), plain.size(), Z_BEST_COMPRESSION);
    require(status == Z_OK, ErrorCode::out_of_memory, "no memory to compress tables");
    out.put(static_cast<std::uint32_t>(size));
    out.write(small.data(), size);
    out.put_all<std::uint16_t>(group.exact);
    out.put(static_cast<std::uint32_t>(group.far.size()));
    out.put_all<std::uint32_t>(group.far);
    out.put_all<std::uint16_t>(group.far_rows);
    for (const auto& block : group.blocks) out.put(static_cast<std::uint32_t>(block.size()));
    for (const auto& block : group.blocks) out.put_all<std::byte>(block);
  }
}

std::size_t PackedRows::bytes() const {
  struct Counter : ByteWriter {
    void write(const void*, std::size_t size) override { sum += size; }
    std::size_t sum = 0;
  } counter;
  save(counter);
  return counter.sum;
}

PackedRows PackedRows::load(ByteReader& in, const PackBasis& basis) {
  PackedRows out;
  out.tokens = in.get_count(std::numeric_limits<Position>::max(), "the number of tokens");
  out.step = in.get<float>();
  require(out.step > 0 && std::isfinite(out.step), "{}: packed with a step of {}", in.what(),
          out.step);
  out.basis = in.get<std::uint64_t>();
  require(out.basis == basis.hash(),
          "{}: packed with another basis ({:016x}) than the one of the model ({:016x}): put back "
          "the file that `ballast calibrate` had made, or read the text again",
          in.what(), out.basis, basis.hash());
  const std::size_t groups = in.get_count(basis.groups.size(), "the number of groups");
  require(groups == basis.groups.size(), "{}: {} groups of layers, the basis has {}", in.what(),
          groups, basis.groups.size());
  for (const PackGroup& of : basis.groups) {
    Group& group = out.groups.emplace_back();
    group.first = in.get_count(out.tokens, "the first token of a group");
    require(
        group.first % kBlock == 0 && group.first + kExactLast <= std::max(out.tokens, kExactLast),
        "{}: a group of layers begins at token {} of {}", in.what(), group.first, out.tokens);
    std::vector<std::byte> plain(of.directions() + pack_spread::kCount * kTableBytes);
    const auto packed = in.get<std::uint32_t>();
    require(packed <= in.left(), "{}: ends within its tables", in.what());
    std::vector<std::byte> small(packed);
    in.get_all<std::byte>(small);
    uLongf size = plain.size();
    const int status = uncompress(reinterpret_cast<Bytef*>(plain.data()), &size,
                                  reinterpret_cast<const Bytef*>(small.data()), small.size());
    require(status == Z_OK && size >= of.directions(), "{}: its tables are damaged", in.what());
    for (std::size_t i = 0; i < of.directions(); ++i) {
      const auto spread = static_cast<std::uint8_t>(plain[i]);
      require(spread == pack_spread::kNone ||
                  (spread >= pack_spread::kLeast && spread < pack_spread::kCount),
              "{}: a coefficient of unknown spread {}", in.what(), spread);
      group.spread.push_back(spread);
    }
    group.tables.assign(plain.begin() + static_cast<std::ptrdiff_t>(of.directions()),
                        plain.begin() + static_cast<std::ptrdiff_t>(size));
    load_tables(group);
    const Layout layout(out.tokens, group.first);
    require(layout.exact() <= in.left() / sizeof(std::uint16_t) / of.width(),
            "{}: ends within its first tokens", in.what());
    group.exact.resize(layout.exact() * of.width());
    in.get_all<std::uint16_t>(group.exact);
    load_far(in, layout, of.width(), group);
    const auto is_finite = [](std::uint16_t x) { return (x & 0x7f80) != 0x7f80; };
    require(std::ranges::all_of(group.exact, is_finite) &&
                std::ranges::all_of(group.far_rows, is_finite),
            "{}: an element is not finite", in.what());
    require(layout.blocks() <= in.left() / sizeof(std::uint32_t), "{}: {} blocks in {} bytes",
            in.what(), layout.blocks(), in.left());
    std::vector<std::uint32_t> sizes(layout.blocks());
    in.get_all<std::uint32_t>(sizes);
    for (std::uint32_t bytes : sizes) {
      require(bytes <= in.left(), "{}: ends within a block", in.what());
      in.get_all<std::byte>(group.blocks.emplace_back(bytes));
    }
  }
  return out;
}

}  // namespace ballast
