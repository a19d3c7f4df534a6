// Random inputs and the float64 reference of attention. They are installed, because the
// conformance tests of methods need them.
#pragma once

#include "ballast/error.h"
#include "ballast/testing/support.h"

namespace ballast::test {

/// The code of the Error that `action` throws; fails the test when it throws none.
template <typename Action>
ErrorCode code_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace ballast::test
