#include "serve/texts/prefixes.h"

#include <algorithm>

#include "ballast/engine/context_file.h"
#include "ballast/engine/packing.h"
#include "ballast/error.h"
#include "ballast/scoring.h"
#include "base/fail.h"
#include "serve/texts/contexts.h"
#include "serve/texts/prefix_files.h"

namespace ballast::serve {
namespace {

std::size_t common(const std::vector<Token>& a, const std::vector<Token>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// The same without its cache.
std::shared_ptr<Prefix> without_cache(const Prefix& p) {
  return std::make_shared<Prefix>(
      Prefix{p.kind, p.tokens, p.compressed, p.whole, {}, std::nullopt, Lease(), p.id});
}

}  // namespace

std::size_t Prefix::bytes() const {
  return (cache ? cache->bytes().total() : 0) + packed.size() + tokens.size() * sizeof(Token) +
         logits.size() * sizeof(float);
}

bool PrefixPacker::can(const Prefix& prefix) const {
  return prefix.cache && packs(preset_, prefix.cache->options());
}

std::shared_ptr<Prefix> PrefixPacker::packed(const Prefix& prefix, std::string_view note) const {
  if (!can(prefix)) return nullptr;
  auto out = without_cache(prefix);
  out->logits = prefix.logits;
  out->unpacked_bytes = prefix.bytes();
  try {
    out->packed = pack_context(model_, *prefix.cache, preset_, note);
  } catch (const Error&) {  // the basis has gone
    return nullptr;
  }
  return out;
}

Cache PrefixPacker::unpack(std::span<const std::byte> packed) const {
  const auto codec = find_pack_codec(model_);
  require(codec != nullptr, "the model's basis has gone");
  return ballast::unpack(packed, "a packed beginning", *codec);
}

Prefixes::Prefixes(Memory& memory, Metrics& metrics, std::unique_ptr<PrefixFiles> files,
                   std::optional<PrefixPacker> packer, std::chrono::seconds rest)
    : memory_(memory), metrics_(metrics), files_(std::move(files)), packer_(packer), rest_(rest) {
  if (packer_) thread_ = std::thread([this] { pack_resting(); });
}

Prefixes::~Prefixes() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Prefixes::use(List::iterator at) {
  kept_.splice(kept_.begin(), kept_, at);
  at->used = Clock::now();
  // GreedyDual-Size (Cao and Irani 1997): what is dropped raises the age that others start from. A
  // token costs about the same wherever it stands; what was compressed takes fewer bytes.
  const Prefix& p = *at->prefix;
  const auto cost = static_cast<double>(p.tokens.size());
  at->worth = age_ + cost / static_cast<double>(std::max<std::size_t>(1, p.bytes()));
}

std::optional<Prefixes::Found> Prefixes::find(const std::string& kind,
                                              const std::vector<Token>& prompt,
                                              std::size_t compressed) {
  const std::scoped_lock lock(mutex_);
  if (files_) {
    for (Prefix& prefix : files_->arrived()) {
      kept_.push_back({std::make_shared<const Prefix>(std::move(prefix))});
    }
  }
  auto best = kept_.end();
  std::size_t most = 0;
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    const Prefix& p = *at->prefix;
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
    if (length > most ||
        (length == most && p.cache && best != kept_.end() && !best->prefix->cache)) {
      most = length;
      best = at;
    }
  }
  if (best == kept_.end()) return std::nullopt;
  use(best);
  if (!best->prefix->cache && !load(best)) return std::nullopt;
  const Prefix& prefix = *best->prefix;
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

bool Prefixes::load(List::iterator at) {
  const std::shared_ptr<const Prefix> resting = at->prefix;
  std::shared_ptr<Prefix> out = without_cache(*resting);
  const bool packed = !resting->packed.empty();
  const std::size_t bytes = packed ? resting->unpacked_bytes : files_->size(resting->id);
  if (!take_beside_first(bytes, out->lease)) return false;
  try {
    if (packed) {
      out->cache = packer_->unpack(resting->packed);
      out->logits = resting->logits;
    }
  } catch (const Error&) {  // as if its file were gone
    kept_.erase(at);
    return false;
  }
  if (!packed && !files_->load(*out)) {
    kept_.erase(at);
    return false;
  }
  out->lease.shrink(out->bytes());
  at->prefix = std::move(out);
  use(at);
  count();
  return true;
}

void Prefixes::keep(Prefix prefix, std::chrono::seconds keep) {
  const std::scoped_lock lock(mutex_);
  const auto covered = [&](const Kept& one) {
    const Prefix& p = *one.prefix;
    return p.kind == prefix.kind && p.compressed == prefix.compressed &&
           common(p.tokens, prefix.tokens) == p.tokens.size();
  };
  // A stream is gone on from its end only, so the turn before stays: its next message may change.
  const Kept* before = nullptr;
  for (const Kept& one : kept_) {
    if (prefix.whole && covered(one) && one.prefix->tokens.size() < prefix.tokens.size() &&
        (before == nullptr || one.prefix->tokens.size() > before->prefix->tokens.size())) {
      before = &one;
    }
  }
  std::vector<std::string> replaced;
  std::erase_if(kept_, [&](const Kept& one) {
    if (&one == before || !covered(one)) return false;
    replaced.push_back(one.prefix->id);
    keep = std::max(keep, one.keep);
    return true;
  });
  if (prefix.cache->bytes().room > prefix.cache->bytes().total() / 4) {
    prefix.cache = prefix.cache->clone();
  }
  prefix.lease.shrink(0);
  while (!memory_.take(prefix.bytes(), prefix.lease)) {
    if (!evict_one(0)) break;
  }
  if (prefix.lease.bytes() > 0) {
    prefix.id = new_id("pre_");
    kept_.push_front({std::make_shared<const Prefix>(std::move(prefix)), 0, keep});
    use(kept_.begin());
    if (files_) files_->write(kept_.front().prefix, std::move(replaced));
  }
  while (kept_.size() > kMost) {
    if (files_) files_->remove(kept_.back().prefix->id);
    kept_.pop_back();
  }
  count();
}

bool Prefixes::take_beside_first(std::size_t bytes, Lease& lease) {
  while (!memory_.take(bytes, lease)) {
    if (!evict_one(1)) return false;
  }
  return true;
}

bool Prefixes::evict(std::size_t but_first) {
  const std::scoped_lock lock(mutex_);
  return evict_one(but_first);
}

template <typename Fits>
Prefixes::List::iterator Prefixes::least(std::size_t but_first, const Fits& fits) {
  const Clock::time_point now = Clock::now();
  const auto key = [&](const Kept& one) { return std::pair(one.held(now), one.worth); };
  auto out = kept_.end();
  std::size_t place = 0;
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    if (place++ < but_first || !fits(*at)) continue;
    // Of equal ones that used longest ago, which is further back.
    if (out == kept_.end() || key(*at) <= key(*out)) out = at;
  }
  return out;
}

bool Prefixes::evict_one(std::size_t but_first) {
  const auto at = least(but_first, [](const Kept& one) { return one.prefix->in_memory(); });
  if (at == kept_.end()) return false;
  age_ = std::max(age_, at->worth);
  if (pack(at)) return true;
  if (files_ && files_->let_go(at->prefix->id)) {
    at->prefix = without_cache(*at->prefix);
  } else {
    kept_.erase(at);
  }
  count();
  return true;
}

bool Prefixes::can_pack(const Kept& one) const {
  return packer_ && !one.stays && packer_->can(*one.prefix) &&
         !(files_ && files_->is_written(one.prefix->id));
}

bool Prefixes::pack(List::iterator at) {
  if (!can_pack(*at)) return false;
  std::shared_ptr<Prefix> packed =
      packer_->packed(*at->prefix, files_ ? files_->note_of(*at->prefix) : "");
  at->stays = !packed;
  if (packed) replace(at, std::move(packed));
  return !at->stays;
}

void Prefixes::replace(List::iterator at, std::shared_ptr<Prefix> packed) {
  if (files_) files_->replace(at->prefix->id, packed);
  at->prefix.reset();  // with it goes its lease
  if (memory_.take(packed->bytes(), packed->lease)) {
    const auto tokens = static_cast<double>(packed->tokens.size());
    at->worth = age_ + tokens / static_cast<double>(packed->bytes());
    at->prefix = std::move(packed);
  } else {
    kept_.erase(at);
  }
  count();
}

void Prefixes::pack_resting() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(500), [&] { return stopping_; })) {
    if (memory_.left() > memory_.total() / 4) continue;
    const auto rests = [&](const Kept& one) {
      return one.used + rest_ <= Clock::now() && can_pack(one);
    };
    const auto next = least(0, rests);
    if (next == kept_.end()) continue;
    std::shared_ptr<const Prefix> prefix = next->prefix;
    lock.unlock();
    std::shared_ptr<Prefix> packed =
        packer_->packed(*prefix, files_ ? files_->note_of(*prefix) : "");
    lock.lock();
    const auto at = std::ranges::find(kept_, prefix, &Kept::prefix);
    prefix.reset();
    if (at == kept_.end() || !rests(*at)) continue;
    at->stays = !packed;
    if (packed) replace(at, std::move(packed));
  }
}

Prefixes::List::const_iterator Prefixes::longest(const std::string& kind,
                                                 const std::vector<Token>& text,
                                                 std::size_t& tokens) const {
  auto best = kept_.end();
  tokens = 0;
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    if (at->prefix->kind != kind) continue;
    const std::size_t length = common(at->prefix->tokens, text);
    if (at->prefix->whole && length < at->prefix->tokens.size()) continue;
    if (length <= tokens) continue;
    tokens = length;
    best = at;
  }
  return best;
}

Prefixes::Held Prefixes::held(const std::string& kind, const std::vector<Token>& text) const {
  const std::scoped_lock lock(mutex_);
  std::size_t tokens = 0;
  const auto at = longest(kind, text, tokens);
  if (at == kept_.end()) return {};
  const Prefix& p = *at->prefix;
  return {tokens, p.in_memory() ? p.bytes() : 0,
          p.cache         ? "memory"
          : p.in_memory() ? "packed"
                          : "disk"};
}

void Prefixes::release(const std::string& kind, const std::vector<Token>& text) {
  const std::scoped_lock lock(mutex_);
  std::size_t tokens = 0;
  const auto found = longest(kind, text, tokens);
  if (found == kept_.end()) return;
  const auto at = kept_.erase(found, found);  // the same place, to be changed
  at->keep = {};
  at->worth = age_;
  if (at->prefix->cache) pack(at);
}

void Prefixes::hold(const std::string& kind, const std::vector<Token>& text,
                    std::chrono::seconds keep) {
  const std::scoped_lock lock(mutex_);
  std::size_t tokens = 0;
  const auto found = longest(kind, text, tokens);
  if (found != kept_.end()) kept_.erase(found, found)->keep = keep;
}

bool Prefixes::compact(const std::string& kind, const std::vector<Token>& text, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  std::size_t tokens = 0;
  const auto found = longest(kind, text, tokens);
  if (found == kept_.end()) return false;
  const auto at = kept_.erase(found, found);
  use(at);
  if (!at->prefix->cache && !load(at)) return false;
  const Prefix& p = *at->prefix;
  require(p.whole, "a cache of {} tokens goes on from any of them, and is packed instead: release",
          p.tokens.size());
  auto small = without_cache(p);
  require(take_beside_first(p.bytes(), small->lease), ErrorCode::out_of_memory,
          "no memory for a copy of {} bytes now; try again later", p.bytes());
  small->cache = p.cache->clone();
  scoring_of(*small->cache).compact(bytes);
  small->logits = p.logits;
  small->lease.shrink(small->bytes());
  small->id = new_id("pre_");
  const std::string old = p.id;
  at->prefix = std::move(small);
  if (files_) files_->write(at->prefix, {old});
  count();
  return true;
}

void Prefixes::remove(const std::string& kind, const std::vector<Token>& text) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(kept_, [&](const Kept& one) {
    const Prefix& p = *one.prefix;
    if (p.kind != kind || common(p.tokens, text) < p.tokens.size()) return false;
    if (files_) files_->remove(p.id);
    return true;
  });
  count();
}

void Prefixes::count() const {
  std::size_t live = 0, packed = 0, bytes = 0;
  for (const Kept& one : kept_) {
    live += one.prefix->cache ? 1 : 0;
    packed += one.prefix->packed.empty() ? 0 : 1;
    bytes += one.prefix->lease.bytes();
  }
  metrics_.prefixes = live;
  metrics_.prefixes_packed = packed;
  metrics_.prefix_bytes = bytes;
}

}  // namespace ballast::serve
