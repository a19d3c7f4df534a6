#include "serve/texts/sessions.h"

#include <algorithm>
#include <ctime>

#include "serve/http/api_error.h"
#include "serve/texts/contexts.h"

namespace ballast::serve {

std::chrono::seconds SessionInfo::retention() const {
  return pinned ? std::chrono::hours(24 * 365 * 10) : keep;
}

SessionInfo* Sessions::find_locked(const std::string& id, const std::string& owner) {
  const auto at = all_.find(id);
  return at == all_.end() || at->second.owner != owner ? nullptr : &at->second;
}

SessionInfo Sessions::add_locked(SessionInfo info) {
  if (all_.size() >= kMost) {
    const auto oldest = std::ranges::min_element(
        all_, {}, [](const auto& one) { return std::pair(one.second.pinned, one.second.used); });
    if (oldest->second.pinned) {
      throw ApiError(507, "insufficient_storage",
                     fmt::format("{} sessions are pinned; release some", all_.size()));
    }
    all_.erase(oldest);
  }
  info.id = new_id("ses_");
  info.created = std::time(nullptr);
  info.used = Prefixes::Clock::now();
  return all_[info.id] = std::move(info);
}

SessionInfo Sessions::create(SessionInfo info) {
  const std::scoped_lock lock(mutex_);
  return add_locked(std::move(info));
}

std::optional<SessionInfo> Sessions::fork(const std::string& id, const std::string& owner) {
  const std::scoped_lock lock(mutex_);
  const SessionInfo* from = find_locked(id, owner);
  if (from == nullptr) return std::nullopt;
  SessionInfo copy = *from;
  copy.pinned = false;
  return add_locked(std::move(copy));
}

std::vector<SessionInfo> Sessions::list(const std::string& owner) const {
  const std::scoped_lock lock(mutex_);
  std::vector<SessionInfo> out;
  for (const auto& [id, info] : all_) {
    if (info.owner == owner) out.push_back(info);
  }
  return out;
}

std::optional<SessionInfo> Sessions::find(const std::string& id, const std::string& owner) const {
  const std::scoped_lock lock(mutex_);
  const auto at = all_.find(id);
  if (at == all_.end() || at->second.owner != owner) return std::nullopt;
  return at->second;
}

std::optional<SessionInfo> Sessions::hold(const std::string& id, const std::string& owner,
                                          bool pinned, std::optional<std::chrono::seconds> keep) {
  const std::scoped_lock lock(mutex_);
  SessionInfo* info = find_locked(id, owner);
  if (info == nullptr) return std::nullopt;
  info->pinned = pinned;
  info->keep = keep.value_or(info->keep);
  return *info;
}

std::optional<SessionInfo> Sessions::remove(const std::string& id, const std::string& owner) {
  const std::scoped_lock lock(mutex_);
  SessionInfo* info = find_locked(id, owner);
  if (info == nullptr) return std::nullopt;
  std::optional<SessionInfo> out = std::move(*info);
  all_.erase(id);
  return out;
}

Prefixes::Needed Sessions::needed(const Prefix& prefix, const std::string& owner) const {
  const std::scoped_lock lock(mutex_);
  Prefixes::Needed out;
  for (const auto& [id, info] : all_) {
    if (info.owner != owner || info.kind != prefix.kind) continue;
    const auto same = std::ranges::mismatch(info.tokens, prefix.tokens).in1 - info.tokens.begin();
    if (static_cast<std::size_t>(same) > out.tokens) out = {static_cast<std::size_t>(same), id};
  }
  return out;
}

bool Sessions::went_on(const std::string& id, const std::string& kind,
                       const std::vector<Token>& tokens) {
  const std::scoped_lock lock(mutex_);
  const auto at = all_.find(id);
  if (at == all_.end()) return false;
  at->second.kind = kind;
  at->second.tokens = tokens;
  at->second.used = Prefixes::Clock::now();
  return true;
}

Json to_json(const SessionInfo& info, const Prefixes& prefixes) {
  const Prefixes::Held held = prefixes.held(info.kind, info.tokens);
  const std::chrono::duration<double> age = Prefixes::Clock::now() - info.used;
  Json out = {{"id", info.id},
              {"object", "session"},
              {"name", info.name},
              {"created", info.created},
              {"age", static_cast<std::int64_t>(age.count())},
              {"cache", describe_cache(info.cache)},
              {"ttl", info.keep.count()},
              {"pinned", info.pinned},
              {"tokens", info.tokens.size()},
              {"cached_tokens", held.tokens},
              {"bytes", held.bytes},
              {"shared_bytes", held.shared},
              {"where", held.where}};
  return out;
}

}  // namespace ballast::serve
