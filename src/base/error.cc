#include "ballast/error.h"

#include "base/fail.h"

namespace ballast {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::bad_file:
      return "bad_file";
    case ErrorCode::io:
      return "io";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::not_finite:
      return "not_finite";
    case ErrorCode::over_limit:
      return "over_limit";
  }
  return "";
}

void rethrow_from_file(const Error& error) {
  const bool from_file = error.code() == ErrorCode::invalid_argument;
  throw Error(from_file ? ErrorCode::bad_file : error.code(), error.what());
}

}  // namespace ballast
