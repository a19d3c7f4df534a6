// Elementary functions of float32 spans, chosen at run time for the processor.
#pragma once

#include <span>

#include "ballast/matrix.h"

namespace ballast::kernels {

/// x[i] = e^x[i] within 1.5 units in the last place; 0 below e^-87.34, +infinity above e^88.72.
void exp_in_place(std::span<float> x);

/// x[i] = x[i] / (1 + e^-x[i]).
void silu_in_place(std::span<float> x);

/// GELU in its tanh approximation: x[i] = x[i] · sigmoid(sqrt(8/π) · (x[i] + 0.044715 x[i]³)).
void gelu_tanh_in_place(std::span<float> x);

/// y[i] = x[i] · y[i], of spans of equal length.
void multiply(std::span<const float> x, std::span<float> y);

/// out[i] = (x[i] · scale) · weights[i], of spans of equal length; out may be x.
void scale_and_weigh(std::span<const float> x, float scale, std::span<const float> weights,
                     std::span<float> out);

/// The largest element; NaN if any is NaN, -infinity if the span is empty.
float largest(std::span<const float> x);

/// The sum of e^(x[i] - shift): float32 terms as exp_in_place makes them, summed in float64.
double sum_exp(std::span<const float> x, float shift);

/// <a, b> of spans of equal length.
float dot(std::span<const float> a, std::span<const float> b);

/// y += a · x, of spans of equal length.
void axpy(float a, std::span<const float> x, std::span<float> y);

/// out[i] = |row i|².
void squared_norms(ConstMatrix rows, std::span<float> out);

}  // namespace ballast::kernels
