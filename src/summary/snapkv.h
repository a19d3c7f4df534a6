// What SnapKV and PyramidKV have in common: everything but the layers' budgets.
#pragma once

#include <memory>
#include <vector>

#include "ballast/method.h"
#include "ballast/summary.h"

namespace ballast {

std::unique_ptr<Summary> make_snapkv(const SummarySetup& setup);
std::vector<Parameter> snapkv_parameters();

}  // namespace ballast
