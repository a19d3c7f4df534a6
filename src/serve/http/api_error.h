// Errors in the shape that OpenAI's clients know.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "ballast/error.h"
#include "report/json.h"

namespace ballast::serve {

/// A request that is refused, or an answer that failed.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string code, const std::string& message, std::string param = "")
      : std::runtime_error(message),
        status_(status),
        code_(std::move(code)),
        param_(std::move(param)) {}

  int status() const { return status_; }
  const std::string& code() const { return code_; }

  Json to_json() const {
    const char* type = status_ >= 500   ? "server_error"
                       : status_ == 429 ? "requests"
                                        : "invalid_request_error";
    return {{"error",
             {{"message", what()},
              {"type", type},
              {"param", param_.empty() ? Json() : Json(param_)},
              {"code", code_.empty() ? Json() : Json(code_)}}}};
  }

 private:
  int status_;
  std::string code_;
  std::string param_;
};

/// A value that the client can change; `param` names it.
template <typename... Args>
[[noreturn]] void refuse(const std::string& param, fmt::format_string<Args...> message,
                         Args&&... args) {
  throw ApiError(400, "invalid_value", fmt::format(message, std::forward<Args>(args)...), param);
}

/// Runs what throws Error about the field `param`.
template <typename Action>
auto naming(const std::string& param, Action&& action) {
  try {
    return action();
  } catch (const Error& error) {
    const bool limit = error.code() == ErrorCode::over_limit;
    throw ApiError(400, limit ? "context_length_exceeded" : "invalid_value",
                   fmt::format("{}: {}", param, error.what()), param);
  }
}

}  // namespace ballast::serve
