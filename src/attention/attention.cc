#include "ballast/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "attention/attention_scratch.h"
#include "attention/kernels/attention_kernels.h"
#include "ballast/row_mean.h"
#include "base/fail.h"
#include "simd/cpu.h"
#include "storage/gap_code.h"
#include "storage/turns.h"

namespace ballast {
namespace {

using kernels::kEntryBlock;
using kernels::kMaxDim;
using kernels::packed_size;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Queries processed together. Their packed rows and sums (1 KiB each at dimension 128) must stay in
// the L2 cache while the entries are read.
constexpr std::size_t kQueryBlock = 128;
// From this many queries on, a block's rows are decoded once rather than once per register tile.
constexpr std::size_t kUnpackFrom = 12;
// Weights kept for the scores of entries: 512 KiB, about what a core's caches hold, but at least
// those of kRecordedQueries. More is slower, and a stream would take it beside its budget.
constexpr std::size_t kRecorded = std::size_t{1} << 17;
constexpr std::size_t kRecordedQueries = 16;

void check(const Queries& queries, std::span<const Segment> segments, const Logits& logits) {
  const std::size_t m = queries.rows.rows;
  require(queries.positions.empty() || queries.positions.size() == m,
          "{} queries have {} positions", m, queries.positions.size());
  require(queries.alibi_slopes.empty() || queries.alibi_slopes.size() == m,
          "{} queries have {} ALiBi slopes", m, queries.alibi_slopes.size());
  require(queries.sink_logits.empty() || queries.sink_logits.size() == m,
          "{} queries have {} sink logits", m, queries.sink_logits.size());
  require(!std::isnan(logits.scale),
          "Logits::scale is not set; it is usually 1 / sqrt(dimension of a key)");
  require(std::isfinite(logits.scale), "the logits' scale is {}: expected a finite number",
          logits.scale);
  require(std::isfinite(logits.softcap) && logits.softcap >= 0.0f,
          "the logits' soft-cap is {}: expected a finite number from 0", logits.softcap);
  require(logits.sliding_window >= 0, "the sliding window is {}: expected 0 or more",
          logits.sliding_window);
  for (const Segment& segment : segments) {
    const std::size_t n = segment.keys.rows;
    if (n == 0) continue;
    require(segment.keys.dim == queries.rows.cols,
            "keys of dimension {} cannot answer queries of dimension {}", segment.keys.dim,
            queries.rows.cols);
    require(segment.keys.dim >= 1 && segment.keys.dim <= kMaxDim,
            "key dimension {}: expected 1 to {}", segment.keys.dim, kMaxDim);
    require(segment.keys.mean == nullptr || segment.keys.mean->turns() == nullptr ||
                segment.keys.positions != nullptr || segment.keys.gaps != nullptr ||
                segment.keys.first_position >= 0,
            "keys relative to a turned mean have no positions");
    require(segment.positions != nullptr || segment.first_position < 0 ||
                n <= std::size_t{std::numeric_limits<Position>::max()} - segment.first_position,
            "{} entries from position {} pass the last position", n, segment.first_position);
  }
}

void check_values(std::span<const Segment> segments, std::size_t value_dim) {
  require(value_dim <= kMaxDim, "value dimension {}: expected 1 to {}", value_dim, kMaxDim);
  for (const Segment& segment : segments) {
    if (segment.keys.rows == 0 || segment.role == Role::normaliser) continue;
    require(segment.values.rows == segment.keys.rows, "{} keys come with {} values",
            segment.keys.rows, segment.values.rows);
    require(segment.values.dim == value_dim, "values of dimension {}: expected {}",
            segment.values.dim, value_dim);
  }
}

// One block of a segment's entries, with the inputs of its logits.
class EntryBlock {
 public:
  EntryBlock(const Segment& segment, std::size_t begin, std::size_t count) : count_(count) {
    if (segment.log_weights != nullptr) {
      log_weights_ = whole(segment.log_weights + begin, weight_copy_, 0.0f);
    }
    if (segment.positions != nullptr) {
      const Position* positions = segment.positions + begin;
      positions_ = whole(positions, position_copy_, positions[count - 1]);
      const auto [first, last] = kernels::position_range(positions_);
      first_ = first;
      last_ = last;
    } else if (segment.first_position >= 0) {
      first_ = segment.first_position + static_cast<Position>(begin);
      last_ = first_ + static_cast<Position>(count) - 1;
      // Positions past the last entry are ignored, and may wrap around.
      for (std::uint32_t e = 0; e < kEntryBlock; ++e) {
        position_copy_[e] = static_cast<Position>(static_cast<std::uint32_t>(first_) + e);
      }
      positions_ = position_copy_;
    }
  }

  std::size_t count() const { return count_; }
  bool has_positions() const { return positions_ != nullptr; }

  bool hidden_from(Position low, Position high, Position window) const {
    return has_positions() &&
           (first_ > high || (window > 0 && last_ <= std::int64_t{low} - window));
  }

  void set(kernels::LogitRule& rule, const Queries& queries, std::size_t q,
           const Logits& logits) const {
    rule.scale = logits.scale;
    rule.softcap = logits.softcap;
    rule.log_weights = log_weights_;
    rule.positions = nullptr;
    if (queries.positions.empty() || !has_positions()) return;
    const Position position = queries.positions[q];
    rule.positions = positions_;
    rule.query_position = position;
    rule.sliding_window = logits.sliding_window;
    rule.hide = last_ > position || (logits.sliding_window > 0 &&
                                     first_ <= std::int64_t{position} - logits.sliding_window);
    rule.slope = queries.alibi_slopes.empty() ? 0.0f : queries.alibi_slopes[q];
  }

 private:
  // The kernels read whole vectors, so the last block of an array is copied and padded.
  template <typename T>
  const T* whole(const T* from, T (&copy)[kEntryBlock], T filler) {
    if (count_ == kEntryBlock) return from;
    std::fill(std::copy_n(from, count_, copy), copy + kEntryBlock, filler);
    return copy;
  }

  std::size_t count_;
  const float* log_weights_ = nullptr;
  const Position* positions_ = nullptr;
  Position first_ = 0;
  Position last_ = 0;
  float weight_copy_[kEntryBlock];
  Position position_copy_[kEntryBlock];
};

// The weights of queries for every block, for the attention sum of the entries.
struct Record {
  struct Block {
    std::size_t entry, count;
  };

  Record(std::size_t queries, std::size_t blocks)
      : weights(allocate_aligned<float>(blocks * queries * kEntryBlock)) {
    this->blocks.reserve(blocks);
    max.reserve(blocks * queries);
  }
  float* next(std::size_t queries) { return weights.get() + blocks.size() * queries * kEntryBlock; }
  // Prefetches rows `first` and on of the block after the next: logits will overwrite them.
  void prefetch_next(std::size_t queries, std::size_t first, std::size_t count) {
    constexpr std::size_t kLine = 64 / sizeof(float);
    const float* row = next(queries) + (queries + first) * kEntryBlock;
    for (std::size_t i = 0; i < count * kEntryBlock; i += kLine) {
      __builtin_prefetch(row + i, 1, 2);
      asm volatile("");  // GCC removes loops that only prefetch
    }
  }

  AlignedArray<float> weights;  // kEntryBlock for each query of a block
  std::vector<Block> blocks;
  std::vector<float> max;  // running maximum of the logits, per query of a block
};

// <q, R_n μ> of the queries and keys that are relative to R_n μ, for the positions that entries
// have. Segments of one mean, as tiers have it, share them.
class MeanProducts {
  static constexpr std::size_t kTogether = Turns::kTogether;
  static_assert(kTogether == kernels::kTurnedTogether);

 public:
  MeanProducts(const Queries& queries, const RowMean& mean) : mean_(&mean) {
    const std::size_t m = queries.rows.rows, turning = turns() == nullptr ? 0 : turns()->count();
    inputs_ = allocate_aligned<float>(m * (2 * turning + 1));
    float* const coefficients = inputs_.get();
    float* const constants = coefficients + m * 2 * turning;
    const std::span<const float> row = mean.mean();
    for (std::size_t q = 0; q < m; ++q) {
      const std::span<const float> query = queries.rows[q];
      float* const a = coefficients + q * 2 * turning;
      for (std::size_t f = 0; f < turning; ++f) {
        const std::size_t i = turns()->first(f), j = turns()->second(f);
        a[f] = query[i] * row[i] + query[j] * row[j];
        a[turning + f] = query[j] * row[i] - query[i] * row[j];
      }
      double rest = 0.0;
      for (std::size_t c = 2 * turning; c < query.size(); ++c) {
        rest += double{query[c]} * double{row[c]};
      }
      constants[q] = static_cast<float>(rest);
    }
    queries_ = m;
    turned_ = {turning, coefficients, 2 * turning, constants};
    if (turns() != nullptr) {
      turned_.fast = turns()->fast();
      turned_.columns = turns()->columns();
      turned_.factors = turns()->factors();
    }
  }

  MeanProducts(const MeanProducts&) = delete;
  ~MeanProducts() {
    while (!memory_.empty() && spare().size() < kSpare) {
      spare().push_back(std::move(memory_.back()));
      memory_.pop_back();
    }
  }

  const RowMean* mean() const { return mean_; }

  // Adds those of `count` positions to the products of a block.
  void add(const Position* positions, std::size_t count, float* products) {
    for (std::size_t e = 0; turns() == nullptr && e < count * queries_; ++e) {
      products[e / count * kEntryBlock + e % count] += turned_.constants[e / count];
    }
    for (std::size_t e = 0, end = 0; turns() != nullptr && e < count; e = end) {
      const auto block = static_cast<std::uint32_t>(positions[e]) / kTogether;
      std::uint8_t places[kEntryBlock];
      for (; end < count && static_cast<std::uint32_t>(positions[end]) / kTogether == block;
           ++end) {
        places[end - e] =
            static_cast<std::uint8_t>(static_cast<std::uint32_t>(positions[end]) % kTogether);
      }
      const float* from = of(block);
      for (std::size_t q = 0; q < queries_; ++q, from += kTogether) {
        float* const row = products + q * kEntryBlock + e;
        for (std::size_t i = 0; i < end - e; ++i) row[i] += from[places[i]];
      }
    }
  }

 private:
  const Turns* turns() const { return mean_->turns(); }

  // Of the kTogether positions of a block: kTogether products of each query.
  const float* of(std::size_t block) {
    if (blocks_.empty()) first_ = block;
    if (block < first_) {
      blocks_.insert(blocks_.begin(), first_ - block, nullptr);
      first_ = block;
    }
    if (block - first_ >= blocks_.size()) blocks_.resize(block - first_ + 1);
    float*& products = blocks_[block - first_];
    if (products == nullptr) {
      const std::size_t size = queries_ * kTogether;
      if (left_ < size) {
        memory_.push_back(take());
        left_ = kPiece;
      }
      products = memory_.back().get() + (kPiece - left_);
      left_ -= size;
      float cosines[Turns::kMost], sines[Turns::kMost];
      turns()->at(static_cast<Position>(block * kTogether), cosines, sines);
      kernels::turned_products(turned_, cosines, sines, queries_, products);
    }
    return products;
  }

  // Memory comes in pieces that a thread keeps for its next call: fresh pages cost more than what
  // is written to them.
  static constexpr std::size_t kPiece = std::size_t{1} << 14, kSpare = 64;
  static_assert(kPiece >= kQueryBlock * kTogether);

  static std::vector<AlignedArray<float>>& spare() {
    static thread_local std::vector<AlignedArray<float>> pieces;
    return pieces;
  }
  static AlignedArray<float> take() {
    if (spare().empty()) return allocate_aligned<float>(kPiece);
    AlignedArray<float> piece = std::move(spare().back());
    spare().pop_back();
    return piece;
  }

  const RowMean* mean_;
  std::size_t queries_;
  AlignedArray<float> inputs_;
  kernels::TurnedMean turned_;
  std::size_t first_ = 0;       // block that blocks_ begins with
  std::vector<float*> blocks_;  // products of each, or null
  std::size_t left_ = 0;        // floats of the last piece
  std::vector<AlignedArray<float>> memory_;
};

// The positions of a segment's keys, block by block.
class KeyPositions {
 public:
  explicit KeyPositions(const RowsView& keys) : keys_(keys), gaps_(keys.gaps) {}
  // Of the block at `begin`; blocks come in order, each once.
  const Position* next_block(std::size_t begin, std::size_t count) {
    if (keys_.positions != nullptr) return keys_.positions + begin;
    for (std::size_t e = 0; e < count; ++e) {
      read_[e] = keys_.gaps != nullptr ? gaps_.next()
                                       : keys_.first_position + static_cast<Position>(begin + e);
    }
    return read_;
  }

 private:
  const RowsView& keys_;
  GapReader gaps_;
  Position read_[kEntryBlock];
};

// Queries that are processed together beside segments about a turned mean: their products with it
// are kept for all positions, in a MiB if eight queries fit.
std::size_t queries_together(const Queries& queries, std::span<const Segment> segments) {
  constexpr std::size_t kKept = std::size_t{1} << 18, kLeast = 8;
  std::size_t entries = 0;
  for (const Segment& segment : segments) {
    const RowMean* const mean = segment.keys.mean;
    if (mean != nullptr && mean->turns() != nullptr) entries += segment.keys.rows;
  }
  if (entries == 0) return kQueryBlock;
  std::size_t positions = Turns::kTogether * entries;  // at most
  if (!queries.positions.empty()) {
    positions = std::min<std::size_t>(positions, *std::ranges::max_element(queries.positions) + 1);
  }
  return std::clamp<std::size_t>(kKept / positions, kLeast, kQueryBlock);
}

// Buffers for up to kQueryBlock queries of one call. One allocation: several cost as much as a
// block of entries.
class Workspace {
 public:
  Workspace(std::size_t queries, std::size_t key_dim, std::size_t value_dim) {
    const std::size_t keys = packed_size(key_dim), values = packed_size(value_dim);
    const std::size_t rows = queries >= kUnpackFrom ? kEntryBlock : 0;
    const std::size_t floats =
        queries * (keys + values + kEntryBlock + 2) + rows * std::max(keys, values);
    memory_ = allocate_aligned<std::byte>(floats * sizeof(float) + 2 * queries * sizeof(double));
    std::byte* at = memory_.get();
    const auto take = [&at]<typename T>(T*& array, std::size_t count) {
      array = reinterpret_cast<T*>(at);
      at += count * sizeof(T);
    };
    take(packed, queries * keys);
    take(sums, queries * values);
    take(weights, queries * kEntryBlock);
    take(unpacked, rows * std::max(keys, values));
    take(normaliser, queries);
    take(weight_sum, queries);
    take(max, queries);
    take(factors, queries);
  }

  float* packed;             // queries in the order of the keys
  float* sums;               // weighted values in the order of the values
  float* weights;            // logits, then weights, kEntryBlock per query
  Record* record = nullptr;  // or here, when weights are kept
  float* unpacked;           // decoded rows of a block
  double* normaliser;
  double* weight_sum;  // sum of the numerator's weights, multiplies the values' mean
  float* max;
  float* factors;  // rescale older sums when the maximum grows

  std::optional<StorageType> packed_for;  // the type of keys whose order `packed` is in
  std::optional<MeanProducts> means;      // of the last segment with a mean

  // Queries whose weights are updated together. Their logit rules are kept from block to block:
  // rebuilding them costs as much as part of the exponentials.
  static constexpr std::size_t kTogether = 8;
  kernels::LogitRule rules[kTogether];

 private:
  AlignedArray<std::byte> memory_;
};

// Decodes rows into `buffer` if many queries share them and the kernels do not read them as stored.
// Returns whether it did: the kernel's rows are cached then, and need no prefetching.
bool prepare(RowsView& rows, std::size_t queries, bool as_stored, float* buffer) {
  if (as_stored || queries < kUnpackFrom) return false;
  kernels::decode_packed(rows, buffer);
  rows = view_f32({buffer, rows.rows, packed_size(rows.dim)});
  return true;
}

// The block of rows at `begin`: cut short, and empty past the end.
RowsView block_of(const RowsView& rows, std::size_t begin) {
  begin = std::min(begin, rows.rows);
  return rows.slice(begin, std::min(kEntryBlock, rows.rows - begin));
}

// Whether to prefetch keys and values of the following block, instead of the rows read next. This
// is 3-9% faster where both blocks fit into the target cache with room to spare, and slower for
// larger blocks.
bool prefetches_next_block(const Segment& segment) {
  const std::size_t small = std::size_t{prefetches_to_l1() ? 10u : 136u} << 10;
  const auto bytes = [](const RowsView& rows) {
    return kEntryBlock * (rows.stride + 2 * row_scales(rows.type, rows.dim));
  };
  return segment.role != Role::normaliser && bytes(segment.keys) + bytes(segment.values) <= small;
}

// Packs the queries and skips blocks masked for all of them. `use` gets each block with the dot
// products of all queries and its keys.
template <typename Use>
void for_each_block(const Queries& queries, const Segment& segment, const Logits& logits,
                    Workspace& work, Use use) {
  const std::size_t m = queries.rows.rows;
  const std::size_t stride = packed_size(segment.keys.dim);
  // Segments of one type, as tiers have them, share the packed queries.
  if (work.packed_for != segment.keys.type) {
    for (std::size_t q = 0; q < m; ++q) {
      kernels::pack_query(segment.keys.type, queries.rows[q], work.packed + q * stride);
    }
    work.packed_for = segment.keys.type;
  }
  const bool relative = segment.keys.mean != nullptr;
  if (relative && (!work.means || work.means->mean() != segment.keys.mean)) {
    work.means.emplace(queries, *segment.keys.mean);
  }
  KeyPositions positions(segment.keys);
  Position low = 0;
  Position high = std::numeric_limits<Position>::max();
  if (!queries.positions.empty()) {
    const auto [a, b] = std::minmax_element(queries.positions.begin(), queries.positions.end());
    low = *a;
    high = *b;
  }
  const Position window = queries.positions.empty() ? 0 : logits.sliding_window;
  const bool keys_ahead = segment.role == Role::normaliser || prefetches_next_block(segment);
  for (std::size_t begin = 0; begin < segment.keys.rows; begin += kEntryBlock) {
    RowsView keys = block_of(segment.keys, begin);
    const Position* const at = relative ? positions.next_block(begin, keys.rows) : nullptr;
    const EntryBlock block(segment, begin, keys.rows);
    if (block.hidden_from(low, high, window)) continue;
    const bool unpacked = prepare(keys, m, kernels::keys_as_stored(keys.type), work.unpacked);
    const RowsView values = block_of(segment.values, begin);
    const RowsView following = block_of(segment.keys, begin + kEntryBlock);
    const kernels::PrefetchRange range{keys_ahead ? following : values,
                                       segment.role == Role::normaliser ? following : values};
    float* weights = work.record != nullptr ? work.record->next(m) : work.weights;
    kernels::qk_block(keys, work.packed, m, weights,
                      m < kUnpackFrom && !unpacked ? &range : nullptr);
    if (relative) work.means->add(at, keys.rows, weights);
    use(block, begin, weights);
  }
}

// Finishes the logits of each query and turns them into weights relative to its running maximum.
void update_weights(const Queries& queries, const EntryBlock& block, const Logits& logits,
                    bool normalises, float* weights, Workspace& work) {
  constexpr std::size_t kTogether = Workspace::kTogether;
  kernels::FinishedLogits rows[kTogether];
  double sums[kTogether];
  const std::size_t m = queries.rows.rows;
  for (std::size_t first = 0; first < m; first += kTogether) {
    const std::size_t count = std::min(m - first, kTogether);
    float* row = weights + first * kEntryBlock;
    for (std::size_t i = 0; i < count; ++i) block.set(work.rules[i], queries, first + i, logits);
    kernels::finish_logits({work.rules, count}, block.count(), row, rows);
    for (std::size_t i = 0; i < count; ++i) {
      const float largest = rows[i].largest;
      float& max = work.max[first + i];
      float& factor = work.factors[first + i];
      factor = 1.0f;
      if (!(largest <= max)) {
        factor = std::exp(max - largest);
        max = largest;
      }
      // If all entries are masked so far, weights relative to any finite value are 0.
      rows[i].largest = max == -kInfinity ? 0.0f : max;
    }
    if (work.record != nullptr) work.record->prefetch_next(m, first, count);
    kernels::exponentiate({rows, count}, row, sums);
    for (std::size_t i = 0; i < count; ++i) {
      if (std::isnan(sums[i])) {  // integer AV kernels cannot carry NaN
        std::fill_n(row + i * kEntryBlock, kEntryBlock, std::numeric_limits<float>::quiet_NaN());
        work.max[first + i] = std::numeric_limits<float>::quiet_NaN();
      }
      const double older = work.normaliser[first + i] * work.factors[first + i];
      work.normaliser[first + i] = normalises ? older + sums[i] : older;
      double& weight_sum = work.weight_sum[first + i];
      weight_sum = weight_sum * work.factors[first + i] + sums[i];
    }
  }
}

// Keeps a sum above 0 that rescaling has underflowed: finish() distinguishes it from an empty sum.
float not_vanished(double sum, bool has_terms) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  return has_terms && sum < kLeast ? kLeast : static_cast<float>(sum);
}

// Adds the results of queries `first` and on, for which `work` has processed a segment.
void add_to(PartialAttention& partial, std::size_t first, std::size_t count, const Segment& segment,
            Workspace& work) {
  const std::size_t value_dim = partial.numerator.cols();
  const bool has_values = segment.role != Role::normaliser;
  float row[kMaxDim];
  for (std::size_t q = 0; q < count; ++q) {
    if (work.max[q] == -kInfinity) continue;
    const std::size_t r = first + q;
    const float max = work.max[q] < partial.max_logit[r] ? partial.max_logit[r] : work.max[q];
    const float old_factor = std::exp(partial.max_logit[r] - max);
    const float new_factor = std::exp(work.max[q] - max);
    partial.max_logit[r] = max;
    const double older = partial.normaliser[r], newer = work.normaliser[q];
    partial.normaliser[r] =
        not_vanished(older * old_factor + newer * new_factor, older > 0 || newer > 0);
    auto out = partial.numerator[r];
    if (has_values) {
      kernels::unpack(segment.values.type, work.sums + q * packed_size(value_dim),
                      {row, value_dim});
      if (segment.values.mean != nullptr) {
        const auto weight = static_cast<float>(work.weight_sum[q]);
        const std::span<const float> mean = segment.values.mean->mean();
        for (std::size_t i = 0; i < value_dim; ++i) row[i] += weight * mean[i];
      }
      for (std::size_t i = 0; i < value_dim; ++i) {
        out[i] = out[i] * old_factor + row[i] * new_factor;
      }
    } else if (old_factor != 1.0f) {
      for (float& x : out) x *= old_factor;
    }
  }
}

// Adds the sink logits: an entry each, of the normaliser alone.
void add_sinks(const Queries& queries, PartialAttention& partial) {
  for (std::size_t r = 0; r < queries.sink_logits.size(); ++r) {
    const float sink = queries.sink_logits[r];
    const float max = std::max(partial.max_logit[r], sink);
    const float old_factor = std::exp(partial.max_logit[r] - max);
    partial.max_logit[r] = max;
    partial.normaliser[r] = partial.normaliser[r] * old_factor + std::exp(sink - max);
    for (float& x : partial.numerator[r]) x *= old_factor;
  }
}

// Queries first .. first + count as separate queries.
Queries slice(const Queries& queries, std::size_t first, std::size_t count) {
  Queries part = queries;
  part.rows = queries.rows.slice(first, count);
  if (!queries.positions.empty()) part.positions = queries.positions.subspan(first, count);
  if (!queries.alibi_slopes.empty()) part.alibi_slopes = queries.alibi_slopes.subspan(first, count);
  return part;
}

// Whether a segment's tokens come behind those of another of whole blocks, so that both are
// attended to as if their rows lay in one piece: to the bit.
bool continues(const Segment& segment, const Segment& before) {
  const auto same = [](const RowsView& a, const RowsView& b) {
    return a.type == b.type && a.mean == b.mean;
  };
  const std::size_t rows = before.keys.rows;
  return rows > 0 && rows % kEntryBlock == 0 && segment.role == before.role &&
         segment.log_weights == nullptr && before.log_weights == nullptr &&
         segment.positions == nullptr && before.positions == nullptr &&
         before.first_position >= 0 &&
         segment.first_position == before.first_position + static_cast<Position>(rows) &&
         same(segment.keys, before.keys) && same(segment.values, before.values);
}

// `entries`: those of the segments before this one.
void attend_segment(const Queries& queries, const Segment& segment, std::size_t entries,
                    const Logits& logits, Workspace& work) {
  const std::size_t m = queries.rows.rows;
  const bool has_values = segment.role != Role::normaliser;
  const RowsView& fetched = prefetches_next_block(segment) ? segment.values : segment.keys;
  const auto use = [&](const EntryBlock& block, std::size_t begin, float* weights) {
    update_weights(queries, block, logits, segment.role != Role::numerator, weights, work);
    if (work.record != nullptr && segment.role != Role::numerator) {
      work.record->blocks.push_back({entries + begin, block.count()});
      work.record->max.insert(work.record->max.end(), work.max, work.max + m);
    }
    if (!has_values) return;
    RowsView values = block_of(segment.values, begin);
    const bool unpacked = prepare(values, m, kernels::values_as_stored(values.type), work.unpacked);
    const kernels::PrefetchRange range{block_of(fetched, begin + kEntryBlock),
                                       block_of(segment.keys, begin + kEntryBlock)};
    kernels::av_block(values, weights, m, work.factors, work.sums,
                      m < kUnpackFrom && !unpacked ? &range : nullptr);
  };
  for_each_block(queries, segment, logits, work, use);
}

// Queries first .. first + count.
void attend_queries(const Queries& queries, std::size_t first, std::size_t count,
                    std::span<const Segment> segments, const Logits& logits, Workspace& work,
                    PartialAttention& partial) {
  const Queries part = slice(queries, first, count);
  work.packed_for.reset();  // other queries
  work.means.reset();
  std::size_t entries = 0;
  const Segment* before = nullptr;  // whose sums are not in `partial` yet
  for (const Segment& segment : segments) {
    const std::size_t n = segment.keys.rows;
    if (n == 0) continue;
    if (before == nullptr || !continues(segment, *before)) {
      if (before != nullptr) add_to(partial, first, count, *before, work);
      std::fill_n(work.max, count, -kInfinity);
      std::fill_n(work.normaliser, count, 0.0);
      std::fill_n(work.weight_sum, count, 0.0);
      std::fill_n(work.sums, count * packed_size(partial.numerator.cols()), 0.0f);
    }
    attend_segment(part, segment, entries, logits, work);
    before = &segment;
    entries += n;
  }
  if (before != nullptr) add_to(partial, first, count, *before, work);
}

// Reduces over the queries the recorded weights, divided by their normalisers. `query_weights`: of
// these queries, or empty.
void reduce(const Record& record, std::size_t first, std::size_t queries,
            const PartialAttention& whole, AttentionReduction reduction,
            std::span<const float> query_weights, std::span<float> scores) {
  std::vector<float> shares(queries);
  const float* max = record.max.data();
  const float* weights = record.weights.get();
  const auto reduce_columns = reduction == AttentionReduction::sum ? kernels::add_columns
                              : reduction == AttentionReduction::maximum
                                  ? kernels::max_columns
                                  : kernels::add_squared_columns;
  for (const Record::Block& block : record.blocks) {
    for (std::size_t q = 0; q < queries; ++q) {
      const bool seen = max[q] != -kInfinity && whole.normaliser[first + q] > 0.0f;
      shares[q] =
          seen ? std::exp(max[q] - whole.max_logit[first + q]) / whole.divisor(first + q) : 0.0f;
      if (!query_weights.empty()) shares[q] *= query_weights[q];
    }
    reduce_columns(weights, shares.data(), queries, scores.subspan(block.entry, block.count));
    max += queries;
    weights += queries * kEntryBlock;
  }
}

}  // namespace

PartialAttention::PartialAttention(std::size_t queries, std::size_t value_dim)
    : numerator(queries, value_dim), max_logit(queries, -kInfinity), normaliser(queries, 0.0f) {}

void PartialAttention::reset() {
  std::fill_n(numerator.data(), numerator.rows() * numerator.cols(), 0.0f);
  std::fill(max_logit.begin(), max_logit.end(), -kInfinity);
  std::fill(normaliser.begin(), normaliser.end(), 0.0f);
}

void PartialAttention::merge(const PartialAttention& other) {
  require(other.numerator.rows() == numerator.rows() && other.numerator.cols() == numerator.cols(),
          "cannot merge attention of {} x {} into {} x {}", other.numerator.rows(),
          other.numerator.cols(), numerator.rows(), numerator.cols());
  for (std::size_t r = 0; r < max_logit.size(); ++r) {
    if (other.max_logit[r] == -kInfinity) continue;
    const float max = other.max_logit[r] < max_logit[r] ? max_logit[r] : other.max_logit[r];
    const float ours = std::exp(max_logit[r] - max);
    const float theirs = std::exp(other.max_logit[r] - max);
    max_logit[r] = max;
    normaliser[r] = not_vanished(normaliser[r] * ours + other.normaliser[r] * theirs,
                                 normaliser[r] > 0 || other.normaliser[r] > 0);
    auto out = numerator[r];
    const auto in = other.numerator[r];
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = out[i] * ours + in[i] * theirs;
  }
}

void PartialAttention::finish(MutableMatrix out) const {
  require(out.rows == numerator.rows() && out.cols == numerator.cols(),
          "attention of {} x {} does not fit into {} x {}", numerator.rows(), numerator.cols(),
          out.rows, out.cols);
  for (std::size_t r = 0; r < out.rows; ++r) {
    const bool seen = max_logit[r] != -kInfinity;
    require(!seen || (normaliser[r] > 0.0f && std::isfinite(normaliser[r])),
            "the attention of query {} has the normaliser {}: expected a positive number; either "
            "it has no entries or an input is not finite",
            r, normaliser[r]);
    const float share = seen ? 1.0f / divisor(r) : 0.0f;
    const auto in = numerator[r];
    for (std::size_t i = 0; i < out.cols; ++i) out.row(r)[i] = in[i] * share;
  }
}

void attend_partial(const Queries& queries, std::span<const Segment> segments, const Logits& logits,
                    PartialAttention& partial) {
  const std::size_t m = queries.rows.rows;
  const std::size_t value_dim = partial.numerator.cols();
  require(partial.numerator.rows() == m, "{} queries cannot be added to the attention of {}", m,
          partial.numerator.rows());
  check(queries, segments, logits);
  check_values(segments, value_dim);
  add_sinks(queries, partial);
  const std::size_t together = queries_together(queries, segments);
  Workspace work(std::min(m, together), queries.rows.cols, value_dim);
  for (std::size_t first = 0; first < m; first += together) {
    attend_queries(queries, first, std::min(together, m - first), segments, logits, work, partial);
  }
}

void attend(const Queries& queries, std::span<const Segment> segments, const Logits& logits,
            MutableMatrix out) {
  PartialAttention partial(queries.rows.rows, out.cols);
  attend_partial(queries, segments, logits, partial);
  partial.finish(out);
}

namespace {

// Queries processed together while the weights for all blocks are kept.
std::size_t recorded_together(std::size_t blocks) {
  return std::clamp<std::size_t>(kRecorded / (std::max<std::size_t>(blocks, 1) * kEntryBlock),
                                 kRecordedQueries, kQueryBlock);
}

}  // namespace

std::size_t attention_scratch(std::size_t queries, std::size_t entries, std::size_t key_dim,
                              std::size_t value_dim, bool with_attention_sum) {
  const std::size_t blocks = (entries + kEntryBlock - 1) / kEntryBlock;
  const std::size_t together =
      std::min(queries, with_attention_sum ? recorded_together(blocks) : kQueryBlock);
  const std::size_t keys = packed_size(key_dim), values = packed_size(value_dim);
  std::size_t numbers =
      queries * (value_dim + 2) + together * (keys + values + kEntryBlock + key_dim + 1);
  if (together >= kUnpackFrom) numbers += kEntryBlock * std::max(keys, values);
  if (with_attention_sum) numbers += (blocks + 1) * together * (kEntryBlock + 1);
  return numbers * sizeof(float);
}

void attend_with_scores(const Queries& queries, std::span<const Segment> segments,
                        const Logits& logits, MutableMatrix out, AttentionReduction reduction,
                        std::span<const float> query_weights, std::span<float> scores) {
  std::size_t entries = 0, blocks = 0;
  for (const Segment& segment : segments) {
    entries += segment.keys.rows;
    blocks += (segment.keys.rows + kEntryBlock - 1) / kEntryBlock;
  }
  require(scores.size() == entries, "{} scores for {} entries", scores.size(), entries);
  const std::size_t m = queries.rows.rows;
  require(query_weights.empty() || query_weights.size() == m, "{} queries have {} weights", m,
          query_weights.size());
  check(queries, segments, logits);
  check_values(segments, out.cols);
  PartialAttention whole(m, out.cols);
  add_sinks(queries, whole);
  // The normaliser is known after the last entry. Keeping the weights until then is cheaper than
  // recomputing them, while they stay in cache.
  const std::size_t together =
      std::min(recorded_together(blocks), queries_together(queries, segments));
  const std::size_t most = std::min(m, together);
  Workspace work(most, queries.rows.cols, out.cols);
  Record record(most, blocks + 1);  // the last for a block without attention sum
  work.record = &record;
  for (std::size_t first = 0; first < m; first += together) {
    const std::size_t count = std::min(together, m - first);
    record.blocks.clear();
    record.max.clear();
    attend_queries(queries, first, count, segments, logits, work, whole);
    reduce(record, first, count, whole, reduction,
           query_weights.empty() ? query_weights : query_weights.subspan(first, count), scores);
  }
  whole.finish(out);
}

void attend_with_attention_sum(const Queries& queries, std::span<const Segment> segments,
                               const Logits& logits, MutableMatrix out,
                               std::span<float> attention_sum) {
  attend_with_scores(queries, segments, logits, out, AttentionReduction::sum, {}, attention_sum);
}

}  // namespace ballast
