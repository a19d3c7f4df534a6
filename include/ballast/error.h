// The one exception that the library throws.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ballast {

/// What kind of thing went wrong, for a caller who acts on it.
enum class ErrorCode : std::uint8_t {
  invalid_argument,  ///< a value, shape or call that the caller can change
  bad_file,          ///< a file that is damaged, of another format or of another model
  io,                ///< a file that cannot be opened, read or written
  out_of_memory,     ///< more memory is needed than is available
  unsupported,       ///< valid input that this version cannot handle
  not_finite,        ///< a NaN or an infinity where a number is needed
  over_limit,        ///< more tokens than a model has positions; a template beyond its limits
};

/// The name as above.
std::string_view to_string(ErrorCode code);

/// Everything that goes wrong for a reason the caller can act on: bad input, a damaged file, a
/// value out of range. what() is one line that names the thing, the value and what was expected.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : Error(ErrorCode::invalid_argument, text) {}
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace ballast
