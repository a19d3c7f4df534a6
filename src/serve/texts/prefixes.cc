#include "serve/texts/prefixes.h"

#include <algorithm>
#include <set>

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
  auto out = std::make_shared<Prefix>(
      Prefix{p.kind, p.tokens, p.compressed, p.whole, {}, std::nullopt, Lease(), p.id});
  out->gauge = p.gauge;
  return out;
}

}  // namespace

std::size_t Prefix::bytes() const {
  return (cache ? cache->bytes().total() : 0) + packed.size() + tokens.size() * sizeof(Token) +
         logits.size() * sizeof(float);
}

bool PrefixPacker::can(const Prefix& prefix) const {
  return prefix.cache && packs(preset_, prefix.cache->options());
}

std::shared_ptr<Prefix> PrefixPacker::packed(const Prefix& prefix, std::string_view note,
                                             std::shared_ptr<const Prefix> base,
                                             std::size_t base_tokens) const {
  if (!can(prefix)) return nullptr;
  auto out = without_cache(prefix);
  out->logits = prefix.logits;
  out->unpacked_bytes = prefix.cache->bytes().total();
  try {
    out->packed = base == nullptr ? pack_context(model_, *prefix.cache, preset_, note)
                                  : pack(*prefix.cache, *codec(), preset_, {}, base_tokens);
  } catch (const Error&) {  // the basis has gone
    return nullptr;
  }
  out->base = std::move(base);
  out->base_tokens = base_tokens;
  return out;
}

std::shared_ptr<const PackCodec> PrefixPacker::codec() const {
  auto codec = find_pack_codec(model_);
  require(codec != nullptr, "the model's basis has gone");
  return codec;
}

Cache PrefixPacker::unpack(const Prefix& packed, std::optional<Cache> begun) const {
  constexpr const char* kName = "a packed beginning";
  if (packed.base == nullptr) return ballast::unpack(packed.packed, kName, *codec());
  if (!begun) begun = unpack(*packed.base);
  begun->truncate(packed.base_tokens);
  unpack_behind(*begun, packed.packed, kName, *codec());
  return std::move(*begun);
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
                                              std::size_t compressed, bool loads) {
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
  if (best == kept_.end() || (!loads && !best->prefix->cache)) return std::nullopt;
  use(best);
  if (!best->prefix->cache && !load(best)) return std::nullopt;
  const Prefix& prefix = *best->prefix;
  try {
    Found found{prefix.cache->clone(), most, prefix.logits, {}, prefix.gauge};
    if (!prefix.whole) {
      if (const RecurrentStates* states = found.cache.recurrent()) {
        found.tokens = most = states->reachable(most);
      }
      if (most == 0 || most < compressed) return std::nullopt;
      found.cache.truncate(most);
    }
    found.rows = ledger_.join(found.cache);
    found.paid = found.rows.bytes() - std::min(found.rows.bytes(), found.cache.bytes().room);
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
  const std::size_t bytes =
      packed ? resting->unpacked_bytes + resting->bytes() : files_->size(resting->id);
  if (!take_beside_first(bytes, out->lease)) return false;
  try {
    if (packed) {
      out->cache = packer_->unpack(*resting, live_beginning(*resting));
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
  {
    const RowLedger::Hold known = ledger_.join(*out->cache);
    out->lease.shrink(out->bytes() - known.bytes());
    out->rows = ledger_.hold(*out->cache, out->lease);
  }
  at->prefix = std::move(out);
  use(at);
  count();
  return true;
}

void Prefixes::keep(Prefix prefix, std::chrono::seconds keep, std::string session) {
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
  if (prefix.cache->bytes().room > prefix.cache->bytes().total() / 4) drop_room(*prefix.cache);
  if (pay(prefix)) {
    prefix.id = new_id("pre_");
    kept_.push_front(
        {std::make_shared<const Prefix>(std::move(prefix)), 0, keep, {}, std::move(session)});
    use(kept_.begin());
    if (files_) files_->write(kept_.front().prefix, std::move(replaced));
  }
  while (kept_.size() > kMost) {
    if (files_) files_->remove(kept_.back().prefix->id);
    kept_.pop_back();
  }
  count();
}

bool Prefixes::pay(Prefix& prefix) {
  prefix.lease.shrink(0);
  prefix.rows = ledger_.join(*prefix.cache);  // these stay paid for, whoever is evicted
  while (!memory_.take(prefix.bytes() - prefix.rows.bytes(), prefix.lease)) {
    if (!evict_one(0)) return false;
  }
  prefix.rows = ledger_.hold(*prefix.cache, prefix.lease);
  return true;
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
  auto [base, tokens] = packed_beginning(*at->prefix);
  std::shared_ptr<Prefix> packed = packer_->packed(
      *at->prefix, files_ ? files_->note_of(*at->prefix) : "", std::move(base), tokens);
  at->stays = !packed;
  if (packed) replace(at, std::move(packed));
  return !at->stays;
}

std::pair<std::shared_ptr<const Prefix>, std::size_t> Prefixes::packed_beginning(
    const Prefix& prefix) const {
  std::shared_ptr<const Prefix> base;
  std::size_t most = 0;
  // A file has all of its text, and states of recurrent layers cannot go back.
  if (files_ || !prefix.cache || prefix.cache->recurrent()) return {base, most};
  for (const Kept& one : kept_) {
    if (one.prefix->packed.empty() || one.prefix->kind != prefix.kind) continue;
    const std::size_t tokens =
        common(one.prefix->tokens, prefix.tokens) / PackedRows::kBlock * PackedRows::kBlock;
    if (tokens < kLeastShared || tokens <= most) continue;
    most = tokens;
    base = one.prefix;
    while (base->base && base->base_tokens >= tokens) base = base->base;
  }
  return {base, most};
}

std::optional<Cache> Prefixes::live_beginning(const Prefix& packed) const {
  for (const Kept& one : kept_) {
    const Prefix& p = *one.prefix;
    if (p.cache && p.kind == packed.kind && packed.base &&
        common(p.tokens, packed.tokens) >= packed.base_tokens) {
      return p.cache->clone();
    }
  }
  return std::nullopt;
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
    auto [base, tokens] = packed_beginning(*prefix);
    lock.unlock();
    std::shared_ptr<Prefix> packed =
        packer_->packed(*prefix, files_ ? files_->note_of(*prefix) : "", std::move(base), tokens);
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
  const std::size_t shared = p.base ? p.base->bytes() : p.rows.shared_bytes();
  return {tokens, p.in_memory() ? p.bytes() + (p.base ? shared : 0) : 0, shared,
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
  const std::size_t unscored = scoring_of(*small->cache).chunk_tokens();
  require(unscored == 0 || !small->cache->options().policy.needs().reads_again(),
          "its last {} tokens have no scores yet, which a model without a calibration has once it "
          "has read them again; ballast calibrate makes one",
          unscored);
  scoring_of(*small->cache).compact(bytes);
  small->logits = p.logits;
  small->lease.shrink(small->bytes());
  small->rows = ledger_.hold(*small->cache, small->lease);
  small->id = new_id("pre_");
  const std::string old = p.id;
  at->prefix = std::move(small);
  if (files_) files_->write(at->prefix, {old});
  count();
  return true;
}

void Prefixes::remove(const std::string& kind, const std::vector<Token>& text,
                      const std::string& session,
                      const std::function<Needed(const Prefix&)>& needed) {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> ids;  // cutting one may evict others
  for (const Kept& one : kept_) {
    const Prefix& p = *one.prefix;
    const bool of_text = p.kind == kind && common(p.tokens, text) == p.tokens.size();
    if (of_text || (!session.empty() && one.session == session)) ids.push_back(p.id);
  }
  for (const std::string& id : ids) {
    const auto at = std::ranges::find(kept_, id, [](const Kept& one) { return one.prefix->id; });
    if (at == kept_.end()) continue;
    Needed rest = needed ? needed(*at->prefix) : Needed();
    at->session = std::move(rest.session);
    if (rest.tokens < at->prefix->tokens.size()) cut(at, rest.tokens);
  }
  count();
}

void Prefixes::cut(List::iterator at, std::size_t tokens) {
  const std::shared_ptr<const Prefix> whole = at->prefix;
  const bool there = std::ranges::any_of(kept_, [&](const Kept& one) {
    const Prefix& p = *one.prefix;
    return &p != whole.get() && p.kind == whole->kind && p.compressed == whole->compressed &&
           !p.whole && common(p.tokens, whole->tokens) >= tokens;
  });
  const auto drop = [&] {
    if (files_) files_->remove(whole->id);
    kept_.erase(at);
  };
  if (there || whole->whole || tokens == 0 || tokens < whole->compressed) return drop();
  use(at);
  if (!at->prefix->cache && !load(at)) return;  // which has dropped it, or there is no memory
  auto rest = without_cache(*at->prefix);
  rest->logits = at->prefix->logits;
  try {
    rest->cache = at->prefix->cache->clone();
    if (const RecurrentStates* states = rest->cache->recurrent()) {
      tokens = states->reachable(tokens);
    }
    if (tokens == 0 || tokens < whole->compressed) return drop();
    rest->cache->truncate(tokens);
  } catch (const Error&) {
    return drop();
  }
  rest->tokens.resize(tokens);
  rest->rows = ledger_.join(*rest->cache);
  if (!take_beside_first(rest->bytes() - rest->rows.bytes(), rest->lease)) return drop();
  rest->rows = ledger_.hold(*rest->cache, rest->lease);
  rest->id = new_id("pre_");
  at->prefix = std::move(rest);
  if (files_) files_->write(at->prefix, {whole->id});
}

void Prefixes::count() const {
  std::size_t live = 0, packed = 0, bytes = ledger_.bytes();
  std::set<const Prefix*> all;
  for (const Kept& one : kept_) {
    live += one.prefix->cache ? 1 : 0;
    packed += one.prefix->packed.empty() ? 0 : 1;
    for (const Prefix* p = one.prefix.get(); p != nullptr; p = p->base.get()) all.insert(p);
  }
  for (const Prefix* p : all) bytes += p->lease.bytes();
  metrics_.prefixes = live;
  metrics_.prefixes_packed = packed;
  metrics_.prefix_bytes = bytes;
}

}  // namespace ballast::serve
