// Elementary functions of float32 spans, chosen at run time for the processor.
#pragma once

#include <span>

#include "ballast/matrix.h"

namespace ballast::kernels {

/// x[i] = e^x[i] within 1.5 units in the last place; 0 below e^-87.34, +infinity above e^88.72.
void exp_in_place(std::span<float> x);

/// <a, b> of spans of equal length.
float dot(std::span<const float> a, std::span<const float> b);

/// y += a · x, of spans of equal length.
void axpy(float a, std::span<const float> x, std::span<float> y);

/// out[i] = |row i|².
void squared_norms(ConstMatrix rows, std::span<float> out);

}  // namespace ballast::kernels
