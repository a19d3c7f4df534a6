// Any method string, shape and options either make a cache that can be used, or give an Error.
// Input: eight bytes that choose the options, then the method.
#include <algorithm>
#include <new>

#include "ballast/method.h"
#include "ballast/scoring.h"
#include "target.h"
#include "use_cache.h"

namespace {

using namespace ballast;

constexpr std::size_t kChoices = 8;

void make(std::string_view input) {
  if (input.size() < kChoices) return;
  const auto choice = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
  CacheShape shape;
  shape.layers = 1 + choice(0) % 2;
  shape.kv_heads = 1 + choice(0) / 2 % 2;
  shape.queries_per_kv_head = 1 + choice(0) / 4 % 2;
  shape.key_dim = 4 << choice(0) / 8 % 2;
  shape.value_dim = 4 << choice(0) / 16 % 2;
  shape.logits.scale = 0.5f;
  if (choice(0) / 32 % 2 != 0) shape.logits.softcap = 20;
  if (choice(0) / 64 % 2 != 0) shape.sliding_windows.assign(shape.layers, 9);
  if (choice(0) / 128 != 0)
    shape.alibi_slopes.assign(shape.kv_heads * shape.queries_per_kv_head, 0.25f);
  CacheOptions options;
  options.key_type = static_cast<StorageType>(choice(1) % (static_cast<int>(StorageType::q2) + 1));
  options.value_type =
      static_cast<StorageType>(choice(2) % (static_cast<int>(StorageType::q2) + 1));
  options.protocol = choice(3) % 2 != 0 ? Protocol::stream : Protocol::prefill;
  if (choice(3) / 2 % 4 == 3) options.positions = Positions::rolling;
  shape.rotary.frequencies.assign(choice(3) / 8 % 3, 0.5f);
  shape.rotary.pairs = choice(3) / 32 % 2 != 0;
  const std::size_t tokens = choice(4) % 96, call = 1 + choice(5) % 48;
  options.expected_tokens = choice(6) % 4 == 0 ? 0 : tokens + 16;
  options.seed = choice(7);
  options.recording.attention_sum = choice(7) % 8 == 1;
  options.recording.queries = choice(7) % 8 == 2 ? 4 : 0;
  options.recording.query_moments = choice(7) % 8 == 3;
  try {
    options.policy = Policy::parse(input.substr(kChoices));
    if (choice(7) % 8 == 4) options.recording.include(Policy::parse("replay:bytes=1/2"));
    // A stream of unknown length has room for its whole budget at once.
    if (options.expected_tokens == 0 && options.protocol == Protocol::stream &&
        options.policy.budget(0, Protocol::stream, 0, 1).total() > 4096)
      return;
    Cache cache(shape, options);
    for (std::size_t done = 0; done < tokens && scoring_of(cache).chunk_room() > 0; done += call)
      fuzz::feed(cache, std::min(call, tokens - done), done);
    fuzz::go_on(cache);
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {  // budgets are as large as whoever gives them wants
  }
}

std::string mutate_method(const std::string& input, std::uint32_t seed) {
  if (input.size() < kChoices || seed % 3 == 0) return mutate(input, seed);
  std::string out = input;
  if (seed % 3 == 1) {
    out[seed / 3 % kChoices] = static_cast<char>(seed >> 8);
    return out;
  }
  return out.substr(0, kChoices) + mutate(out.substr(kChoices), seed);
}

}  // namespace

BALLAST_FUZZ_TARGET(cache, make, mutate_method)
