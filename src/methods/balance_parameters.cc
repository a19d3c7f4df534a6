#include "methods/balance_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ballast {

std::vector<Parameter> balance_parameters() {
  using Kind = Parameter::Kind;
  return {
      {"block", Kind::integer, "256", 2, 65536, "",
       "tokens that are balanced together; theory: all"},
      {"gamma", Kind::real, "4", 0, 1e9, "", "how strictly a sign follows the balance"},
      {"tau", Kind::real, "1", 0, 1e3, "", "times the logit in the kernel's exponent"},
      {"beta", Kind::real, "0", -1e3, 1e3, "", "subtracted from the kernel's exponent"},
      {"offset", Kind::real, "0.025", 0, 1e9, "",
       "added to the product of two values: the share of the normaliser"},
      {"mode", Kind::choice, "practical", 0, 0, "practical|theory",
       "the authors' program, or the paper's algorithm with its constants"},
      {"delta", Kind::real, "0", 0, 1, "", "theory: probability of failure; 0: 1/tokens"},
      {"weights", Kind::choice, "consistent", 0, 0, "consistent|authors",
       "one weight in both sums, or the authors' 2^T in the normaliser"},
  };
}

BalanceOptions balance_options(const SummarySetup& setup, std::uint32_t stream) {
  const Policy& policy = setup.policy;
  BalanceOptions options;
  options.mode = policy.choice("mode") == "theory" ? BalanceOptions::Mode::theory
                                                   : BalanceOptions::Mode::practical;
  options.weights = policy.choice("weights") == "authors" ? BalanceOptions::Weights::authors
                                                          : BalanceOptions::Weights::consistent;
  options.block = static_cast<std::size_t>(policy.integer("block"));
  options.gamma = policy.real("gamma");
  options.tau = policy.real("tau");
  options.beta = policy.real("beta");
  options.offset = policy.real("offset");
  options.delta = policy.real("delta");
  if (options.delta <= 0) {
    options.delta = 1.0 / static_cast<double>(std::max<std::size_t>(100, setup.tokens));
  }
  if (options.mode == BalanceOptions::Mode::theory) {
    options.block =
        std::numeric_limits<std::size_t>::max();  // Algorithm 2 walks over all it is given
  }
  options.scale = setup.logits.scale;
  options.random = setup.random;
  options.stream = stream;
  return options;
}

MergeAndReduce::Schedule balance_schedule(const SummarySetup& setup, std::size_t capacity) {
  const bool theory = setup.policy.choice("mode") == "theory";
  if (!theory || setup.protocol != Protocol::stream || setup.tokens == 0) return {};
  MergeAndReduce::Schedule best;
  // Fewer levels leave room for larger batches: the first T that covers the stream.
  for (std::size_t levels = 1; levels < 32; ++levels) {
    const std::size_t batch = capacity / (levels + 1);
    if (batch < 2) break;
    if ((batch << levels) >= setup.tokens) return {batch, levels};
  }
  return best;
}

bool same_setup(const SummarySetup& a, const SummarySetup& b) {
  return a.policy.to_string() == b.policy.to_string() && a.protocol == b.protocol &&
         a.capacity == b.capacity && a.key_dim == b.key_dim && a.value_dim == b.value_dim &&
         a.key_type == b.key_type && a.value_type == b.value_type;
}

std::string balance_report(std::span<const SoftmaxBalance* const> rules) {
  std::uint64_t blocks = 0, failures = 0;
  for (const SoftmaxBalance* rule : rules) {
    blocks += rule->blocks();
    failures += rule->failures();
  }
  if (failures == 0) return {};
  return fmt::format("FAIL in {} of {} blocks (theory: |a| > c·R²)", failures, blocks);
}

}  // namespace ballast
