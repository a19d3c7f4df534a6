#include "model/row_ops.h"

#include <algorithm>
#include <cmath>

#include "simd/vector_math.h"

namespace ballast {
namespace {

float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118f)); }

}  // namespace

void normalise(NormKind kind, const Norm& norm, float epsilon, std::span<const float> x,
               std::span<float> out) {
  const std::size_t n = x.size();
  const float size = static_cast<float>(n);
  float mean = 0.0f;
  if (kind == NormKind::layer) {
    double sum = 0.0;
    for (float element : x) sum += element;
    mean = static_cast<float>(sum / size);
    for (std::size_t i = 0; i < n; ++i) out[i] = x[i] - mean;
    x = out;
  }
  const float scale = 1.0f / std::sqrt(kernels::dot(x, x) / size + epsilon);
  kernels::scale_and_weigh(x, scale, norm.weight, out);
  for (std::size_t i = 0; i < norm.bias.size(); ++i) out[i] += norm.bias[i];
}

void activate(Activation activation, std::span<float> gate, std::span<float> up) {
  const std::span<float> x = gate.empty() ? up : gate;
  switch (activation) {
    case Activation::relu:
      for (float& element : x) element = std::max(element, 0.0f);
      break;
    case Activation::gelu:
      for (float& element : x) element = gelu(element);
      break;
    case Activation::silu:
      kernels::silu_in_place(x);
      break;
    case Activation::gelu_tanh:
      kernels::gelu_tanh_in_place(x);
      break;
    case Activation::clamped_silu:
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const float g = std::min(gate[i], kSiluLimit);
        gate[i] = g / (1.0f + std::exp(-kSiluSlope * g));
        up[i] = std::clamp(up[i], -kSiluLimit, kSiluLimit) + 1.0f;
      }
      break;
  }
  if (!gate.empty()) kernels::multiply(gate, up);
}

void soft_cap(float cap, std::span<float> x) {
  for (float& element : x) element = cap * std::tanh(element / cap);
}

}  // namespace ballast
