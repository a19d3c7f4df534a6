#include "serve/prefixes.h"

#include <algorithm>

#include "ballast/error.h"
#include "serve/contexts.h"
#include "serve/prefix_files.h"

namespace ballast::serve {
namespace {

std::size_t common(const std::vector<Token>& a, const std::vector<Token>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::size_t Prefix::bytes() const {
  return cache->bytes().total() + tokens.size() * sizeof(Token) + logits.size() * sizeof(float);
}

Prefixes::Prefixes(Memory& memory, Metrics& metrics, std::unique_ptr<PrefixFiles> files)
    : memory_(memory), metrics_(metrics), files_(std::move(files)) {}

Prefixes::~Prefixes() = default;

std::optional<Prefixes::Found> Prefixes::find(const std::string& kind,
                                              const std::vector<Token>& prompt,
                                              std::size_t compressed) {
  if (files_) {
    for (Prefix& prefix : files_->arrived()) {
      kept_.push_back(std::make_shared<const Prefix>(std::move(prefix)));
    }
  }
  auto best = kept_.end();
  std::size_t most = 0;
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    const Prefix& p = **at;
    if (p.kind != kind || p.compressed != compressed) continue;
    std::size_t length = common(p.tokens, prompt);
    if (length < compressed || length == 0) continue;
    if (p.whole) {
      if (length < p.tokens.size()) continue;
    } else {
      if (length == prompt.size() && length > compressed) --length;
      if (length == prompt.size() && compressed == 0) continue;  // its logits are not known
    }
    if (!p.cache && length < p.tokens.size() / kWorth) continue;
    // Of equal ones that in memory.
    if (length > most || (length == most && p.cache && best != kept_.end() && !(*best)->cache)) {
      most = length;
      best = at;
    }
  }
  if (best == kept_.end()) return std::nullopt;
  kept_.splice(kept_.begin(), kept_, best);
  if (!(*best)->cache) {
    std::shared_ptr<const Prefix> loaded = load(**best);
    if (!loaded) return std::nullopt;
    *best = std::move(loaded);
    count();
  }
  const Prefix& prefix = **best;
  Lease lease;  // of the copy, until the request's own lease covers it
  if (!take_beside_first(prefix.bytes(), lease)) return std::nullopt;
  try {
    Found found{prefix.cache->clone(), most, prefix.logits};
    if (!prefix.whole) {
      if (const RecurrentStates* states = found.cache.recurrent()) {
        found.tokens = most = states->reachable(most);
      }
      if (most == 0 || most < compressed) return std::nullopt;
      found.cache.truncate(most);
    }
    // A long text was copied for a short beginning.
    if (most < prefix.tokens.size() / 2) found.cache = found.cache.clone();
    if (files_) files_->used(prefix.id);
    return found;
  } catch (const Error&) {
    return std::nullopt;  // tokens have left its window since
  }
}

std::shared_ptr<const Prefix> Prefixes::load(const Prefix& prefix) {
  auto out = std::make_shared<Prefix>(Prefix{prefix.kind,
                                             prefix.tokens,
                                             prefix.compressed,
                                             prefix.whole,
                                             {},
                                             std::nullopt,
                                             Lease(),
                                             prefix.id});
  if (!take_beside_first(files_->size(prefix.id), out->lease)) return nullptr;
  if (!files_->load(*out)) {
    std::erase_if(kept_, [&](const auto& p) { return p.get() == &prefix; });
    return nullptr;
  }
  out->lease.shrink(out->bytes());
  return out;
}

void Prefixes::keep(Prefix prefix) {
  const auto covered = [&](const std::shared_ptr<const Prefix>& p) {
    return p->kind == prefix.kind && p->compressed == prefix.compressed &&
           common(p->tokens, prefix.tokens) == p->tokens.size();
  };
  // A stream is gone on from its end only, so the turn before stays: its next message may change.
  std::shared_ptr<const Prefix> before;
  for (const auto& p : kept_) {
    if (prefix.whole && covered(p) && p->tokens.size() < prefix.tokens.size() &&
        (!before || p->tokens.size() > before->tokens.size())) {
      before = p;
    }
  }
  std::vector<std::string> replaced;
  std::erase_if(kept_, [&](const std::shared_ptr<const Prefix>& p) {
    if (p == before || !covered(p)) return false;
    replaced.push_back(p->id);
    return true;
  });
  if (prefix.cache->bytes().room > prefix.cache->bytes().total() / 4) {
    prefix.cache = prefix.cache->clone();
  }
  prefix.lease.shrink(0);
  while (!memory_.take(prefix.bytes(), prefix.lease)) {
    if (!evict()) break;
  }
  if (prefix.lease.bytes() > 0) {
    prefix.id = new_id("pre_");
    kept_.push_front(std::make_shared<const Prefix>(std::move(prefix)));
    if (files_) files_->write(kept_.front(), std::move(replaced));
  }
  while (kept_.size() > kMost) {
    if (files_) files_->remove(kept_.back()->id);
    kept_.pop_back();
  }
  count();
}

bool Prefixes::take_beside_first(std::size_t bytes, Lease& lease) {
  while (!memory_.take(bytes, lease)) {
    if (!evict(1)) return false;
  }
  return true;
}

bool Prefixes::evict(std::size_t but_first) {
  const auto end =
      std::prev(kept_.rend(), static_cast<std::ptrdiff_t>(std::min(but_first, kept_.size())));
  const auto last = std::find_if(kept_.rbegin(), end,
                                 [](const auto& prefix) { return prefix->cache.has_value(); });
  if (last == end) return false;
  const auto at = std::prev(last.base());
  if (files_ && files_->let_go((*at)->id)) {
    const Prefix& p = **at;
    *at = std::make_shared<const Prefix>(
        Prefix{p.kind, p.tokens, p.compressed, p.whole, {}, std::nullopt, Lease(), p.id});
  } else {
    kept_.erase(at);
  }
  count();
  return true;
}

void Prefixes::count() const {
  std::size_t number = 0, bytes = 0;
  for (const auto& p : kept_) {
    number += p->cache ? 1 : 0;
    bytes += p->lease.bytes();
  }
  metrics_.prefixes = number;
  metrics_.prefix_bytes = bytes;
}

}  // namespace ballast::serve
