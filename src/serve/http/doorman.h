// Who may ask.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/api_error.h"
#include "serve/http/http.h"

namespace ballast::serve {

/// Keys, names of this machine, and pages of browsers. Safe to use from many threads.
class Doorman {
 public:
  /// `host`: that the server has. `keys`: any of these is needed; empty: none. `origins`: of pages
  /// that may call; "*": any.
  Doorman(std::string host, std::vector<std::string> keys, std::vector<std::string> origins)
      : host_(std::move(host)), keys_(std::move(keys)), origins_(std::move(origins)) {}

  /// Why a request is refused, whatever its body is.
  std::optional<ApiError> refusal(const Request& request) const;
  /// What a browser asks before its page may call, and read the answer.
  void allow_origin(const Request& request, Response& response) const;
  /// The key that a request brings, known or not; empty: none.
  static std::string key_of(const Request& request);
  /// Who takes turns with others: a key, or an address where there are no keys.
  std::string client_of(const Request& request) const {
    return keys_.empty() ? request.client : key_of(request);
  }

 private:
  /// Whether a request may name this host. A page whose name was made to mean this machine names
  /// itself; numbers mean what they say, and with a key the page would need it.
  bool knows_host(const Request& request) const;
  bool names_origin(std::string_view origin) const;

  std::string host_;
  std::vector<std::string> keys_, origins_;
};

}  // namespace ballast::serve
