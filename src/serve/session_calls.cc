#include "serve/session_calls.h"

#include "ballast/error.h"
#include "ballast/memory_size.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/requests/documents.h"
#include "serve/requests/place.h"

namespace ballast::serve {
namespace {

/// What one client wants of a session. Each function returns the answer, and throws ApiError.
struct SessionCall {
  const Service& service;
  std::string owner, id;
  Json body;
  Sessions& sessions = service.sessions;
  Prefixes& prefixes = service.scheduler.prefixes();

  /// name, cache, ttl ("5m", "1h", "24h"), pinned.
  Json create() const {
    Fields f(body);
    SessionInfo info;
    info.owner = owner;
    info.name = parse_name(f);
    Job job;
    parse_cache(f.find("cache"), service.limits, job);
    info.cache = job.cache;
    info.compacts = job.compacts;
    info.keep = parse_ttl(f, "1h");
    info.pinned = f.flag("pinned", false);
    f.end();
    return shown(sessions.create(std::move(info)));
  }
  Json list() const {
    Json data = Json::array();
    for (const SessionInfo& info : sessions.list(owner)) data.push_back(shown(info));
    return {{"object", "list"}, {"data", std::move(data)}};
  }
  Json show() const { return shown(found(sessions.find(id, owner))); }
  Json fork() const { return shown(found(sessions.fork(id, owner))); }
  /// ttl: of its rows from now on; without one they are kept while the server runs.
  Json pin() const {
    Fields f(body);
    std::optional<std::chrono::seconds> keep;
    if (f.find("ttl") != nullptr) keep = parse_ttl(f, "");
    f.end();
    const SessionInfo info = found(sessions.hold(id, owner, !keep, keep));
    prefixes.hold(info.kind, info.tokens, info.retention());
    return shown(info);
  }
  /// Its rows are packed now; where they cannot be, they are the next to go.
  Json release() const {
    const SessionInfo info = found(sessions.hold(id, owner, false, {}));
    prefixes.release(info.kind, info.tokens);
    return shown(info);
  }
  /// bytes: of its rows from now on.
  Json compact() const {
    Fields f(body);
    const Json* bytes = f.find("bytes");
    f.end();
    const SessionInfo info = found(sessions.find(id, owner));
    std::size_t most = 0;
    if (bytes != nullptr && bytes->is_number_unsigned()) most = bytes->get<std::size_t>();
    try {
      if (bytes != nullptr && bytes->is_string()) {
        const MemorySize size = MemorySize::parse(bytes->get<std::string>());
        if (!size.needs_length()) most = size.bytes(0, 0);
      }
      if (most == 0) {
        refuse("bytes", "bytes: give a size, such as \"64M\" or 67108864, not {}",
               bytes == nullptr ? "nothing" : serve::shown(*bytes));
      }
      if (!prefixes.compact(info.kind, info.tokens, most)) {
        throw ApiError(409, "nothing_cached",
                       "nothing is cached of this session: its next request reads its text");
      }
    } catch (const Error& error) {
      const bool memory = error.code() == ErrorCode::out_of_memory;
      throw ApiError(memory ? 503 : 400, memory ? "insufficient_memory" : "invalid_value",
                     error.what(), "bytes");
    }
    return show();
  }
  Json remove() const {
    const SessionInfo info = found(sessions.remove(id, owner));
    prefixes.remove(info.kind, info.tokens, id,
                    [&](const Prefix& prefix) { return sessions.needed(prefix, owner); });
    return {{"id", id}, {"object", "session"}, {"deleted", true}};
  }

  SessionInfo found(std::optional<SessionInfo> info) const {
    if (info) return std::move(*info);
    throw ApiError(404, "session_not_found",
                   fmt::format("there is no session {}", serve::shown(Json(id))));
  }
  Json shown(const SessionInfo& info) const { return to_json(info, prefixes); }
};

}  // namespace

void add_session_calls(Routes& routes, const Service& s) {
  const auto add = [&](const char* method, const char* pattern, Json (SessionCall::*work)() const) {
    routes.add(method, pattern, [&s, work](Call& call) {
      const SessionCall one{s, s.owner_of(call), call.parts.empty() ? "" : call.parts[0],
                            call.request.body.empty() ? Json::object() : call.take_object()};
      call.reply((one.*work)());
    });
  };
  add("POST", "/v1/sessions", &SessionCall::create);
  add("GET", "/v1/sessions", &SessionCall::list);
  add("GET", "/v1/sessions/*", &SessionCall::show);
  add("DELETE", "/v1/sessions/*", &SessionCall::remove);
  add("POST", "/v1/sessions/*/fork", &SessionCall::fork);
  add("POST", "/v1/sessions/*/pin", &SessionCall::pin);
  add("POST", "/v1/sessions/*/release", &SessionCall::release);
  add("POST", "/v1/sessions/*/compact", &SessionCall::compact);
}

}  // namespace ballast::serve
