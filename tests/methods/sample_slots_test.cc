#include "methods/sample_slots.h"

#include "ballast/serialize.h"
#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

/// The same by searching: a token (or -1) a slot, and the tokens held in the order of the store.
struct SlotReference {
  std::vector<int> held;
  std::vector<int> entries;

  void release(std::size_t slot) {
    const int token = held[slot];
    held[slot] = -1;
    if (token < 0 || std::ranges::count(held, token) != 0) return;
    const auto at = std::ranges::find(entries, token);
    *at = entries.back();
    entries.pop_back();
  }
  void put(std::span<const std::uint32_t> slots, int token) {
    for (std::uint32_t slot : slots) release(slot);
    entries.push_back(token);
    for (std::uint32_t slot : slots) held[slot] = token;
  }
  void copy(std::size_t to, std::size_t from) {
    if (held[to] == held[from]) return;
    const int token = held[from];
    release(to);
    held[to] = token;
  }
};

void expect_equal(const SampleSlots& got, const SlotReference& want) {
  ASSERT_EQ(got.store().size(), want.entries.size());
  for (std::size_t entry = 0; entry < want.entries.size(); ++entry) {
    ASSERT_EQ(got.store().position(entry), want.entries[entry]);
    ASSERT_EQ(got.tag(entry), static_cast<float>(want.entries[entry]) / 2);
    ASSERT_EQ(got.multiplicity(entry), std::ranges::count(want.held, want.entries[entry]));
  }
  for (std::size_t slot = 0; slot < want.held.size(); ++slot) {
    const auto at = std::ranges::find(want.entries, want.held[slot]);
    const auto entry = at == want.entries.end()
                           ? SampleSlots::kNone
                           : static_cast<std::uint32_t>(at - want.entries.begin());
    ASSERT_EQ(got.entry(slot), entry) << slot;
  }
}

SampleSlots loaded(const SampleSlots& from, const SummarySetup& setup, std::size_t slots) {
  MemoryWriter out;
  from.save(out, slots);
  SampleSlots made(setup, setup.value_dim, slots);
  ByteReader in(out.bytes, "slots");
  made.load(in, slots);
  return made;
}

TEST(SampleSlots, HoldWhatASearchThroughThemHolds) {
  std::mt19937_64 rng(5);
  for (std::size_t slots : {1u, 2u, 7u, 40u}) {
    const std::size_t tokens = 400, dim = 3;
    const HeadStream stream = random_stream(tokens, dim, slots);
    const SummarySetup setup = setup_of("clustergen:budget=64", slots, dim, Protocol::stream, 0);
    SampleSlots got(setup, dim, slots);
    SlotReference want{std::vector<int>(slots, -1), {}};
    for (std::size_t t = 0; t < tokens; ++t) {
      // As a reservoir does: many slots at first, few later, now and then all.
      std::vector<std::uint32_t> chosen;
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        if (rng() % (1 + t % 50) == 0) chosen.push_back(slot);
      }
      if (!chosen.empty()) {
        got.put(chosen, stream.block(t, 1), 0, static_cast<float>(t) / 2);
        want.put(chosen, static_cast<int>(t));
      }
      const std::size_t to = rng() % slots, from = rng() % slots;
      if (want.held[from] >= 0) {
        got.copy(to, from);
        want.copy(to, from);
      }
      if (t % 3 == 0) {
        const std::size_t gone = rng() % slots;
        got.release(gone);
        want.release(gone);
      }
      if (t % 61 == 0) got = loaded(got, setup, slots);
      ASSERT_NO_FATAL_FAILURE(expect_equal(got, want)) << slots << " slots, token " << t;
    }
    // Entries of other samples.
    SampleSlots other(setup, dim, slots);
    std::vector<std::uint32_t> all(slots);
    for (std::uint32_t slot = 0; slot < slots; ++slot) all[slot] = slot;
    SlotReference both{std::vector<int>(slots, -1), {}};
    for (std::uint32_t entry = 0; entry < got.store().size(); ++entry) {
      other.put(std::span(all).subspan(entry), got, entry);
      both.put(std::span(all).subspan(entry), want.entries[entry]);
    }
    ASSERT_NO_FATAL_FAILURE(expect_equal(other, both));
  }
}

}  // namespace
}  // namespace ballast::test
