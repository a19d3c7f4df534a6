// The error of a prompt that has no room for what is asked of it.
#pragma once

#include <cstddef>
#include <string>

#include "ballast/error.h"

namespace ballast {

class TooShort : public Error {
 public:
  TooShort(const std::string& text, std::size_t least) : Error(text), least_(least) {}
  /// The fewest tokens that would do; 0: not known.
  std::size_t least() const { return least_; }

 private:
  std::size_t least_;
};

}  // namespace ballast
