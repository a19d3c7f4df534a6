// The calls of /v1/sessions.
#pragma once

#include <string>

#include "report/json.h"
#include "serve/requests.h"
#include "serve/texts/sessions.h"

namespace ballast::serve {

/// What one client may do with sessions. Each returns the answer, and throws ApiError.
class SessionCalls {
 public:
  SessionCalls(Sessions& sessions, Prefixes& prefixes, const RequestLimits& limits,
               std::string owner)
      : sessions_(sessions), prefixes_(prefixes), limits_(limits), owner_(std::move(owner)) {}

  /// name, cache, ttl ("5m", "1h", "24h"), pinned.
  Json create(const Json& body) const;
  Json list() const;
  Json show(const std::string& id) const;
  Json fork(const std::string& id) const;
  /// ttl: of its rows from now on; without one they are kept while the server runs.
  Json pin(const std::string& id, const Json& body) const;
  /// Its rows are packed now; where they cannot be, they are the next to go.
  Json release(const std::string& id) const;
  /// bytes: of its rows from now on.
  Json compact(const std::string& id, const Json& body) const;
  Json remove(const std::string& id) const;

 private:
  SessionInfo needed(const std::string& id) const;
  Json shown(const SessionInfo& info) const { return to_json(info, prefixes_); }

  Sessions& sessions_;
  Prefixes& prefixes_;
  const RequestLimits& limits_;
  std::string owner_;
};

}  // namespace ballast::serve
