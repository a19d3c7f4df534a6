#include "serve/http/doorman.h"

#include <arpa/inet.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>

#include "formats/utf8_text.h"
#include "serve/http/fields.h"

namespace ballast::serve {
namespace {

/// Whether the texts are equal, in a time that depends on their lengths alone.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned char differs = a.size() != b.size();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return differs == 0;
}

/// The name of a Host header, in lower case, without port and brackets.
std::string host_of(std::string name) {
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (name.starts_with('[')) return name.substr(1, name.find(']') - 1);
  if (std::ranges::count(name, ':') == 1) name.erase(name.find(':'));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

bool is_address(const std::string& host) {
  in6_addr address;
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

/// Whether a text begins with `word`, which is in small letters, whatever the case of the text.
bool begins(std::string_view text, std::string_view word) {
  return std::ranges::equal(text.substr(0, word.size()), word, {}, [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
}

/// Blanks around a value of a header are none of it (RFC 9110, 5.5).
std::string without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") + 1 - begin));
}

/// Media types are compared without regard to case (RFC 9110, 8.3.1).
bool is_multipart(std::string_view type) { return begins(type, "multipart/"); }

/// Whether a header may be sent back: names of headers, one behind the other.
bool is_list_of_names(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_., ").find(c) != std::string_view::npos;
  });
}

}  // namespace

/// Names of schemes are compared without regard to case (RFC 9110, 11.1).
std::string Doorman::key_of(const Request& request) {
  const std::string header = without_blanks(request.header("Authorization"));
  constexpr std::string_view kScheme = "bearer ";
  if (!begins(header, kScheme)) return without_blanks(request.header("X-Api-Key"));
  return without_blanks(std::string_view(header).substr(kScheme.size()));
}

bool Doorman::names_origin(std::string_view origin) const {
  return std::ranges::count(origins_, "*") > 0 || std::ranges::count(origins_, origin) > 0;
}

bool Doorman::knows_host(const Request& request) const {
  if (!keys_.empty() || request.find("Host") == nullptr) return true;
  const std::string host = host_of(request.header("Host"));
  if (is_address(host) || host == "localhost" || host.ends_with(".localhost")) return true;
  if (host == host_of(host_)) return true;
  char own[256] = "";
  if (::gethostname(own, sizeof own - 1) == 0) {
    const std::string name = host_of(own);
    if (host == name || host == name + ".local") return true;
  }
  return std::ranges::any_of(origins_, [&](const std::string& origin) {
    return origin == "*" ||
           host_of(origin.substr(std::min(origin.size(), origin.find("//") + 2))) == host;
  });
}

std::optional<ApiError> Doorman::refusal(const Request& request) const {
  const std::string* encoding = request.find("Content-Encoding");
  if (encoding != nullptr &&
      ::strcasecmp(encoding->c_str(), "identity") != 0) {  // a few bytes could become gigabytes
    return ApiError(415, "unsupported_encoding", "send the body without a Content-Encoding");
  }
  if (is_multipart(request.header("Content-Type"))) {
    return ApiError(415, "unsupported_type", "send the body as application/json, not in parts");
  }
  if (!knows_host(request)) {
    return ApiError(403, "host_not_allowed",
                    fmt::format("this server does not have the name {}; use its address or "
                                "localhost, or start it with --api-key, or with --cors-origin "
                                "http://HOST",
                                shown(Json(to_utf8(request.header("Host"))))));
  }
  // A browser says which page calls; other clients send no origin.
  const std::string origin = request.header("Origin"), host = request.header("Host");
  const bool own = origin.empty() || origin == "http://" + host || origin == "https://" + host;
  if (!own && !names_origin(origin)) {
    return ApiError(403, "origin_not_allowed",
                    fmt::format("pages of {} may not call this server; start it with --cors-origin",
                                to_utf8(origin)));
  }
  const bool open = request.path == "/" || request.path == "/health" || request.method == "OPTIONS";
  if (open || keys_.empty()) return std::nullopt;
  const std::string key = key_of(request);
  bool known = false;
  for (const std::string& one : keys_) known |= same_secret(one, key);
  if (known) return std::nullopt;
  return ApiError(401, "invalid_api_key",
                  key.empty() ? "an API key is needed: Authorization: Bearer KEY"
                              : "the API key is not one of this server");
}

void Doorman::allow_origin(const Request& request, Response& response) const {
  const std::string origin = request.header("Origin");
  if (origin.empty() || !names_origin(origin)) return;
  response.set_header("Access-Control-Allow-Origin", names_origin("*") ? "*" : origin);
  response.set_header("Vary", "Origin, Access-Control-Request-Headers");
  response.set_header("Access-Control-Expose-Headers", "Retry-After");
  if (request.method != "OPTIONS") return;
  response.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  response.set_header("Access-Control-Max-Age", "600");
  // Each client library has headers of its own; none of them changes what a page may do.
  const std::string headers = request.header("Access-Control-Request-Headers");
  response.set_header(
      "Access-Control-Allow-Headers",
      is_list_of_names(headers) ? headers : "Authorization, Content-Type, X-Api-Key");
}

}  // namespace ballast::serve
