#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/pack.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "pack/coder.h"
#include "pack/layout.h"
#include "pack/products.h"

namespace ballast {
namespace {

constexpr std::size_t kBlock = PackedRows::kBlock;
constexpr float kFine = 1.0f / 254;      // a code of PackGroup::fine, in those of the basis
constexpr float kExactStep = 1.0f / 16;  // of what exact tokens lose otherwise, in steps

/// Which of some tokens lie far from the others: more than kFar times the median's square of the
/// distance to the mean. Of many the farthest.
constexpr double kFar = 6;
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

/// Tokens from which a plan is made: runs of them, evenly over those of the middle.
std::vector<std::size_t> sample_of(const PackLayout& layout) {
  constexpr std::size_t kRun = 16, kLeastRuns = 32, kTokensARun = 256;
  const std::size_t coded = layout.end - layout.middle;
  const std::size_t runs = std::max(kLeastRuns, coded / kTokensARun);
  std::vector<std::size_t> out;
  if (coded <= runs * kRun) {
    for (std::size_t t = 0; t < coded; ++t) out.push_back(layout.middle + t);
    return out;
  }
  for (std::size_t run = 0; run < runs; ++run) {
    const std::size_t begin = (coded - kRun) * run / (runs - 1);
    for (std::size_t t = 0; t < kRun; ++t) out.push_back(layout.middle + begin + t);
  }
  return out;
}

void require_finite(std::span<const float> row) {
  require(first_not_finite(row) == row.size(), ErrorCode::not_finite,
          "a row to be packed has an element that is not finite");
}

/// Rows of elements as runs of kExactRun: a column for each run of each row.
Matrix as_runs(ConstMatrix rows) {
  const std::size_t runs = exact_runs(rows.cols);
  Matrix out(kExactRun, rows.rows * runs);
  for (std::size_t r = 0; r < rows.rows; ++r) {
    for (std::size_t i = 0; i < rows.cols; ++i) {
      out[i % kExactRun][r * runs + i / kExactRun] = rows[r][i];
    }
  }
  return out;
}

}  // namespace

struct PackCodec::Prepared {
  struct Group {
    kernels::PackBlocks metric, inverse;
    kernels::PackMatrix forward, back;  ///< the fine rows, then the basis
    std::vector<float> minus_mean;
    std::size_t fine = 0;  ///< rows
  };
  std::vector<Group> groups;

  Prepared(const PackBasis& basis) {
    for (const PackGroup& g : basis.groups) {
      const std::size_t n = g.width(), k = g.directions();
      std::vector<std::int8_t> rows = g.fine;
      rows.insert(rows.end(), g.basis.begin(), g.basis.end());
      const std::size_t fine = g.fine.size() / n;
      Group& out = groups.emplace_back(Group{{},
                                             {},
                                             kernels::PackMatrix(rows, n, fine + k, true),
                                             kernels::PackMatrix(rows, fine + k, n, false),
                                             g.mean,
                                             fine});
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
      parallel_for(places.size(), [&](std::size_t i) {
        inverses[i] = kernels::inverse_of(places[i].size, matrix(i));
      });
      for (std::size_t i = 0; i < places.size(); ++i) {
        out.metric.add(places[i].size, matrix(i));
        out.inverse.add(places[i].size, inverses[i]);
      }
    }
  }

  /// The coefficients of rows x, which are changed.
  void transform(const PackBasis& basis, std::size_t g, MutableMatrix x, MutableMatrix y) const {
    const Group& group = groups[g];
    for (std::size_t t = 0; t < x.rows; ++t) require_finite(x[t]);
    group.metric.apply(x, group.minus_mean, {});
    kernels::PackRows rows;
    rows.set(x);
    Matrix codes(x.rows, group.fine + y.cols);
    kernels::pack_product(rows, group.forward, x.cols, 0, kernels::pack_strips(codes.cols()),
                          codes.view());
    const std::vector<float>& scale = basis.groups[g].basis_scale;
    for (std::size_t t = 0; t < y.rows; ++t) {
      for (std::size_t i = 0; i < y.cols; ++i) {
        const float less = i < group.fine ? codes[t][i] * kFine : 0.0f;
        y.row(t)[i] = (codes[t][group.fine + i] + less) * scale[i];
      }
    }
  }

  /// Ms (x - mean) of the rows that such coefficients stand for; only the first `y.cols` are not 0.
  void synthesize(const PackBasis& basis, std::size_t g, ConstMatrix y, MutableMatrix out) const {
    const Group& group = groups[g];
    const std::size_t fine = group.fine;
    Matrix codes(y.rows, fine + y.cols);
    for (std::size_t t = 0; t < y.rows; ++t) {
      for (std::size_t i = 0; i < y.cols; ++i) {
        const float code = y[t][i] * basis.groups[g].basis_scale[i];
        codes[t][fine + i] = code;
        if (i < fine) codes[t][i] = code * kFine;
      }
    }
    kernels::PackRows rows;
    rows.set(codes.view());
    kernels::pack_product(rows, group.back, codes.cols(), 0, kernels::pack_strips(out.cols), out);
  }

  /// What rows lose in blocks of this plan, of Ms (x - mean), as runs.
  Matrix losses(const PackBasis& basis, std::size_t g, const Rows& rows,
                std::span<const std::uint32_t> tokens, const PackPlan& plan, float step) const {
    Matrix x(tokens.size(), basis.groups[g].width());
    for (std::size_t i = 0; i < tokens.size(); ++i) rows(g, tokens[i], x.view().slice(i, 1));
    Matrix y(x.rows(), plan.spreads.size()), known(x.rows(), x.cols());
    transform(basis, g, x.view(), y.view());  // x: in the metric since
    const Matrix values =
        pack_values(plan.integers(y.view(), step), y.rows(), plan.spreads, plan.tables, step);
    synthesize(basis, g, values.view(), known.view());
    for (std::size_t t = 0; t < x.rows(); ++t) {
      for (std::size_t i = 0; i < x.cols(); ++i) x[t][i] -= known[t][i];
    }
    return as_runs(x.view());
  }

  /// What `count` exact tokens lost in blocks, of x.
  Matrix decode_exact(const PackBasis& basis, std::size_t g, const PackedRows::Group& from,
                      std::size_t count, float step) const {
    const std::vector<std::uint8_t>& spread = from.exact_code.spread;
    const PackTables tables = PackPlan::tables_of(from.exact_code);
    std::vector<std::int32_t> integers(spread.size() * kExactRun);
    PackDecoder(spread, tables).decode(from.exact, kExactRun, spread, integers);
    const Matrix runs = pack_values(integers, kExactRun, spread, tables, step * kExactStep);
    Matrix out(count, basis.groups[g].width());
    const std::size_t in_row = exact_runs(out.cols());
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t i = 0; i < out.cols(); ++i) {
        out[r][i] = runs[i % kExactRun][r * in_row + i / kExactRun];
      }
    }
    groups[g].inverse.apply(out.view(), {}, {});
    return out;
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

PackedRows PackCodec::encode(std::size_t tokens, const Rows& rows, float step) const {
  require(step > 0 && std::isfinite(step) && std::isfinite(1 / step),
          "a step of {} to pack with: it must be positive", step);
  PackedRows out;
  out.tokens = tokens;
  out.step = step;
  out.basis = basis_->hash();
  const PackLayout layout(tokens);
  for (std::size_t g = 0; g < basis_->groups.size(); ++g) {
    const PackGroup& basis = basis_->groups[g];
    const std::size_t n = basis.width(), k = basis.directions();
    PackedRows::Group& group = out.groups.emplace_back();
    const Matrix samples = prepared_->sample(*basis_, g, rows, sample_of(layout));
    const PackPlan plan = PackPlan::of(basis.variance, samples.view(), step);
    group.code = plan.code();
    group.blocks.resize(layout.blocks());
    std::vector<double> squares(tokens);  // of the distance to the mean
    parallel_for(layout.blocks(), [&](std::size_t b) {
      const std::size_t count = layout.size(b);
      Matrix x(count, n), y(count, k);
      rows(g, b * kBlock, x.view());
      prepared_->transform(*basis_, g, x.view(), y.view());
      for (std::size_t t = 0; t < count; ++t) {
        double& sum = squares[b * kBlock + t];
        for (const float element : x[t]) sum += double{element} * double{element};
      }
      group.blocks[b] =
          encode_integers(plan.integers(y.view(), step), count, plan.spreads, plan.tables);
    });
    group.far = far_tokens(std::span(squares).subspan(layout.middle, layout.end - layout.middle),
                           layout.middle);
    const Matrix lost = prepared_->losses(*basis_, g, rows, layout.exact(group.far), plan, step);
    const PackPlan exact = PackPlan::of({}, lost.view(), step * kExactStep);
    group.exact_code = exact.code();
    group.exact = encode_integers(exact.integers(lost.view(), step * kExactStep), kExactRun,
                                  exact.spreads, exact.tables);
  }
  return out;
}

float PackCodec::step_for(std::size_t tokens, const Rows& rows, double divisor) const {
  require(divisor >= 1 && std::isfinite(divisor), "packing to 1/{} of the bytes", divisor);
  const std::vector<std::uint32_t> exact = PackLayout(tokens).exact({});
  const std::vector<std::size_t> sampled = sample_of(PackLayout(tokens));
  const double scale = double(tokens) / double(std::max<std::size_t>(sampled.size(), 1));
  std::vector<Matrix> samples;
  double all = 0, most = 0;
  for (std::size_t g = 0; g < basis_->groups.size(); ++g) {
    const PackGroup& group = basis_->groups[g];
    all += 2 * double(tokens * group.width());
    most = std::max(most, double{*std::ranges::max_element(group.variance)});
    samples.push_back(prepared_->sample(*basis_, g, rows, sampled));
  }
  const double wanted = 8 * all / divisor;  // bits
  double low = -20 + std::log(most) / 2, high = 20 + std::log(most) / 2;
  for (int round = 0; round < 40 && high - low > 1e-4; ++round) {
    const double middle = (low + high) / 2;
    const auto step = static_cast<float>(std::exp(middle));
    double sum = 0;
    for (std::size_t g = 0; g < samples.size(); ++g) {
      const PackPlan plan = PackPlan::of(basis_->groups[g].variance, samples[g].view(), step);
      const Matrix lost = prepared_->losses(*basis_, g, rows, exact, plan, step);
      sum += plan.bits * scale + PackPlan::of({}, lost.view(), step * kExactStep).bits;
    }
    (sum > wanted ? low : high) = middle;
  }
  return static_cast<float>(std::exp((low + high) / 2));
}

void PackCodec::decode(const PackedRows& packed, std::size_t g, std::size_t first,
                       MutableMatrix out) const {
  const PackGroup& basis = basis_->groups.at(g);
  const PackedRows::Group& group = packed.groups.at(g);
  const std::size_t n = basis.width();
  const PackLayout layout(packed.tokens);
  require(out.cols == n && first + out.rows <= packed.tokens,
          "tokens {} to {} of {} elements are asked of {} packed ones of {}", first,
          first + out.rows, out.cols, packed.tokens, n);
  const std::size_t end = first + out.rows;
  if (out.rows == 0) return;
  const std::vector<std::uint8_t>& spread = group.code.spread;
  const PackTables tables = PackPlan::tables_of(group.code);
  const PackDecoder decoder(spread, tables);
  std::size_t live = spread.size();
  while (live > 0 && spread[live - 1] == pack_spread::kNone) --live;
  const std::span spreads = std::span(spread).first(live);
  const std::size_t first_block = first / kBlock;
  const std::size_t blocks = (end - 1) / kBlock + 1 - first_block;
  parallel_for(blocks, [&](std::size_t i) {
    const std::size_t b = first_block + i, count = layout.size(b);
    std::vector<std::int32_t> integers(live * count);
    decoder.decode(group.blocks[b], count, spreads, integers);
    Matrix x(count, n);
    prepared_->synthesize(
        *basis_, g, pack_values(integers, count, spreads, tables, packed.step).view(), x.view());
    prepared_->groups[g].inverse.apply(x.view(), {}, basis.mean);
    for (std::size_t t = 0; t < count; ++t) {
      const std::size_t token = b * kBlock + t;
      if (token >= first && token < end) std::ranges::copy(x[t], out[token - first].begin());
    }
  });
  const std::vector<std::uint32_t> exact = layout.exact(group.far);
  const auto asked = [&](std::uint32_t token) { return token >= first && token < end; };
  if (std::ranges::none_of(exact, asked)) return;
  const Matrix lost = prepared_->decode_exact(*basis_, g, group, exact.size(), packed.step);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (!asked(exact[i])) continue;
    for (std::size_t c = 0; c < n; ++c) out[exact[i] - first][c] += lost[i][c];
  }
}

namespace {

constexpr std::size_t kTableBytes = sizeof(PackTable::frequency) + sizeof(PackTable::less);
constexpr std::size_t kMostRatio = 1032;  // of zlib

void save_deflated(ByteWriter& out, std::span<const std::byte> plain) {
  std::vector<std::byte> small(compressBound(plain.size()));
  uLongf size = small.size();
  const int status =
      compress2(reinterpret_cast<Bytef*>(small.data()), &size,
                reinterpret_cast<const Bytef*>(plain.data()), plain.size(), Z_BEST_COMPRESSION);
  require(status == Z_OK, ErrorCode::out_of_memory, "no memory to compress tables");
  out.put(static_cast<std::uint32_t>(size));
  out.write(small.data(), size);
}

/// At most `most` bytes.
std::vector<std::byte> load_deflated(ByteReader& in, std::size_t most) {
  const auto packed = in.get<std::uint32_t>();
  require(packed <= in.left(), "{}: ends within its tables", in.what());
  std::vector<std::byte> small(packed), plain(std::min(most, packed * kMostRatio));
  in.get_all<std::byte>(small);
  uLongf size = plain.size();
  const int status = uncompress(reinterpret_cast<Bytef*>(plain.data()), &size,
                                reinterpret_cast<const Bytef*>(small.data()), small.size());
  require(status == Z_OK, "{}: its tables are damaged", in.what());
  plain.resize(size);
  return plain;
}

void save_code(ByteWriter& out, const PackedRows::Code& code) {
  MemoryWriter plain;
  plain.put_all<std::uint8_t>(code.spread);
  plain.put_all<std::byte>(code.tables);
  save_deflated(out, plain.bytes);
}

/// Of so many numbers.
PackedRows::Code load_code(ByteReader& in, std::size_t numbers) {
  const auto plain = load_deflated(in, numbers + pack_spread::kCount * kTableBytes);
  require(plain.size() >= numbers, "{}: its tables are damaged", in.what());
  PackedRows::Code out;
  for (std::size_t i = 0; i < numbers; ++i) {
    const auto spread = static_cast<std::uint8_t>(plain[i]);
    require(spread == pack_spread::kNone ||
                (spread >= pack_spread::kLeast && spread < pack_spread::kCount),
            "{}: a number of unknown spread {}", in.what(), spread);
    out.spread.push_back(spread);
  }
  out.tables.assign(plain.begin() + static_cast<std::ptrdiff_t>(numbers), plain.end());
  PackPlan::tables_of(out);
  return out;
}

/// Tokens far from all others. Throws Error where they are none of the middle.
std::vector<std::uint32_t> load_far(ByteReader& in, const PackLayout& layout) {
  const auto count = in.get<std::uint32_t>();
  require(count <= (layout.end - layout.middle) / kFarPart &&
              count <= in.left() / sizeof(std::uint32_t),
          "{}: {} far tokens of {}", in.what(), count, layout.tokens);
  std::vector<std::uint32_t> far(count);
  in.get_all<std::uint32_t>(far);
  for (std::size_t i = 0; i < count; ++i) {
    require(far[i] >= (i == 0 ? layout.middle : far[i - 1] + 1) && far[i] < layout.end,
            "{}: a far token {} of {}", in.what(), far[i], layout.tokens);
  }
  return far;
}

}  // namespace

void PackedRows::save(ByteWriter& out) const {
  out.put<std::uint64_t>(tokens);
  out.put(step);
  out.put(basis);
  out.put<std::uint64_t>(groups.size());
  for (const Group& group : groups) {
    out.put(static_cast<std::uint32_t>(group.far.size()));
    out.put_all<std::uint32_t>(group.far);
    save_code(out, group.exact_code);
    save_code(out, group.code);
    out.put(static_cast<std::uint32_t>(group.exact.size()));
    for (const auto& block : group.blocks) out.put(static_cast<std::uint32_t>(block.size()));
    out.put_all<std::byte>(group.exact);
    for (const auto& block : group.blocks) out.put_all<std::byte>(block);
  }
}

std::size_t PackedRows::bytes() const {
  MemoryWriter out;
  save(out);
  return out.bytes.size();
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
    const PackLayout layout(out.tokens);
    group.far = load_far(in, layout);
    group.exact_code = load_code(in, layout.exact(group.far).size() * exact_runs(of.width()));
    group.code = load_code(in, of.directions());
    require(layout.blocks() < in.left() / sizeof(std::uint32_t), "{}: {} blocks in {} bytes",
            in.what(), layout.blocks(), in.left());
    std::vector<std::uint32_t> sizes(1 + layout.blocks());
    in.get_all<std::uint32_t>(sizes);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      require(sizes[i] <= in.left(), "{}: ends within a block", in.what());
      auto& block = i == 0 ? group.exact : group.blocks.emplace_back();
      block.resize(sizes[i]);
      in.get_all<std::byte>(block);
    }
  }
  return out;
}

}  // namespace ballast
