#include "serve/prefixes.h"

#include <algorithm>

#include "ballast/error.h"

namespace ballast::serve {
namespace {

std::size_t common(const std::vector<Token>& a, const std::vector<Token>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::size_t Prefix::bytes() const {
  return cache.bytes().total() + tokens.size() * sizeof(Token) + logits.size() * sizeof(float);
}

std::optional<Prefixes::Found> Prefixes::find(const std::string& kind,
                                              const std::vector<Token>& prompt,
                                              std::size_t compressed) {
  auto best = kept_.end();
  std::size_t most = 0;
  for (auto p = kept_.begin(); p != kept_.end(); ++p) {
    if (p->kind != kind || p->compressed != compressed) continue;
    std::size_t length = common(p->tokens, prompt);
    if (length < compressed || length == 0) continue;
    if (length == prompt.size() && length > compressed) --length;
    if (length == prompt.size() && p->logits.empty()) continue;
    if (length > most) {
      most = length;
      best = p;
    }
  }
  if (best == kept_.end()) return std::nullopt;
  Lease lease;  // of the copy, until the request's own lease covers it
  if (!memory_.take(best->bytes(), lease)) return std::nullopt;
  try {
    Found found{best->cache.clone(), most, best->logits};
    found.cache.truncate(most);
    // A long text was copied for a short beginning.
    if (most < best->tokens.size() / 2) found.cache = found.cache.clone();
    kept_.splice(kept_.begin(), kept_, best);
    return found;
  } catch (const Error&) {
    return std::nullopt;  // tokens have left its window since
  }
}

void Prefixes::keep(Prefix prefix) {
  std::erase_if(kept_, [&](const Prefix& p) {
    return p.kind == prefix.kind && p.compressed == prefix.compressed &&
           common(p.tokens, prefix.tokens) == p.tokens.size();
  });
  if (prefix.cache.bytes().room > prefix.cache.bytes().total() / 4) {
    prefix.cache = prefix.cache.clone();
  }
  prefix.lease.shrink(0);
  while (!memory_.take(prefix.bytes(), prefix.lease) || kept_.size() >= kMost) {
    if (!evict()) break;
  }
  if (prefix.lease.bytes() > 0) kept_.push_front(std::move(prefix));
  count();
}

bool Prefixes::evict() {
  if (kept_.empty()) return false;
  kept_.pop_back();
  count();
  return true;
}

void Prefixes::count() const {
  std::size_t bytes = 0;
  for (const Prefix& p : kept_) bytes += p.lease.bytes();
  metrics_.prefixes = kept_.size();
  metrics_.prefix_bytes = bytes;
}

}  // namespace ballast::serve
