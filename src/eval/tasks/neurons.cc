#include "eval/tasks/neurons.h"

#include <algorithm>
#include <cmath>

#include "ballast/engine/sampler.h"
#include "base/fail.h"
#include "model/forward.h"

namespace ballast {
namespace {

constexpr std::size_t kChunk = 256;

/// Reads the tokens in chunks; after each one `logits(first, count)` may ask for its logits.
template <typename Chunk>
void read(Forward& forward, std::span<const Token> tokens, const Chunk& after) {
  CacheOptions options;
  options.key_type = options.value_type = StorageType::bf16;
  options.expected_tokens = tokens.size();
  Sequence sequence(forward.model(), options);
  for (std::size_t done = 0; done < tokens.size(); done += kChunk) {
    const std::size_t count = std::min(kChunk, tokens.size() - done);
    const Run run{&sequence, tokens.subspan(done, count), {}};
    forward.run({&run, 1});
    after(done, count);
  }
}

}  // namespace

std::vector<std::vector<bool>> NeuronUse::above(double least) const {
  std::vector<std::vector<bool>> out;
  for (const std::vector<double>& layer : frequency) {
    out.emplace_back();
    for (double f : layer) out.back().push_back(f > least);
  }
  return out;
}

bool is_active(Activation activation, float neuron, float largest) {
  if (activation == Activation::relu) return neuron != 0;
  return neuron != 0 && std::abs(neuron) >= 0.1f * largest;
}

void count_active(Activation activation, ConstMatrix neurons, std::span<std::size_t> counts) {
  for (std::size_t t = 0; t < neurons.rows; ++t) {
    float largest = 0;
    for (float x : neurons[t]) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < neurons.cols; ++i) {
      counts[i] += is_active(activation, neurons[t][i], largest) ? 1 : 0;
    }
  }
}

NeuronUse count_neurons(const Model& model, std::span<const Token> tokens) {
  const ModelConfig& config = model.config();
  tokens = tokens.first(std::min(tokens.size(), config.max_positions));
  require(!tokens.empty(), "a text without tokens activates no neuron");
  std::vector<std::vector<std::size_t>> counts(config.layers,
                                               std::vector<std::size_t>(config.ffn_width));
  Forward forward(model);
  forward.on_neurons = [&](std::size_t layer, MutableMatrix neurons) {
    count_active(config.activation, neurons, counts[layer]);
  };
  read(forward, tokens, [](std::size_t, std::size_t) {});
  NeuronUse out;
  for (const std::vector<std::size_t>& layer : counts) {
    out.frequency.emplace_back();
    for (std::size_t count : layer) {
      out.frequency.back().push_back(static_cast<double>(count) /
                                     static_cast<double>(tokens.size()));
    }
  }
  return out;
}

RunningMean loss_without(const Model& model, std::span<const Token> tokens,
                         const std::vector<std::vector<bool>>& removed) {
  const ModelConfig& config = model.config();
  tokens = tokens.first(std::min(tokens.size(), config.max_positions));
  require(tokens.size() >= 2, "a text of {} tokens; at least 2 are needed", tokens.size());
  Forward forward(model);
  if (!removed.empty()) {
    forward.on_neurons = [&](std::size_t layer, MutableMatrix neurons) {
      for (std::size_t t = 0; t < neurons.rows; ++t) {
        for (std::size_t i = 0; i < neurons.cols; ++i) {
          if (removed[layer][i]) neurons[t][i] = 0;
        }
      }
    };
  }
  RunningMean losses;
  Matrix logits(Engine::kLogitRows, config.vocabulary);
  read(forward, tokens, [&](std::size_t done, std::size_t count) {
    for (std::size_t i = 0; i < count; i += Engine::kLogitRows) {
      const MutableMatrix rows = logits.view().slice(0, std::min(Engine::kLogitRows, count - i));
      forward.logits(i, rows);
      for (std::size_t r = 0; r < rows.rows && done + i + r + 1 < tokens.size(); ++r) {
        losses.add(token_loss(rows[r], tokens[done + i + r + 1]));
      }
    }
  });
  return losses;
}

double overlap(const std::vector<std::vector<bool>>& a, const std::vector<std::vector<bool>>& b) {
  std::size_t both = 0, either = 0;
  for (std::size_t l = 0; l < a.size(); ++l) {
    for (std::size_t i = 0; i < a[l].size(); ++i) {
      both += a[l][i] && b[l][i] ? 1 : 0;
      either += a[l][i] || b[l][i] ? 1 : 0;
    }
  }
  return either == 0 ? 1 : static_cast<double>(both) / static_cast<double>(either);
}

}  // namespace ballast
