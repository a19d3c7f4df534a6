#include "experiments/speed/speed.h"

#include <algorithm>

#include "attention/kernels/amx.h"
#include "base/fail.h"
#include "base/os/memory.h"
#include "cache/mean_entries.h"
#include "experiments/speed/timed_batch.h"
#include "gemm/tile_gemm.h"
#include "simd/cpu.h"

namespace ballast {

namespace {

double pairs_of(std::size_t tokens) {
  const auto n = static_cast<double>(tokens);
  return n * (n + 1) / 2;
}

/// Seconds of an operation of attention.
double pair_seconds(const Machine& machine, StorageType type, bool is_keys) {
  const double tiles =
      type == StorageType::bf16 ? machine.bf16_tile_flops : machine.int8_tile_flops;
  const int products = kernels::amx::tile_products(type, is_keys);
  return products > 0 && tiles > 0 ? products / tiles : 1 / machine.flops();
}

}  // namespace

double ModelCost::prompt_flops(std::size_t tokens) const {
  return static_cast<double>(tokens) * layer_flops + output_flops +
         pairs_of(tokens) * (key_flops + value_flops);
}

double ModelCost::prompt_floor(std::size_t tokens, const Machine& machine, StorageType keys,
                               StorageType values) const {
  const auto n = static_cast<double>(tokens);
  const double pairs = pairs_of(tokens) * (key_flops * pair_seconds(machine, keys, true) +
                                           value_flops * pair_seconds(machine, values, false));
  const bool tiles = machine.int8_tile_flops > 0;
  const double by_vectors = n * (layer_flops - (tiles ? tile_flops : 0.0)) + output_flops;
  const double by_tiles = tiles ? n * int8_flops / machine.int8_tile_flops : 0.0;
  return by_vectors / machine.flops() + by_tiles + pairs;
}

ModelCost cost_of(const Model& model) {
  const ModelConfig& c = model.config();
  ModelCost cost;
  cost.weight_bytes = static_cast<double>(model.file().bytes());
  // A token reads one row of the embedding, unless the embedding is also the output matrix.
  auto less = [&](Weight weight) {
    const TensorView* tensor = model.file().find(weight);
    if (tensor != nullptr) cost.weight_bytes -= static_cast<double>(tensor->data.size());
  };
  if (!c.tied_embeddings) less(Weight::token_embedding);
  less(Weight::position_embedding);
  for (std::size_t l = 0; l < c.layers; ++l) {
    for (Weight weight : {Weight::query, Weight::key, Weight::value, Weight::attention_output,
                          Weight::ffn_gate, Weight::ffn_up, Weight::ffn_down}) {
      const TensorView* tensor = model.file().find(weight, l);
      if (tensor != nullptr) {
        const double flops = 2.0 * static_cast<double>(element_count(tensor->shape));
        const int by_tiles = has_amx_int8() ? tile_products(tensor->type) : 0;
        cost.layer_flops += flops;
        if (by_tiles > 0) cost.tile_flops += flops;
        cost.int8_flops += by_tiles * flops;
      }
    }
  }
  cost.output_flops = 2.0 * static_cast<double>(c.vocabulary * c.width);
  cost.key_flops = 2.0 * static_cast<double>(c.layers * c.heads * c.key_dim);
  cost.value_flops = 2.0 * static_cast<double>(c.layers * c.heads * c.value_dim);
  return cost;
}

double attended_bytes(const Cache& cache) {
  const CacheShape& s = cache.shape();
  std::size_t bytes = 0;
  auto add = [&](const RowsView& rows) {
    bytes += rows.rows * stored_row_bytes(rows.type, rows.dim);
  };
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (std::size_t h = 0; h < s.kv_heads; ++h) {
      for (const Segment& segment : cache.segments(l, h)) {
        add(segment.keys);
        if (segment.role != Role::normaliser) add(segment.values);
        if (segment.log_weights != nullptr) bytes += segment.keys.rows * sizeof(float);
      }
    }
  }
  return static_cast<double>(bytes);
}

namespace {

/// The floor of one decode step of a batch whose caches hold `attended` bytes each.
double step_floor(const ModelCost& cost, const Machine& machine, std::size_t batch,
                  double attended) {
  const auto n = static_cast<double>(batch);
  return std::max((cost.weight_bytes + n * attended) / machine.read_bandwidth,
                  n * (cost.layer_flops + cost.output_flops) / machine.flops());
}

SpeedRow measure_once(const Model& model, const SpeedOptions& o, const Policy& policy,
                      std::size_t prompt, const ModelCost& cost, const Machine& machine) {
  SpeedRow row;
  row.method = policy.to_string();
  row.prompt = prompt;
  row.generated = o.generate;
  row.batch = o.batch;
  CacheOptions options = o.cache;
  options.policy = policy;
  options.expected_tokens = prompt + o.generate;
  reset_peak_memory();
  TimedBatch batch(model, options);
  row.prompt_seconds = batch.read(prompt);
  row.compress_seconds = batch.finish_prompt();
  batch.copy_to(o.batch);
  const double before = attended_bytes(batch.cache());
  row.decode_seconds = batch.generate(o.generate);
  const double attended = (before + attended_bytes(batch.cache())) / 2;
  row.prompt_floor = cost.prompt_floor(prompt, machine, options.key_type, options.value_type);
  row.decode_floor = static_cast<double>(o.generate) * step_floor(cost, machine, o.batch, attended);
  row.entries = mean_entries(batch.cache());
  row.cache_bytes = batch.cache().bytes().total();
  row.exact_bytes = model.exact_bytes(batch.cache());
  row.peak_memory = peak_memory();
  return row;
}

void check(const Model& model, const SpeedOptions& o) {
  require(!o.policies.empty() && !o.prompts.empty(), "nothing to measure: no method or no prompt");
  require(o.generate > 0 && o.batch > 0, "nothing to measure: {} tokens generated, batches of {}",
          o.generate, o.batch);
  check_lengths(model, o.cache, o.prompts, o.generate);
  const std::size_t longest = std::ranges::max(o.prompts) + o.generate;
  for (const Policy& policy : o.policies) {
    CacheOptions options = o.cache;
    options.policy = policy;
    MemoryEstimate estimate = model.estimate(options, longest);
    estimate.cache *= o.batch;
    require_memory(estimate, available_memory(), policy.to_string());
  }
}

}  // namespace

void keep_least(std::span<SpeedRow> best, std::span<const SpeedRow> more) {
  for (std::size_t i = 0; i < best.size(); ++i) {
    SpeedRow& row = best[i];
    row.prompt_seconds = std::min(row.prompt_seconds, more[i].prompt_seconds);
    row.compress_seconds = std::min(row.compress_seconds, more[i].compress_seconds);
    row.decode_seconds = std::min(row.decode_seconds, more[i].decode_seconds);
  }
}

void check_lengths(const Model& model, const CacheOptions& options,
                   const std::vector<std::size_t>& prompts, std::size_t generate) {
  const std::size_t positions = model.config().max_positions;
  for (std::size_t prompt : prompts) {
    require(prompt > 0, "a prompt of 0 tokens");
    const bool fits = prompt <= positions && generate <= positions - prompt;
    require(fits || is_endless(options),
            "{}: a prompt of {} tokens and {} generated, but the model has {} positions",
            model.file().path().string(), prompt, generate, positions);
  }
}

std::vector<SpeedRow> measure_speed(const Model& model, const SpeedOptions& options,
                                    const Machine& machine, const Advance& advance) {
  check(model, options);
  const ModelCost cost = cost_of(model);
  double total = 0, done = 0;
  for (std::size_t prompt : options.prompts) total += cost.prompt_flops(prompt);
  total *= static_cast<double>(options.policies.size());
  const std::size_t prompts = options.prompts.size();
  std::vector<SpeedRow> rows(options.policies.size() * prompts);
  // Methods take turns, so that other load on the machine affects all of them.
  for (std::size_t l = 0; l < prompts; ++l) {
    const std::size_t prompt = options.prompts[l];
    for (std::size_t p = 0; p < options.policies.size(); ++p) {
      rows[p * prompts + l] =
          measure_once(model, options, options.policies[p], prompt, cost, machine);
      done += cost.prompt_flops(prompt);
      if (advance) advance(done / total);
    }
  }
  return rows;
}

}  // namespace ballast
