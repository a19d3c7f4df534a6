// The method string, and the shares of a budget that it asks for.
#include "ballast/method.h"

#include <string>

#include "ballast/error.h"
#include "target.h"

namespace {

void parse_method(std::string_view text) {
  try {
    const ballast::Policy policy = ballast::Policy::parse(text);
    BALLAST_FUZZ_CHECK(ballast::Policy::parse(policy.to_string()).to_string() ==
                       policy.to_string());
    for (auto protocol : {ballast::Protocol::prefill, ballast::Protocol::stream}) {
      try {
        for (std::size_t tokens : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
          const ballast::Budget budget = policy.budget(tokens, protocol, 1, 4);
          const bool exact = policy.info().window_policy == ballast::WindowPolicy::all;
          BALLAST_FUZZ_CHECK(!exact || budget.total() == tokens);
        }
      } catch (const ballast::Error&) {
      }
    }
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(method, parse_method)
