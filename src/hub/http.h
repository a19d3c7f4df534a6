// Requests to the hub, over libcurl: proxies are those of the environment, HF_TOKEN is sent to the
// hub alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/fail.h"

namespace ballast::hub {

/// No answer came: no name, no route, no server, or the connection broke.
class Unreachable : public Error {
 public:
  explicit Unreachable(const std::string& text) : Error(ErrorCode::io, text) {}
};

struct Answer {
  long status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case; of the last answer
  std::string body;

  std::string header(const std::string& name) const {
    const auto at = headers.find(name);
    return at == headers.end() ? "" : at->second;
  }
};

/// Follows redirects. Throws Unreachable; error codes of HTTP are for the caller.
Answer get(const std::string& url);
/// The headers alone, with no redirect followed.
Answer head(const std::string& url);

/// Takes a part of a body; `begin`: of the first part of one whose bytes start at 0, although a
/// later one was asked for.
using TakeBytes = std::function<void(std::span<const std::byte> bytes, bool begin)>;
/// Fetches the bytes from `from` on. Throws Unreachable where the body ends early; what came before
/// was taken. Error codes of HTTP are for the caller, and nothing is taken then.
Answer fetch(const std::string& url, std::uintmax_t from, const TakeBytes& take);

/// The certificates by which servers are known: the file that SSL_CERT_FILE names, else the one of
/// Debian, Fedora, openSUSE or Alpine. A libcurl that came from another system looks in its own
/// place. Empty if there is none.
std::string certificate_file();

/// One part of a path as URLs have it.
std::string escape(const std::string& text);

}  // namespace ballast::hub
