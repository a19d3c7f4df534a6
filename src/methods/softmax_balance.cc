#include "methods/softmax_balance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ballast/serialize.h"
#include "methods/kernels/balance.h"

namespace ballast {
namespace {

constexpr std::size_t kGroup = kernels::BalanceBlock::kGroup;
constexpr float kLog2 = std::numbers::ln2_v<float>;

/// Pointers to rows as float32: into the storage if it is float32, else into decoded copies.
class GroupRows {
 public:
  std::span<const float* const> get(const RowsView& rows, std::span<const std::uint32_t> which,
                                    Matrix& buffer) {
    if (rows.type != StorageType::f32 && buffer.cols() < rows.dim) {
      buffer = Matrix(kGroup, rows.dim);
    }
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (rows.type == StorageType::f32) {
        pointers_[i] = reinterpret_cast<const float*>(rows.data + which[i] * rows.stride);
      } else {
        rows.decode(which[i], buffer[i].first(rows.dim));
        pointers_[i] = buffer[i].data();
      }
    }
    return {pointers_.data(), which.size()};
  }

 private:
  std::array<const float*, kGroup> pointers_;
};

}  // namespace

/// What balancing a block needs. It lives as long as a call to reduce(): heads are many, and at
/// rest none of them holds any of it.
struct SoftmaxBalance::Workspace {
  kernels::BalanceBlock block;
  Matrix keys;    // rows decoded from storage, a group at a time
  Matrix values;  //
};

void WeightedTokens::reserve(std::size_t tokens) {
  rows.reserve(tokens);
  positions.reserve(tokens);
  log_weights.reserve(tokens);
  log_normalisers.reserve(tokens);
}

void WeightedTokens::clear() {
  rows.clear();
  positions.clear();
  log_weights.clear();
  log_normalisers.clear();
}

void WeightedTokens::add(std::uint32_t row, Position position, float log_weight,
                         float log_normaliser) {
  rows.push_back(row);
  positions.push_back(position);
  log_weights.push_back(log_weight);
  log_normalisers.push_back(log_normaliser);
}

void WeightedTokens::remove(std::span<const std::uint8_t> dropped) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    if (dropped[i] != 0) continue;
    rows[n] = rows[i];
    positions[n] = positions[i];
    log_weights[n] = log_weights[i];
    log_normalisers[n] = log_normalisers[i];
    ++n;
  }
  rows.resize(n);
  positions.resize(n);
  log_weights.resize(n);
  log_normalisers.resize(n);
}

std::size_t WeightedTokens::bytes() const {
  return rows.capacity() * sizeof(std::uint32_t) + positions.capacity() * sizeof(Position) +
         (log_weights.capacity() + log_normalisers.capacity()) * sizeof(float);
}

void SoftmaxBalance::save(ByteWriter& out) const {
  out.put<std::uint64_t>(blocks_);
  out.put<std::uint64_t>(failures_);
}

void SoftmaxBalance::load(ByteReader& in) {
  blocks_ = in.get<std::uint64_t>();
  failures_ = in.get<std::uint64_t>();
}

void SoftmaxBalance::reduce(WeightedTokens& tokens, std::size_t drop, std::uint32_t round,
                            std::span<std::uint8_t> dropped) {
  std::fill(dropped.begin(), dropped.end(), std::uint8_t{0});
  if (drop == 0) return;
  Workspace work;
  if (options_.mode == BalanceOptions::Mode::practical) {
    reduce_practical(tokens, drop, round, dropped, work);
  } else {
    reduce_theory(tokens, drop, round, dropped, work);
  }
}

std::span<const float> SoftmaxBalance::walk(const WeightedTokens& tokens, std::size_t first,
                                            std::size_t count, std::uint32_t round,
                                            Workspace& work) {
  const bool theory = options_.mode == BalanceOptions::Mode::theory;
  const bool values_are_one = tokens.values.dim == 0;
  // Where the same weight enters both sums, the offset, which is the normaliser, carries it too.
  const bool weigh_offset = options_.weights == BalanceOptions::Weights::consistent;
  const double offset = values_are_one ? 1.0 : theory ? 0.0 : options_.offset;

  auto& [block, keys, values] = work;
  block.resize(count, tokens.keys.dim, tokens.values.dim);
  for (std::size_t begin = 0; begin < count; begin += kGroup) {
    const std::size_t size = std::min(kGroup, count - begin);
    std::span which(tokens.rows.data() + first + begin, size);
    std::array<float, kGroup> weights;
    for (std::size_t i = 0; i < size; ++i) {
      // In theory the tokens of a call have one weight, which changes nothing.
      weights[i] = theory ? 1.0f : std::exp(tokens.log_weights[first + begin + i]);
      block.offsets()[begin + i] = static_cast<float>(std::sqrt(offset)) *
                                   (weigh_offset || values_are_one ? weights[i] : 1.0f);
    }
    GroupRows key_rows, value_rows;
    block.set_group(begin / kGroup, key_rows.get(tokens.keys, which, keys),
                    values_are_one ? std::span<const float* const>()
                                   : value_rows.get(tokens.values, which, values),
                    {weights.data(), size});
  }
  block.center();

  kernels::SignRule rule;
  rule.scale = static_cast<float>(options_.scale * (theory ? 1.0 : options_.tau));
  rule.key = options_.random;
  rule.stream = options_.stream;
  rule.round = round;
  if (theory) {
    // R² = e^{r_key²·scale}·r_value² and c = 30 ln(n/δ), with the radii of this very block.
    const double c = 30.0 * std::log(static_cast<double>(count) / options_.delta);
    const double value_square = block.largest_value_square();
    rule.gain = value_square > 0.0 ? 1.0 / (2.0 * c * value_square) : 0.0;
    rule.shift = block.largest_key_square() * options_.scale;
  } else {
    rule.gain = options_.gamma;
    rule.shift = options_.beta;
    rule.first_plus = true;
  }
  const std::size_t end = first + count;
  kernels::PrefetchTokens next{tokens.keys, tokens.values, {}};
  next.rows = std::span(tokens.rows).subspan(end, std::min(count, tokens.size() - end));
  const std::size_t exceeded = block.walk(rule, {tokens.positions.data() + first, count}, next);
  ++blocks_;
  if (theory && exceeded != 0) ++failures_;
  return block.signs();
}

void SoftmaxBalance::reduce_practical(WeightedTokens& tokens, std::size_t drop, std::uint32_t round,
                                      std::span<std::uint8_t> dropped, Workspace& work) {
  // Walk over blocks until one sign has come `drop` times, at token `cut` - 1. The first 2·drop
  // tokens are enough for that, so halving n tokens and evicting fewer are one rule.
  const std::size_t subset = std::min(tokens.size(), 2 * drop);
  std::size_t seen[2] = {0, 0};
  std::size_t cut = 0;
  for (std::size_t first = 0; cut == 0; first += options_.block) {
    const std::size_t count = std::min(options_.block, subset - first);
    const auto signs = walk(tokens, first, count, round, work);
    for (std::size_t i = 0; i < count; ++i) {
      const bool plus = signs[i] > 0.0f;
      dropped[first + i] = plus ? 1 : 0;
      if (++seen[plus ? 1 : 0] == drop) {
        cut = first + i + 1;
        break;
      }
    }
  }
  // dropped[] holds the signs up to the cut; tokens of the sign that came `drop` times are evicted.
  const std::uint8_t gone = seen[1] == drop ? 1 : 0;
  double before = 0, after = 0;
  for (std::size_t i = 0; i < cut; ++i) {
    const double weight = std::exp(double{tokens.log_weights[i]});
    before += weight;
    dropped[i] = dropped[i] == gone ? 1 : 0;
    if (dropped[i] == 0) after += weight;
  }
  const bool consistent = options_.weights == BalanceOptions::Weights::consistent;
  const float raise =
      consistent && after > 0 ? static_cast<float>(std::log(before / after)) : kLog2;
  for (std::size_t i = 0; i < cut; ++i) tokens.log_weights[i] += raise;
  if (consistent) {
    // All had one sign: what follows in the subset stands for them.
    if (after == 0) {
      double rest = 0;
      for (std::size_t i = cut; i < subset; ++i) rest += std::exp(double{tokens.log_weights[i]});
      const float up = rest > 0 ? static_cast<float>(std::log1p(before / rest)) : 0.0f;
      for (std::size_t i = cut; i < subset; ++i) tokens.log_weights[i] += up;
    }
    tokens.log_normalisers = tokens.log_weights;
  } else {
    for (std::size_t i = 0; i < subset; ++i) tokens.log_normalisers[i] += kLog2;
  }
}

void SoftmaxBalance::reduce_theory(WeightedTokens& tokens, std::size_t drop, std::uint32_t round,
                                   std::span<std::uint8_t> dropped, Workspace& work) {
  const std::size_t subset = std::min(tokens.size(), 2 * drop);
  for (std::size_t first = 0; first < subset; first += options_.block) {
    const std::size_t count = std::min(options_.block, subset - first);
    const auto signs = walk(tokens, first, count, round, work);
    const auto plus = static_cast<std::size_t>(std::count(signs.begin(), signs.end(), 1.0f));
    const float kept = 2 * plus <= count ? 1.0f : -1.0f;
    for (std::size_t i = 0; i < count; ++i) {
      dropped[first + i] = signs[i] == kept ? 0 : 1;
      tokens.log_weights[first + i] += kLog2;
      tokens.log_normalisers[first + i] += kLog2;
    }
  }
}

}  // namespace ballast
