// SnapKV and PyramidKV differ in the layers' budgets only.
#pragma once

#include <memory>
#include <vector>

#include "ballast/method.h"
#include "ballast/summary.h"

namespace ballast {

std::unique_ptr<Summary> make_snapkv(const SummarySetup& setup);
std::vector<Parameter> snapkv_parameters();

}  // namespace ballast
