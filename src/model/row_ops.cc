#include "model/row_ops.h"

#include <algorithm>
#include <cmath>

#include "kernels/vector_math.h"

namespace ballast {
namespace {

/// x = x / (1 + e^{-a}), the exponents -a given in `scratch`, which is overwritten.
void multiply_by_sigmoid(std::span<float> scratch, std::span<float> x) {
  kernels::exp_in_place(scratch);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] /= 1.0f + scratch[i];
}

/// sqrt(8/pi) · (x + 0.044715 x³): the tanh approximation of GELU is x · sigmoid of this.
float gelu_argument(float x) { return 1.5957691216f * (x + 0.044715f * x * x * x); }

float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118f)); }

}  // namespace

void normalise(NormKind kind, const Norm& norm, float epsilon, std::span<const float> x,
               std::span<float> out) {
  const std::size_t n = x.size();
  const float size = static_cast<float>(n);
  float mean = 0.0f;
  if (kind == NormKind::layer) {
    double sum = 0.0;
    for (float number : x) sum += number;
    mean = static_cast<float>(sum / size);
    for (std::size_t i = 0; i < n; ++i) out[i] = x[i] - mean;
    x = out;
  }
  const float scale = 1.0f / std::sqrt(kernels::dot(x, x) / size + epsilon);
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * scale * norm.weight[i];
  for (std::size_t i = 0; i < norm.bias.size(); ++i) out[i] += norm.bias[i];
}

void activate(Activation activation, std::span<float> gate, std::span<float> up) {
  // With a gate, x is the gate's output and its other factor stays in `up`.
  const std::size_t n = up.size();
  switch (activation) {
    case Activation::relu:
    case Activation::gelu:
      for (std::size_t i = 0; i < n; ++i) {
        const float x = gate.empty() ? up[i] : gate[i];
        const float y = activation == Activation::relu ? std::max(x, 0.0f) : gelu(x);
        up[i] = gate.empty() ? y : y * up[i];
      }
      return;
    case Activation::silu:
    case Activation::gelu_tanh: {
      thread_local std::vector<float> exponents;
      exponents.resize(n);
      for (std::size_t i = 0; i < n; ++i) {
        const float x = gate.empty() ? up[i] : gate[i];
        exponents[i] = -(activation == Activation::silu ? x : gelu_argument(x));
        if (!gate.empty()) up[i] *= x;
      }
      return multiply_by_sigmoid(exponents, up);
    }
  }
}

void soft_cap(float cap, std::span<float> x) {
  for (float& number : x) number = cap * std::tanh(number / cap);
}

}  // namespace ballast
