#include "serve/session_calls.h"

#include <algorithm>

#include "ballast/error.h"
#include "ballast/memory_size.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/requests/documents.h"
#include "serve/requests/place.h"
#include "serve/texts/retention.h"

namespace ballast::serve {
namespace {

[[noreturn]] void no_session(const std::string& id) {
  throw ApiError(404, "session_not_found",
                 fmt::format("there is no session {}", serve::shown(Json(id))));
}

/// What one client may do with sessions. Each returns the answer, and throws ApiError.
class SessionCalls {
 public:
  SessionCalls(Sessions& sessions, Prefixes& prefixes, const RequestLimits& limits,
               std::string owner)
      : sessions_(sessions), prefixes_(prefixes), limits_(limits), owner_(std::move(owner)) {}

  /// name, cache, ttl ("5m", "1h", "24h"), pinned.
  Json create(const Json& body) const {
    Fields f(body);
    SessionInfo info;
    info.owner = owner_;
    info.name = parse_name(f);
    Job job;
    parse_cache(f.find("cache"), limits_, job);
    info.cache = job.cache;
    info.compacts = job.compacts;
    info.keep = parse_keep(f.text("ttl").value_or("1h"), "ttl");
    info.pinned = f.flag("pinned", false);
    f.end();
    return shown(sessions_.create(std::move(info)));
  }
  Json list() const {
    Json data = Json::array();
    for (const SessionInfo& info : sessions_.list(owner_)) data.push_back(shown(info));
    return {{"object", "list"}, {"data", std::move(data)}};
  }
  Json show(const std::string& id) const { return shown(needed(id)); }

  Json fork(const std::string& id) const {
    const auto info = sessions_.fork(id, owner_);
    if (!info) no_session(id);
    return shown(*info);
  }
  /// ttl: of its rows from now on; without one they are kept while the server runs.
  Json pin(const std::string& id, const Json& body) const {
    Fields f(body);
    std::optional<std::chrono::seconds> keep;
    if (const auto ttl = f.text("ttl")) keep = parse_keep(*ttl, "ttl");
    f.end();
    const auto info = sessions_.hold(id, owner_, !keep, keep);
    if (!info) no_session(id);
    prefixes_.hold(info->kind, info->tokens, info->retention());
    return shown(*info);
  }
  /// Its rows are packed now; where they cannot be, they are the next to go.
  Json release(const std::string& id) const {
    const auto info = sessions_.hold(id, owner_, false, {});
    if (!info) no_session(id);
    prefixes_.release(info->kind, info->tokens);
    return shown(*info);
  }
  /// bytes: of its rows from now on.
  Json compact(const std::string& id, const Json& body) const {
    Fields f(body);
    const Json* bytes = f.find("bytes");
    f.end();
    const SessionInfo info = needed(id);
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
      if (!prefixes_.compact(info.kind, info.tokens, most)) {
        throw ApiError(409, "nothing_cached",
                       "nothing is cached of this session: its next request reads its text");
      }
    } catch (const Error& error) {
      throw ApiError(
          error.code() == ErrorCode::out_of_memory ? 503 : 400,
          error.code() == ErrorCode::out_of_memory ? "insufficient_memory" : "invalid_value",
          error.what(), "bytes");
    }
    return shown(needed(id));
  }
  Json remove(const std::string& id) const {
    const auto info = sessions_.remove(id, owner_);
    if (!info) no_session(id);
    std::size_t others = 0;  // tokens of the text that a fork of it, or its origin, has, too
    for (const SessionInfo& other : sessions_.list(owner_)) {
      if (other.kind != info->kind) continue;
      const auto same = std::ranges::mismatch(other.tokens, info->tokens).in2;
      others = std::max(others, static_cast<std::size_t>(same - info->tokens.begin()));
    }
    prefixes_.remove(info->kind, info->tokens, others);
    return {{"id", id}, {"object", "session"}, {"deleted", true}};
  }

 private:
  SessionInfo needed(const std::string& id) const {
    auto info = sessions_.find(id, owner_);
    if (!info) no_session(id);
    return std::move(*info);
  }
  Json shown(const SessionInfo& info) const { return to_json(info, prefixes_); }

  Sessions& sessions_;
  Prefixes& prefixes_;
  const RequestLimits& limits_;
  std::string owner_;
};

}  // namespace

void add_session_calls(Routes& routes, const Service& s) {
  const auto add = [&](const char* method, const char* pattern, auto work) {
    routes.add(method, pattern, [&s, work](Call& call) {
      const SessionCalls calls(s.sessions, s.scheduler.prefixes(), s.limits, s.owner_of(call));
      const std::string id = call.parts.empty() ? "" : call.parts[0];
      const Json body = call.request.body.empty() ? Json::object() : call.take_object();
      call.reply(work(calls, id, body));
    });
  };
  using Calls = const SessionCalls&;
  using Id = const std::string&;
  add("POST", "/v1/sessions", [](Calls c, Id, const Json& body) { return c.create(body); });
  add("GET", "/v1/sessions", [](Calls c, Id, const Json&) { return c.list(); });
  add("GET", "/v1/sessions/*", [](Calls c, Id id, const Json&) { return c.show(id); });
  add("DELETE", "/v1/sessions/*", [](Calls c, Id id, const Json&) { return c.remove(id); });
  add("POST", "/v1/sessions/*/fork", [](Calls c, Id id, const Json&) { return c.fork(id); });
  add("POST", "/v1/sessions/*/pin",
      [](Calls c, Id id, const Json& body) { return c.pin(id, body); });
  add("POST", "/v1/sessions/*/release", [](Calls c, Id id, const Json&) { return c.release(id); });
  add("POST", "/v1/sessions/*/compact",
      [](Calls c, Id id, const Json& body) { return c.compact(id, body); });
}

}  // namespace ballast::serve
