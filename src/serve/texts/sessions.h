// Sessions: conversations that clients name, to say how long they are kept and to ask what they
// cost.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ballast/engine/model.h"
#include "report/json.h"
#include "serve/texts/prefixes.h"

namespace ballast::serve {

/// What a client has said of a session, and how far it has come. Its rows are those that Prefixes
/// has of its text.
struct SessionInfo {
  std::string id, name;
  std::string owner;  ///< see Owners; empty: anyone's
  CacheOptions cache;
  bool compacts = false;  ///< Job::compacts
  std::chrono::seconds keep{};
  bool pinned = false;
  std::int64_t created = 0;
  Prefixes::Clock::time_point used{};
  std::string kind = {};           ///< Prefix::kind; empty: nothing has been read
  std::vector<Token> tokens = {};  ///< read, answers included

  /// Of what it reads: pinned is for as long as the server runs.
  std::chrono::seconds retention() const;
};

/// All sessions. They end with the server; what they have read may outlive it in Prefixes. Safe to
/// use from many threads. A call sees the sessions of its owner.
class Sessions {
 public:
  /// Of one more, the one that was used longest ago and is not pinned is forgotten.
  static constexpr std::size_t kMost = 4096;

  /// Gives it an id. Throws ApiError where all sessions are pinned.
  SessionInfo create(SessionInfo info);
  /// Another session at the same place: the rows are shared until one of them goes on. None: there
  /// is no such session.
  std::optional<SessionInfo> fork(const std::string& id, const std::string& owner);
  std::vector<SessionInfo> list(const std::string& owner) const;
  std::optional<SessionInfo> find(const std::string& id, const std::string& owner) const;
  /// Changes how long it is kept. None: there is no such session.
  std::optional<SessionInfo> hold(const std::string& id, const std::string& owner, bool pinned,
                                  std::optional<std::chrono::seconds> keep);
  /// What the owner's sessions need of a cache.
  Prefixes::Needed needed(const Prefix& prefix, const std::string& owner) const;
  /// The one that was removed.
  std::optional<SessionInfo> remove(const std::string& id, const std::string& owner);
  /// An answer to one of its requests is over. False: it has been removed.
  bool went_on(const std::string& id, const std::string& kind, const std::vector<Token>& tokens);

 private:
  SessionInfo* find_locked(const std::string& id, const std::string& owner);
  SessionInfo add_locked(SessionInfo info);

  mutable std::mutex mutex_;
  std::map<std::string, SessionInfo> all_;
};

/// {"id", "name", "tokens", "cached_tokens", "bytes", "where", "age", …}; see docs/serve.md.
Json to_json(const SessionInfo& info, const Prefixes& prefixes);

}  // namespace ballast::serve
