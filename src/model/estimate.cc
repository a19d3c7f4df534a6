// Estimates of the memory that a model takes.
#include <algorithm>

#include "attention/attention_scratch.h"
#include "attention/rotary.h"
#include "ballast/engine/model.h"
#include "ballast/memory_size.h"
#include "ballast/summary.h"
#include "base/thread_pool.h"
#include "cache/byte_budget.h"
#include "gemm/matmul.h"
#include "model/forward.h"
#include "storage/low_bits.h"
#include "summary/entry_budget.h"
#include "summary/query_moments.h"

namespace ballast {
namespace {

/// Bytes that a method keeps per entry beside its key and value: position, weight, cluster. They
/// are 18 to 41, by method.
constexpr std::size_t kBookkeeping = 32;

/// Scratch bytes of a method for each token of a prompt that it summarizes.
constexpr std::size_t kWorking = 24;

/// Bytes that the system reads around a touched page of a mapped file.
constexpr std::size_t kAround = 64 << 10;

/// Bytes of the model's files that become resident: all, except that of embedding tables only the
/// rows of the text do.
std::size_t mapped_bytes(const ModelFile& file, std::size_t tokens) {
  std::size_t bytes = 0;
  for (const std::filesystem::path& path : file.files()) {
    std::error_code unknown;
    const std::uintmax_t size = std::filesystem::file_size(path, unknown);
    if (!unknown) bytes += size;
  }
  const TensorView* output = file.find(Weight::output);
  for (Weight table : {Weight::token_embedding, Weight::position_embedding}) {
    const TensorView* tensor = file.find(table);
    if (tensor == nullptr || tensor == output) continue;
    const std::size_t row = tensor->data.size() / tensor->shape[0];
    const std::size_t apart = table == Weight::token_embedding ? kAround : 0;
    if (tokens >= tensor->data.size() / (row + apart)) continue;
    bytes -= std::min(bytes, tensor->data.size() - tokens * (row + apart));
  }
  return bytes;
}

/// Threads that process heads at the same time.
std::size_t busy_threads(const ModelConfig& c) { return std::min(loop_threads(), c.kv_heads); }

/// Bytes of one layer's heads: at most, while the prompt is read; once it is summarized; and the
/// scratch of summarizing all of them.
struct LayerNeed {
  std::size_t entries = 0;  ///< of a head, at most
  std::size_t most = 0;
  std::size_t kept = 0;
  std::size_t summarising = 0;
};

/// The sizes of a cache of one model and method.
class Sizes {
 public:
  Sizes(const ModelConfig& c, const CacheShape& shape, const CacheOptions& options)
      : c_(c),
        shape_(shape),
        options_(options),
        entry_(stored_row_bytes(options.key_type, c.key_dim) +
               stored_row_bytes(options.value_type, c.value_dim)) {
    const AttentionStats::Kind watch = options.policy.attention_stats().kind;
    const bool accumulates = watch == AttentionStats::Kind::accumulated ||
                             watch == AttentionStats::Kind::both || options.recording.attention_sum;
    const std::size_t observed = std::max(options.policy.observed(), options.recording.queries);
    if (accumulates) entry_ += sizeof(float);
    const AttentionStats stats = options.policy.attention_stats();
    if (stats.replay != ReplayScore::none) {  // and |W_O^T v| of each query head
      scores_ = (1 + (stats.reads_again() ? c.heads / c.kv_heads : 0)) * sizeof(float);
    }
    queries_ = observed * c.heads / c.kv_heads * c.key_dim * sizeof(float);
    if (options.policy.attention_stats().query_moments || options.recording.query_moments) {
      const QueryMoments moments(c.heads / c.kv_heads, c.key_dim, {});
      moments_ = moments.saved_numbers() * sizeof(double);
    }
  }

  LayerNeed layer(std::size_t number, std::size_t prompt, std::size_t after) const {
    const Policy& policy = options_.policy;
    const bool stream = options_.protocol == Protocol::stream;
    const std::size_t all = prompt + after;
    const std::size_t length = stream && options_.expected_tokens > 0 ? options_.expected_tokens
                               : stream                               ? all
                                                                      : prompt;
    const Budget budget = policy.budget(std::max<std::size_t>(length, 1), options_.protocol,
                                        static_cast<int>(number), static_cast<int>(c_.layers));
    if (policy.info().whole_cache) {
      LayerNeed need = whole(all);
      const std::size_t text = stream ? length : prompt;
      const std::size_t bytes = whole_cache_bytes(shape_, options_, text);
      if (stream) {
        // The budget, the chunk and its scores.
        const auto chunk = static_cast<std::size_t>(policy.integer("chunk"));
        need.most = std::min(need.most, bytes / c_.layers + held(chunk, 0));
        need.kept = std::min(need.kept, bytes / c_.layers);
        need.summarising = c_.kv_heads * chunk * scores_;
        return need;
      }
      need.most += c_.kv_heads * prompt * scores_;
      need.kept = std::min(need.kept, bytes / c_.layers + held(after, 0));
      return need;
    }
    const bool everything = policy.info().window_policy == WindowPolicy::all;
    const bool grows = !stream && policy.keeps_generated();
    const std::size_t total = budget.total();
    if (everything || (grows ? prompt : all) <= total) return whole(all);
    if (number == 0) try_steps(budget, length);
    const std::size_t kept = grows ? total + after : total;
    LayerNeed need = whole(stream ? total : all);
    need.kept = held(kept, budget.summary);
    need.most = std::max(need.most, need.kept);
    need.summarising =
        held(kept, budget.summary) + c_.kv_heads * (stream ? total : prompt) * kWorking;
    return need;
  }

 private:
  /// A summary that takes in steps is made when the first one comes, amid other work. What it
  /// refuses is refused here.
  void try_steps(const Budget& budget, std::size_t length) const {
    if (budget.step == 0 || options_.policy.info().make_shared != nullptr) return;
    SummarySetup setup;
    setup.policy = options_.policy;
    setup.protocol = options_.protocol;
    setup.capacity = budget.summary;
    setup.sink = budget.sink;
    setup.step = budget.step;
    setup.tokens = length - std::min(length, budget.sink + budget.window);
    setup.key_dim = c_.key_dim;
    setup.value_dim = c_.value_dim;
    setup.queries_per_kv_head = shape_.queries_per_kv_head;
    setup.key_type = options_.key_type;
    setup.value_type = options_.value_type;
    setup.logits = shape_.logits;
    setup.layers = static_cast<int>(c_.layers);
    make_summary(setup);
  }
  /// All heads with `entries` entries each, `summarised` of them in the summary.
  std::size_t held(std::size_t entries, std::size_t summarised) const {
    const std::size_t low_bits = low_bit_bytes(options_.key_type, c_.key_dim, entries) +
                                 low_bit_bytes(options_.value_type, c_.value_dim, entries);
    return c_.kv_heads *
           (entries * entry_ + low_bits + summarised * kBookkeeping + queries_ + moments_);
  }
  LayerNeed whole(std::size_t entries) const {
    const std::size_t bytes = held(entries, 0);
    return {entries, bytes, bytes, 0};
  }

  const ModelConfig& c_;
  const CacheShape& shape_;
  const CacheOptions& options_;
  std::size_t entry_ = 0;
  std::size_t scores_ = 0;  ///< of an entry, until the budget is divided
  std::size_t queries_ = 0;
  std::size_t moments_ = 0;  ///< of the queries of a head's query heads
};

/// Scratch of the attention of `rows` tokens, on each thread that processes a head.
std::size_t attention_bytes(const ModelConfig& c, const CacheOptions& options, std::size_t rows,
                            std::size_t entries) {
  const std::size_t group = c.heads / c.kv_heads, queries = rows * group;
  const AttentionStats::Kind watch = options.policy.attention_stats().kind;
  const bool attention_sum = watch == AttentionStats::Kind::accumulated ||
                             watch == AttentionStats::Kind::both || options.recording.attention_sum;
  std::size_t bytes = queries * (c.key_dim + c.value_dim) * sizeof(float) +
                      attention_scratch(queries, entries, c.key_dim, c.value_dim, attention_sum);
  // The last queries attend once more when the prompt ends.
  const std::size_t latest = options.policy.observed() * group;
  bytes = std::max(bytes, attention_scratch(latest, entries, c.key_dim, c.value_dim, latest > 0));
  // Keys rotated to their positions in the cache.
  if (options.positions == Positions::rolling) {
    bytes += entries * (c.key_dim * sizeof(float) + 2 * sizeof(Position));
  }
  return busy_threads(c) * bytes;
}

/// Scratch of a second reading: W_O^T W_O of each query head, which a stream keeps for all layers,
/// and what dividing the budget among `entries` of a head takes (see allocate()).
std::size_t replay_bytes(const ModelConfig& c, const CacheOptions& options, std::size_t entries) {
  const ReplayScore score = options.policy.attention_stats().replay;
  if (score == ReplayScore::none) return 0;
  const std::size_t layers = options.protocol == Protocol::stream ? c.layers : 1;
  const std::size_t grams =
      score == ReplayScore::max ? layers * c.heads * c.value_dim * c.value_dim * sizeof(float) : 0;
  return grams + (std::size_t{1} << 20) + c.layers * c.kv_heads * entries;
}

/// Scratch of the matrix products: that of the largest one.
std::size_t product_bytes(const ModelFile& file, std::size_t rows) {
  std::size_t most = 0;
  for (Weight weight : {Weight::query, Weight::attention_output, Weight::ffn_up, Weight::ffn_down,
                        Weight::output}) {
    const TensorView* tensor = file.find(weight);
    if (tensor == nullptr) continue;
    const std::size_t count = weight == Weight::output ? 1 : rows;
    most = std::max(most, multiply_scratch(tensor->type, tensor->shape[1], count));
  }
  return most;
}

}  // namespace

MemoryEstimate Model::estimate(const CacheOptions& options, std::size_t prompt, std::size_t after,
                               std::size_t chunk) const {
  const PoolScope scope(options.pool.get());
  const ModelConfig& c = config();
  const bool stream = options.protocol == Protocol::stream;
  CacheOptions counted = options;
  set_types(options.policy, counted.key_type, counted.value_type);
  const CacheShape shape = cache_shape(prompt + after);
  counted.policy = fit_bytes(shape, counted, stream ? options.expected_tokens : prompt);
  const Sizes sizes(c, shape, counted);
  LayerNeed largest;
  MemoryEstimate estimate;
  for (std::size_t l = 0; l < c.layers; ++l) {
    const LayerNeed need = sizes.layer(l, prompt, after);
    estimate.cache += need.most;
    estimate.kept += need.kept;
    largest.entries = std::max(largest.entries, need.entries);
    largest.summarising = std::max(largest.summarising, need.summarising);
  }
  const std::size_t rows = std::min(chunk, std::max<std::size_t>(prompt + after, 1));
  estimate.weights = mapped_bytes(file(), prompt + after) + weights_->copied_bytes;
  estimate.scratch = ForwardScratch::bytes(c, rows) + product_bytes(file(), rows) +
                     c.vocabulary * sizeof(float) +
                     attention_bytes(c, options, rows, largest.entries) +
                     largest.summarising / c.kv_heads * busy_threads(c) +
                     replay_bytes(c, options, largest.entries);
  if (options.positions == Positions::rolling) {
    const std::size_t table = RotaryTable::bytes_for(largest.entries + 1, c.rope.dimension / 2);
    estimate.cache += table;
    estimate.kept += table;
  }
  return estimate;
}

std::size_t Model::exact_bytes(const Cache& cache) const {
  CacheOptions exact = cache.options();
  exact.policy = Policy();
  exact.recording = {};  // recordings of an experiment are not part of an exact cache
  return estimate(exact, std::max(cache.tokens(), exact.expected_tokens)).cache;
}

}  // namespace ballast
