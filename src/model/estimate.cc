// Estimates of the memory that a model takes.
#include <algorithm>

#include "attention/attention_scratch.h"
#include "ballast/engine/model.h"
#include "base/thread_pool.h"
#include "cache/cache_size.h"
#include "gemm/matmul.h"
#include "model/activations.h"
#include "model/layer_pages.h"
#include "model/layer_share.h"

namespace ballast {
namespace {

/// Bytes that the system reads around a touched page of a mapped file.
constexpr std::size_t kAround = 64 << 10;

/// Bytes of the model's files that become resident: all, except that of embedding tables only the
/// rows of the text do. `share`: null, or the layers that are here.
std::size_t mapped_bytes(const ModelFile& file, std::size_t tokens, const LayerShare* share) {
  std::size_t bytes = 0;
  for (const std::filesystem::path& path : file.files()) {
    std::error_code unknown;
    const std::uintmax_t size = std::filesystem::file_size(path, unknown);
    if (!unknown) bytes += size;
  }
  const TensorView* output = file.find(Weight::output);
  const auto leave_out = [&](std::size_t count) { bytes -= std::min(bytes, count); };
  if (share != nullptr) {
    for (std::size_t l = 0; l < file.config().layers; ++l) {
      const bool here = l >= share->first() && l < share->first() + share->config().layers;
      if (!here) leave_out(LayerPages::bytes(file, l));
    }
    if (!share->ends() && output != nullptr) {
      if (output != file.find(Weight::token_embedding)) leave_out(output->data.size());
      output = nullptr;
    }
    if (!share->begins()) tokens = 0;
  }
  for (Weight table : {Weight::token_embedding, Weight::position_embedding}) {
    const TensorView* tensor = file.find(table);
    if (tensor == nullptr || tensor == output) continue;
    const std::size_t row = tensor->data.size() / tensor->shape[0];
    const std::size_t apart = table == Weight::token_embedding ? kAround : 0;
    if (tokens >= tensor->data.size() / (row + apart)) continue;
    leave_out(tensor->data.size() - tokens * (row + apart));
  }
  return bytes;
}

/// Threads that process heads at the same time.
std::size_t busy_threads(const ModelConfig& c) { return std::min(loop_threads(), c.kv_heads); }

/// Scratch of the attention of `rows` tokens, on each thread that processes a head.
std::size_t attention_bytes(const ModelConfig& c, const CacheOptions& options, std::size_t rows,
                            std::size_t entries) {
  const std::size_t group = c.heads / c.kv_heads, queries = rows * group;
  const bool attention_sum =
      options.policy.needs().attention_sums || options.recording.attention_sum;
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

/// Scratch of a replay pass: W_O^T W_O of each query head, which a stream keeps for all layers,
/// and what dividing the budget among `entries` of a head takes (see allocate()).
std::size_t replay_bytes(const ModelConfig& c, const CacheOptions& options, std::size_t entries) {
  const ReplayScore score = options.policy.needs().replay;
  if (score == ReplayScore::none) return 0;
  const std::size_t attending = c.attending().size();
  const std::size_t layers = options.protocol == Protocol::stream ? attending : 1;
  const std::size_t grams =
      score == ReplayScore::max ? layers * c.heads * c.value_dim * c.value_dim * sizeof(float) : 0;
  return grams + (std::size_t{1} << 20) + attending * c.kv_heads * entries;
}

/// Scratch of the matrix products: that of the largest one.
std::size_t product_bytes(const ModelFile& file, std::size_t rows) {
  std::size_t most = 0;
  for (Weight weight : {Weight::query, Weight::attention_output, Weight::ffn_up, Weight::ffn_down,
                        Weight::expert_up, Weight::expert_down, Weight::conv_in, Weight::output}) {
    const TensorView* tensor = nullptr;  // of the first layer that has one
    for (std::size_t l = 0; tensor == nullptr && l < file.config().layers; ++l) {
      tensor = file.find(weight, l);
    }
    if (tensor == nullptr) continue;
    const std::size_t count = weight == Weight::output ? 1 : rows;
    most = std::max(most, multiply_scratch(tensor->type, tensor->shape[1], count));
  }
  return most;
}

}  // namespace

MemoryEstimate Model::estimate(const CacheOptions& given, std::size_t prompt, std::size_t after,
                               std::size_t chunk) const {
  const CacheOptions options = cache_options(given);
  const PoolScope scope(options.pool.get());
  const ModelConfig& c = config();
  const CacheShape shape = cache_shape(prompt + after);
  const CacheSize::Need need = CacheSize(shape, options).need(prompt, after);
  MemoryEstimate estimate;
  estimate.cache = need.most;
  estimate.kept = need.kept;
  const std::size_t rows = std::min(chunk, std::max<std::size_t>(prompt + after, 1));
  estimate.weights = mapped_bytes(file(), prompt + after, share_.get()) + file().copied_bytes() +
                     weights_->copied_bytes;
  if (pages_) estimate.weights -= std::min(estimate.weights, pages_->spared());
  estimate.scratch = Activations::bytes(c, rows) + product_bytes(file(), rows) +
                     c.vocabulary * sizeof(float) +
                     attention_bytes(c, options, rows, need.entries) +
                     need.summarising * busy_threads(c) + replay_bytes(c, options, need.entries);
  return estimate;
}

std::size_t Model::exact_bytes(const Cache& cache) const {
  return CacheSize(cache.shape(), cache.options()).exact(cache.tokens());
}

}  // namespace ballast
