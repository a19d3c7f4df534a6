// Every method of the library does what ballast/testing/conformance.h asks. A new method is tested
// here the moment it is registered.
#include "ballast/testing/conformance.h"

namespace ballast::test {
namespace {

std::vector<std::string> every_method() {
  std::vector<std::string> names;
  for (const MethodInfo* info : methods()) {
    names.emplace_back(info->name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EveryMethod, testing::ValuesIn(conformance_cases(every_method())),
                         conformance_name);

}  // namespace
}  // namespace ballast::test
