// The method string, and the shares of a budget that it asks for.
#include <cstddef>
#include <cstdint>
#include <string>

#include "ballast/error.h"
#include "ballast/method.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ballast::Policy policy = ballast::Policy::parse(text);
    if (ballast::Policy::parse(policy.to_string()).to_string() != policy.to_string()) {
      __builtin_trap();
    }
    for (auto protocol : {ballast::Protocol::prefill, ballast::Protocol::stream}) {
      try {
        for (std::size_t tokens : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
          const ballast::Budget budget = policy.budget(tokens, protocol, 1, 4);
          const bool exact = policy.info().window_policy == ballast::WindowPolicy::all;
          if (exact && budget.total() != tokens) __builtin_trap();
        }
      } catch (const ballast::Error&) {
      }
    }
  } catch (const ballast::Error&) {
  }
  return 0;
}
