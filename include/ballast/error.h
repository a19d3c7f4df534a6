// The one exception that the library throws.
#pragma once

#include <stdexcept>

namespace ballast {

/// Everything that goes wrong for a reason the caller can act on: bad input, a damaged file, a
/// value out of range. what() is one line that names the thing, the value and what was expected.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ballast
