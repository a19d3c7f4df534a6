// What the two BalanceKV methods have in common: their parameters, and reading them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ballast/method.h"
#include "ballast/summary.h"
#include "methods/merge_and_reduce.h"
#include "methods/softmax_balance.h"

namespace ballast {

/// block, gamma, tau, beta, offset, mode, delta, weights.
std::vector<Parameter> balance_parameters();

/// The policy's values. Summaries of one head that draw separately have different `stream`s.
BalanceOptions balance_options(const SummarySetup& setup, std::uint32_t stream = 0);

/// Theory mode with a known length runs Algorithm 4 as printed, with the largest batch t for which
/// t·(T + 1) ≤ capacity, T = ⌈log2(tokens/t)⌉; otherwise levels are reduced when the store is full.
/// balancekv-stream takes t, T and r for this itself.
MergeAndReduce::Schedule balance_schedule(const SummarySetup& setup, std::size_t capacity);

/// Whether summaries made with these setups unite.
bool same_setup(const SummarySetup& a, const SummarySetup& b);

/// "FAIL in 2 of 31 blocks", or nothing.
std::string balance_report(std::span<const SoftmaxBalance* const> rules);

}  // namespace ballast
