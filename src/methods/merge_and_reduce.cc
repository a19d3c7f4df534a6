#include "methods/merge_and_reduce.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>

#include "ballast/serialize.h"
#include "base/fail.h"

namespace ballast {
namespace {

// Levels and groups that files may name: an entry cannot stand for 2^100 tokens.
constexpr std::int16_t kMostLevels = 100;
constexpr std::int16_t kMostGroup = 200;  // ‖v‖ of float32 lies between 2^-149 and 2^140

// Begins what a strict schedule saves. Files from before groups had counts of their own lack it.
constexpr std::uint64_t kStrictMark = 0x31746369727473ff;

}  // namespace

MergeAndReduce::MergeAndReduce(EntryStore store, Schedule schedule)
    : store_(std::move(store)), schedule_(schedule) {
  const std::size_t capacity = store_.capacity();
  tags_.resize(capacity);
  log_normalisers_.resize(capacity);
  dropped_.resize(capacity);
  slots_.reserve(capacity);
  work_.reserve(capacity);
  runs_.reserve(64);
  if (strict()) counts_.reserve(64);
}

std::size_t MergeAndReduce::bytes() const {
  return store_.bytes() + tags_.capacity() * sizeof(Tag) +
         log_normalisers_.capacity() * sizeof(float) + dropped_.capacity() +
         slots_.capacity() * sizeof(std::uint32_t) + runs_.capacity() * sizeof(Run) +
         counts_.capacity() * sizeof(GroupTokens) + work_.bytes();
}

std::size_t MergeAndReduce::level_size(int level, int group) const {
  const Tag tag{static_cast<std::int16_t>(group), static_cast<std::int16_t>(level)};
  const auto end = tags_.begin() + static_cast<std::ptrdiff_t>(store_.size());
  return static_cast<std::size_t>(std::count(tags_.begin(), end, tag));
}

void MergeAndReduce::set_tag(std::size_t slot, Tag tag, float log_normaliser) {
  tags_[slot] = tag;
  log_normalisers_[slot] = log_normaliser;
}

void MergeAndReduce::erase(std::size_t slot) {
  const std::size_t last = store_.size() - 1;
  set_tag(slot, tags_[last], log_normalisers_[last]);
  store_.erase(slot);
}

void MergeAndReduce::push(const Block& block, std::size_t i, HalvingRule& rule, int group) {
  ++tokens_;
  if (store_.capacity() == 0) return;
  float log_weight = 0.0f;
  if (store_.full() && strict()) ++overflows_;
  if (store_.full()) make_room(rule);
  if (store_.full()) {
    // Every run is a single entry: the least of them goes and the newcomer stands for it too.
    const auto least = std::min_element(tags_.begin(), tags_.end(), [](Tag a, Tag b) {
      return a.group + a.level < b.group + b.level;
    });
    const auto slot = static_cast<std::size_t>(least - tags_.begin());
    log_weight = std::log1p(std::exp(store_.log_weight(slot)));
    erase(slot);
  }
  const std::size_t slot = store_.size();
  store_.push(block, i, log_weight);
  set_tag(slot, {static_cast<std::int16_t>(group), 0}, log_weight);
  if (!strict()) return;
  const std::uint64_t seen = ++tokens_of(static_cast<std::int16_t>(group));
  if (seen % schedule_.batch == 0) {
    cascade(static_cast<std::int16_t>(group), seen / schedule_.batch, rule);
  }
}

std::uint64_t& MergeAndReduce::tokens_of(std::int16_t group) {
  for (GroupTokens& count : counts_) {
    if (count.group == group) return count.tokens;
  }
  return counts_.emplace_back(GroupTokens{group, 0}).tokens;
}

void MergeAndReduce::place(const Block& block, std::size_t i, float log_weight,
                           float log_normaliser, int level) {
  const std::size_t slot = store_.size();
  store_.push(block, i, log_weight);
  set_tag(slot, {0, static_cast<std::int16_t>(level)}, log_normaliser);
}

void MergeAndReduce::cascade(std::int16_t group, std::uint64_t p, HalvingRule& rule) {
  for (std::size_t level = 0; level < schedule_.levels; ++level) {
    const int i = static_cast<int>(level);
    // The size only differs from the paper's count after a merge.
    if (level > 0 && p % 2 != 0 && level_size(i, group) <= schedule_.batch) return;
    reduce({group, static_cast<std::int16_t>(level)}, store_.capacity(), rule);
    if (level > 0) p /= 2;
  }
}

void MergeAndReduce::count_runs() {
  // Texts make a few dozen runs, which a search is fastest for; a saved file may make as many as
  // entries.
  constexpr std::size_t kSearched = 64;
  std::unordered_map<std::uint32_t, std::size_t> others;
  const auto key = [](Tag tag) {
    return static_cast<std::uint32_t>(static_cast<std::uint16_t>(tag.group)) << 16 |
           static_cast<std::uint16_t>(tag.level);
  };
  runs_.clear();
  for (std::size_t slot = 0; slot < store_.size(); ++slot) {
    const Tag tag = tags_[slot];
    const auto end = runs_.begin() + static_cast<std::ptrdiff_t>(std::min(runs_.size(), kSearched));
    const auto run = std::find_if(runs_.begin(), end, [&](const Run& r) { return r.tag == tag; });
    std::size_t at = static_cast<std::size_t>(run - runs_.begin());
    if (run == end && at == kSearched)
      at = others.try_emplace(key(tag), runs_.size()).first->second;
    if (at == runs_.size()) runs_.push_back({tag, 0});
    ++runs_[at].size;
  }
}

void MergeAndReduce::make_room(HalvingRule& rule) {
  count_runs();
  const double capacity = static_cast<double>(store_.capacity());
  auto height = [](Tag tag) { return tag.level + tag.group; };
  // Where most entries are: a lone large value does not count. Below all where no run has many.
  int top = -kMostGroup - 1;
  for (const Run& run : runs_) {
    if (16 * run.size >= store_.size()) top = std::max(top, height(run.tag));
  }
  const double least = std::min(32.0, capacity / static_cast<double>(4 * runs_.size()));
  // Even: an odd batch would evict one token without another that stands for it.
  auto batch_of = [&](const Run& run) {
    const double below = std::max(0, top - height(run.tag));
    const double size = std::max({2.0, least, capacity / 8 * std::exp2(-below / 2)});
    return static_cast<std::size_t>(size) / 2 * 2;
  };
  const Run* best = nullptr;
  const Run* largest = nullptr;
  for (const Run& run : runs_) {
    if (largest == nullptr || run.size > largest->size) largest = &run;
    if (run.size < batch_of(run)) continue;
    if (best == nullptr || height(run.tag) < height(best->tag)) best = &run;
  }
  if (best == nullptr) best = largest;
  if (best != nullptr && best->size >= 2) reduce(best->tag, batch_of(*best), rule);
}

void MergeAndReduce::reduce(Tag tag, std::size_t batch, HalvingRule& rule) {
  slots_.clear();
  for (std::size_t slot = 0; slot < store_.size(); ++slot) {
    if (tags_[slot] == tag) slots_.push_back(static_cast<std::uint32_t>(slot));
  }
  if (slots_.empty()) return;
  auto older = [&](std::uint32_t a, std::uint32_t b) {
    return store_.position(a) < store_.position(b);
  };
  if (slots_.size() > batch) {
    std::nth_element(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(batch),
                     slots_.end(), older);
    slots_.resize(batch);
  }
  std::sort(slots_.begin(), slots_.end(), older);
  work_.clear();
  work_.keys = store_.keys();
  work_.values = store_.values();
  for (std::uint32_t slot : slots_) {
    work_.add(slot, store_.position(slot), store_.log_weight(slot), log_normalisers_[slot]);
  }
  rule.reduce(work_, (slots_.size() + 1) / 2, static_cast<std::uint32_t>(tag.level),
              {dropped_.data(), slots_.size()});
  const Tag next{tag.group, static_cast<std::int16_t>(tag.level + 1)};
  std::size_t gone = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (dropped_[i] != 0) {
      slots_[gone++] = slots_[i];
    } else {
      store_.set_log_weight(slots_[i], work_.log_weights[i]);
      set_tag(slots_[i], next, work_.log_normalisers[i]);
    }
  }
  // From the last slot down: the entry that fills a hole is then never one that goes.
  slots_.resize(gone);
  std::sort(slots_.begin(), slots_.end(), std::greater<>());
  for (std::uint32_t slot : slots_) erase(slot);
}

// Adds two binary numbers of batches: two outputs of a reduction at one level are reduced again.
void MergeAndReduce::carry(std::int16_t group, std::uint64_t p, std::uint64_t q,
                           HalvingRule& rule) {
  bool carried = level_size(0, group) >= schedule_.batch;
  if (carried) reduce({group, 0}, store_.capacity(), rule);
  for (std::size_t level = 1; level < schedule_.levels; ++level) {
    const std::uint64_t outputs =
        (p >> (level - 1) & 1) + (q >> (level - 1) & 1) + (carried ? 1 : 0);
    carried = outputs > 1;
    if (carried) reduce({group, static_cast<std::int16_t>(level)}, store_.capacity(), rule);
  }
}

void MergeAndReduce::merge(const MergeAndReduce& other, HalvingRule& rule) {
  const std::size_t total = store_.size() + other.store_.size();
  MergeAndReduce united(store_.like(total), schedule_);
  auto append = [&](const MergeAndReduce& from) {
    for (std::size_t slot = 0; slot < from.size(); ++slot) {
      united.set_tag(united.size(), from.tags_[slot], from.log_normalisers_[slot]);
      united.store_.push(from.store_, slot);
    }
  };
  append(*this);
  append(other);
  if (strict()) {
    for (const GroupTokens& theirs : other.counts_) {
      const auto group = static_cast<std::int16_t>(theirs.group);
      std::uint64_t& ours = tokens_of(group);
      united.carry(group, ours / schedule_.batch, theirs.tokens / schedule_.batch, rule);
      ours += theirs.tokens;
    }
    overflows_ += other.overflows_;
  }
  while (united.size() > store_.capacity()) {
    const std::size_t before = united.size();
    united.make_room(rule);
    // Only runs of one entry are left, more than there is room for: the least goes.
    if (united.size() == before) united.erase(0);
  }
  tokens_ += other.tokens_;
  store_.clear();
  for (std::size_t slot = 0; slot < united.size(); ++slot) {
    set_tag(slot, united.tags_[slot], united.log_normalisers_[slot]);
    store_.push(united.store_, slot);
  }
}

std::size_t MergeAndReduce::erase_groups_to(int group) {
  const std::size_t before = store_.size();
  for (std::size_t slot = before; slot-- > 0;) {
    if (tags_[slot].group <= group) erase(slot);
  }
  std::erase_if(counts_, [group](const GroupTokens& count) { return count.group <= group; });
  return before - store_.size();
}

void MergeAndReduce::clear() {
  store_.clear();
  counts_.clear();
  tokens_ = 0;
  overflows_ = 0;
}

Segment MergeAndReduce::normaliser() const {
  Segment segment = store_.segment(Role::normaliser);
  segment.log_weights = log_normalisers_.data();
  return segment;
}

void MergeAndReduce::save(ByteWriter& out) const {
  if (strict()) {
    out.put<std::uint64_t>(kStrictMark);
    out.put<std::uint64_t>(overflows_);
    out.put<std::uint64_t>(counts_.size());
    out.put_all<GroupTokens>(counts_);
  }
  store_.save(out);
  out.put<std::uint64_t>(tokens_);
  out.put_all<Tag>({tags_.data(), store_.size()});
  out.put_all<float>({log_normalisers_.data(), store_.size()});
}

void MergeAndReduce::load(ByteReader& in) {
  counts_.clear();
  overflows_ = 0;
  if (strict()) {
    require(
        in.get<std::uint64_t>() == kStrictMark,
        "{}: saved by an older mode=theory, whose numerator and normaliser lost different shares "
        "of weight; compress the text again",
        in.what());
    overflows_ = in.get<std::uint64_t>();
    const auto groups = in.get<std::uint64_t>();
    require(groups <= 2 * kMostGroup + 1, "{}: a summary has {} buckets", in.what(), groups);
    counts_.resize(static_cast<std::size_t>(groups));
    in.get_all<GroupTokens>(counts_);
  }
  store_.load(in);
  const std::size_t size = store_.size();
  try {
    tokens_ = in.get<std::uint64_t>();
    // A prompt is absorbed by a summary that has seen no token, in whose whole room it may write.
    require(tokens_ >= size, "{}: a summary of {} tokens has {} entries", in.what(), tokens_, size);
    in.get_all<Tag>({tags_.data(), size});
    in.get_all<float>({log_normalisers_.data(), size});
    for (std::size_t i = 0; i < size; ++i) {
      const Tag tag = tags_[i];
      require(tag.level >= 0 && tag.level < kMostLevels && std::abs(tag.group) <= kMostGroup,
              "{}: entry {} of a summary has level {} and bucket {}", in.what(), i, tag.level,
              tag.group);
      require(std::isfinite(log_normalisers_[i]) && log_normalisers_[i] < 1e9f,
              "{}: entry {} of a summary has log-weight {} in the normaliser", in.what(), i,
              log_normalisers_[i]);
    }
  } catch (...) {
    clear();
    throw;
  }
}

}  // namespace ballast
