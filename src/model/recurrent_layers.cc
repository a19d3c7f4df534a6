#include "model/recurrent_layers.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "model/delta_rule.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// The inputs of a convolution: the last rows before a run, from the state, then those of the run.
struct ConvInputs {
  const Matrix& rows;
  std::size_t begin;     ///< of the run
  std::size_t channels;  ///< the first ones of a row
  std::size_t before;    ///< rows in the state
  const float* state;

  /// `back` tokens before token t of the run, 0 for t itself.
  const float* at(std::size_t t, std::size_t back) const {
    return t >= back ? rows[begin + t - back].data() : state + (before + t - back) * channels;
  }
  /// Adds up to the taps' sum of token t, an element a channel.
  void convolve(std::size_t t, const float* weights, float* out) const {
    for (std::size_t tap = 0; tap <= before; ++tap) {
      const float* const x = at(t, before - tap);
      const float* const weight = weights + tap * channels;
      for (std::size_t c = 0; c < channels; ++c) out[c] += weight[c] * x[c];
    }
  }
  /// The last rows of a run of `count` tokens, for the next one.
  void keep(std::size_t count, float* kept) const {
    for (std::size_t i = 0; i < before; ++i) {
      std::copy_n(at(count, before - i), channels, kept + i * channels);
    }
  }
};

}  // namespace

void RecurrentLayers::run(std::size_t layer, std::size_t state, std::span<const Run> runs,
                          std::size_t first, Activations& x) {
  const auto kind = config_.kind(layer) == LayerKind::short_conv ? &RecurrentLayers::short_conv
                                                                 : &RecurrentLayers::delta_rule;
  (this->*kind)(layer, state, runs, first, x);
}

void RecurrentLayers::short_conv(std::size_t layer, std::size_t state, std::span<const Run> runs,
                                 std::size_t first, Activations& x) {
  const LayerWeights& w = model_.weights().layers[layer];
  const std::size_t width = config_.width, before = config_.conv_width - 1;
  multiply(x.rows(x.normed), w.conv_in, x.rows(x.conv));
  // Three parts: a gate before, in whose place the convolution's input comes; one behind; the
  // input, in whose place the output comes.
  x.for_rows(0, width, [&](std::size_t i) {
    const std::span<float> row = x.conv[i];
    for (std::size_t c = 0; c < width; ++c) row[c] *= row[2 * width + c];
  });
  std::size_t begin = 0;
  for (const Run& run : runs) {
    const std::span<float> kept = run.states->state(state);
    found_.assign(kept.begin(), kept.end());
    const std::size_t count = run.tokens.size();
    const ConvInputs inputs{x.conv, begin, width, before, found_.data()};
    parallel_for(
        count,
        [&](std::size_t t) {
          const std::span<float> row = x.conv[begin + t];
          float* const out = row.data() + 2 * width;
          if (w.conv_bias.empty()) {
            std::fill_n(out, width, 0.0f);
          } else {
            std::ranges::copy(w.conv_bias, out);
          }
          inputs.convolve(t, w.conv.data(), out);
          for (std::size_t c = 0; c < width; ++c) out[c] *= row[width + c];
        },
        count * width >= Activations::kParallelWork);
    if (run.keeps_states) {
      inputs.keep(count, kept.data());
      run.states->advance(state, count);
    }
    begin += count;
  }
  x.first = first;
  const MutableMatrix all = x.rows(x.conv);
  multiply(ConstMatrix(all.data + 2 * width, all.rows, width, all.stride), w.conv_out,
           x.rows(x.block));
}

void RecurrentLayers::delta_rule(std::size_t layer, std::size_t state, std::span<const Run> runs,
                                 std::size_t first, Activations& x) {
  const LayerWeights& w = model_.weights().layers[layer];
  const std::size_t channels = config_.conv_channels(layer), before = config_.conv_width - 1;
  const DeltaRule rule(config_, w);
  const Product products[] = {{&w.conv_in, x.rows(x.conv)},
                              {&w.delta_gate, x.rows(x.delta_gate)},
                              {&w.delta_beta, x.rows(x.delta_beta)},
                              {&w.delta_decay, x.rows(x.delta_decay)}};
  multiply(x.rows(x.normed), products);
  std::size_t begin = 0;
  for (const Run& run : runs) {
    const std::span<float> kept = run.states->state(state);
    found_.assign(kept.begin(), kept.end());
    const std::size_t count = run.tokens.size();
    const ConvInputs inputs{x.conv, begin, channels, before, found_.data()};
    mixed_.resize(count * channels);
    parallel_for(
        count,
        [&](std::size_t t) {
          const std::span<float> row = std::span(mixed_).subspan(t * channels, channels);
          std::ranges::fill(row, 0.0f);
          inputs.convolve(t, w.conv.data(), row.data());
          kernels::silu_in_place(row);
          rule.normalise_heads(row);
        },
        count * channels >= Activations::kParallelWork);
    if (run.keeps_states) inputs.keep(count, kept.data());
    const std::span<float> heads =
        (run.keeps_states ? kept : std::span(found_)).subspan(before * channels);
    const auto part = [&](Matrix& m) { return m.view().slice(begin, count); };
    parallel_for(config_.delta_value_heads, [&](std::size_t h) {
      rule.run(h, {mixed_.data(), count, channels}, part(x.delta_beta), part(x.delta_decay), heads,
               part(x.delta_gate));
    });
    if (run.keeps_states) run.states->advance(state, count);
    begin += count;
  }
  x.first = first;
  multiply(x.rows(x.delta_gate), w.conv_out, x.rows(x.block));
}

}  // namespace ballast
