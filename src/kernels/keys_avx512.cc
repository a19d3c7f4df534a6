// Logits of a block of keys: see attention_avx512.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include <atomic>
#include <cmath>

#include "kernels/attention_avx512.h"
#include "kernels/attention_kernels.h"
#include "kernels/round.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "kernels/avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kKeyGroups = kEntryBlock / kWide;
constexpr std::size_t kGroupWords = kQuantGroup / 4;  // 32-bit words of a group of bytes

// The keys of a block, 16 by 16: a chunk of their rows is some vectors of words, word by word, a
// word of each key. A word holds two numbers of bf16; or four of int8, plus 128; or four of int4.
template <StorageType type>
class Keys {
 public:
  static constexpr std::size_t kWords = type == StorageType::int4 ? 8 : 4;  // of a chunk

  explicit Keys(const RowsView& keys)
      : keys_(keys), groups_(up(keys.rows, kWide) / kWide), last_(keys, keys.rows / kWide * kWide) {
    const std::size_t used = type == StorageType::bf16   ? 2 * keys.dim
                             : type == StorageType::int8 ? keys.dim
                                                         : up(keys.dim, kQuantGroup) / 2;
    chunks_ = up(used, kChunk) / kChunk;
    // What pads a row could be a NaN. In integers it meets zeros.
    whole_ = type == StorageType::bf16 ? used / kChunk : chunks_;
    rest_ = static_cast<__mmask16>((1u << (used % kChunk)) - 1);
  }

  std::size_t groups() const { return groups_; }
  std::size_t chunks() const { return chunks_; }
  std::size_t words() const { return chunks_ * kWords; }
  RowSet rows(std::size_t group) const {
    if ((group + 1) * kWide > keys_.rows) return last_.rows();
    return {keys_.data + group * kWide * keys_.stride, keys_.stride};
  }
  // A chunk, half way to words.
  BALLAST_INLINE HalfWords half(const RowSet& rows, std::size_t chunk) const {
    __m512i four[4];
    times<4>([&](auto r) BALLAST_HERE { four[r] = four_rows(rows, chunk * kChunk, r); });
    return cleared(rows, chunk, HalfWords(four));
  }
  // The same from what is loaded already, where padding may be part of it.
  BALLAST_INLINE HalfWords cleared(const RowSet& rows, std::size_t chunk, HalfWords half) const {
    if (type != StorageType::bf16 || chunk < whole_) [[likely]]
      return half;
    __m512i four[4];
    times<4>([&](auto r) BALLAST_HERE { four[r] = four_rows(rows, chunk * kChunk, r, rest_); });
    return HalfWords(four);
  }
  // Word i of a chunk.
  BALLAST_INLINE static __m512i word(const HalfWords& half, std::size_t i) {
    if constexpr (type == StorageType::int8) {
      return _mm512_xor_si512(half.word(i), _mm512_set1_epi8(static_cast<char>(0x80)));
    } else if constexpr (type == StorageType::int4) {
      // Byte j of a group holds numbers j and 16 + j.
      const auto low = _mm512_set1_epi8(15);
      if (i < 4) return _mm512_and_si512(half.word(i), low);
      return _mm512_and_si512(_mm512_srli_epi16(half.word(i - 4), 4), low);
    } else {
      return half.word(i);
    }
  }

 private:
  RowsView keys_;
  std::size_t groups_, chunks_, whole_;
  __mmask16 rest_;
  FilledUp last_;
};

// The words of G groups of keys at a time, chunk by chunk: made on the way, …
template <StorageType type, std::size_t G>
class FreshWords {
 public:
  BALLAST_INLINE FreshWords(const Keys<type>& keys, std::size_t first, Upcoming& upcoming)
      : keys_(keys), rest_(upcoming), upcoming_(upcoming), first_(first) {
    set_rows();
    times<4>([&](auto r) BALLAST_HERE { load(r); });
  }
  BALLAST_INLINE ~FreshWords() { rest_ = upcoming_; }
  FreshWords(const FreshWords&) = delete;
  FreshWords& operator=(const FreshWords&) = delete;
  // The next chunk; after the last one the first of the next G groups.
  BALLAST_INLINE void chunk(std::size_t c) {
    times<G>([&](auto g) BALLAST_HERE {
      upcoming_.next_part();
      half_[g] = keys_.cleared(rows_[g], c, HalfWords(four_[g]));
    });
    if (++loaded_ < keys_.chunks()) return;
    loaded_ = 0;
    // After the last groups there is nothing; these are loaded again.
    if (first_ + 2 * G <= keys_.groups()) first_ += G;
    set_rows();
  }
  BALLAST_INLINE __m512i word(std::size_t g, std::size_t i) const {
    return Keys<type>::word(half_[g], i);
  }
  // To be called when word i of all has been added to these sums.
  template <std::size_t Q>
  BALLAST_INLINE void after(std::size_t i, __m512i (&sums)[Q][G]) {
    times<Q>([&](auto q)
                 BALLAST_HERE { times<G>([&](auto g) BALLAST_HERE { in_order(sums[q][g]); }); });
    constexpr std::size_t kShare = Keys<type>::kWords / 4;
    if (i % kShare == kShare - 1) load(i / kShare);
  }

 private:
  BALLAST_INLINE void set_rows() {
    times<G>([&](auto g) BALLAST_HERE { rows_[g] = keys_.rows(first_ + g); });
  }
  BALLAST_INLINE void load(std::size_t r) {
    times<G>([&](auto g) BALLAST_HERE {
      four_[g][r] = four_rows(rows_[g], loaded_ * kChunk, r);
      in_order(four_[g][r]);
    });
  }

  const Keys<type>& keys_;
  Upcoming& rest_;
  Upcoming upcoming_;  // a copy, which stays in registers
  std::size_t first_;
  std::size_t loaded_ = 0;  // chunk
  RowSet rows_[G];
  __m512i four_[G][4];
  HalfWords half_[G];
};

// … or kept for many queries.
template <StorageType type>
class KeptWords {
 public:
  KeptWords(const __m512i* words, std::size_t count) : words_(words), at_(words), count_(count) {}
  void chunk(std::size_t c) { at_ = words_ + c * Keys<type>::kWords; }
  BALLAST_INLINE __m512i word(std::size_t g, std::size_t i) const {
    return _mm512_load_si512(at_ + g * count_ + i);
  }
  template <typename Sums>
  void after(std::size_t, Sums&) {}

 private:
  const __m512i* words_;
  const __m512i* at_;
  std::size_t count_;
};

// What a tile needs beside its words.
struct Asked {
  std::size_t chunks;
  const Scales* scales;
  const float* queries;
  std::size_t stride;
  std::size_t first;  // group of keys
  float* logits;

  const float* query(std::size_t q) const { return queries + q * stride; }
  void store(std::size_t q, std::size_t g, __m512 sum) const {
    _mm512_storeu_ps(logits + q * kEntryBlock + (first + g) * kWide, sum);
  }
};

// Each logit has one accumulator (or, of integers, exact ones), and its terms are added in the same
// order in every tile.
template <StorageType type, std::size_t Q, std::size_t G>
struct Tile;

// ---- bf16

template <std::size_t Q, std::size_t G>
struct Tile<StorageType::bf16, Q, G> {
  template <typename Words>
  BALLAST_INLINE static void run(Words& words, const Asked& asked) {
    __m512i sums[Q][G];
    times<Q>([&](auto q) BALLAST_HERE {
      times<G>([&](auto g) BALLAST_HERE { sums[q][g] = _mm512_setzero_si512(); });
    });
    const auto* queries = reinterpret_cast<const std::uint32_t*>(asked.queries);
    for (std::size_t c = 0; c < asked.chunks; ++c) {
      words.chunk(c);
      const std::uint32_t* at = opaque(queries + c * 4);
      times<4>([&](auto i) BALLAST_HERE {
        const std::size_t stride = opaque(asked.stride);
        __m512i word[G];
        times<G>([&](auto g) BALLAST_HERE { word[g] = words.word(g, i); });
        times<Q>([&](auto q) BALLAST_HERE {
          const auto query = broadcast(at + q * stride + i);
          times<G>([&](auto g) BALLAST_HERE {
            sums[q][g] =
                (__m512i)_mm512_dpbf16_ps((__m512)sums[q][g], (__m512bh)word[g], (__m512bh)query);
          });
        });
        words.after(i, sums);
      });
    }
    times<Q>([&](auto q) BALLAST_HERE {
      times<G>([&](auto g) BALLAST_HERE { asked.store(q, g, (__m512)sums[q][g]); });
    });
  }
};

void pack_bf16(std::span<const float> row, float* out) {
  auto* words = reinterpret_cast<std::uint16_t*>(out);
  for (std::size_t i = 0; i < row.size(); ++i) {
    words[i] = std::isnan(row[i]) ? 0x7FC0 : bf16_encode(row[i]);
  }
  std::fill(words + row.size(), words + 2 * packed_size(row.size()), std::uint16_t{0});
}

// ---- int8 and int4
//
// The processor multiplies unsigned bytes by signed ones. A query's codes c are 128 h + l in the
// signed bytes h and l where the keys are int8, which enter as k + 128:
//   Σ c k = 128 (Σ h (k + 128) − Σ c) + Σ l (k + 128),  times the query's unit and the key's scale.
// Where the keys are s n + o (int4), c is one byte, with a unit u for each group:
//   u (s Σ c n + o Σ c).

// A packed query: codes, group by group (those of h, then those of l), then numbers of each group.
template <StorageType type>
struct Codes {
  static constexpr std::size_t kBytes = type == StorageType::int8 ? 2 : 1;  // of a code
  static const std::uint32_t* group(const float* packed, std::size_t g) {
    return reinterpret_cast<const std::uint32_t*>(packed) + kBytes * kGroupWords * g;
  }
  // The sum of a group's codes: of int8 an integer, negative; of int4 a float.
  static float* sums(float* packed, std::size_t size) { return packed + kBytes * size / 4; }
  static const float* sums(const float* packed, std::size_t size) {
    return packed + kBytes * size / 4;
  }
  // Of int8 one unit for all groups.
  static float* units(float* packed, std::size_t size) {
    return sums(packed, size) + size / kQuantGroup;
  }
  static const float* units(const float* packed, std::size_t size) {
    return sums(packed, size) + size / kQuantGroup;
  }
};

template <StorageType type, std::size_t Q, std::size_t G>
requires(type == StorageType::int8 || type == StorageType::int4) struct Tile<type, Q, G> {
  static constexpr bool kWideCodes = type == StorageType::int8;
  static constexpr std::size_t kGroupChunks = kGroupWords / Keys<type>::kWords;

  template <typename Words>
  BALLAST_INLINE static void run(Words& words, const Asked& asked) {
    __m512 sums[Q][G];
    times<Q>([&](auto q) BALLAST_HERE {
      times<G>([&](auto g) BALLAST_HERE { sums[q][g] = _mm512_setzero_ps(); });
    });
    const std::size_t groups = asked.stride / kQuantGroup;
    for (std::size_t group = 0; group < groups; ++group) {
      __m512i high[Q][G], low[Q][G];
      times<Q>([&](auto q) BALLAST_HERE {
        const float* start = Codes<type>::sums(asked.query(q), asked.stride) + group;
        times<G>([&](auto g) BALLAST_HERE {
          low[q][g] = _mm512_setzero_si512();
          if constexpr (kWideCodes) {
            high[q][g] = broadcast(reinterpret_cast<const std::uint32_t*>(start));
          }
        });
      });
      for (std::size_t c = 0; c < kGroupChunks; ++c) {
        if (group * kGroupChunks + c < asked.chunks) {
          words.chunk(group * kGroupChunks + c);
          multiply(words, asked, group, c, high, low);
        }
      }
      scale(asked, group, high, low, sums);
    }
    times<Q>([&](auto q) BALLAST_HERE {
      const auto unit = _mm512_set1_ps(*Codes<type>::units(asked.query(q), asked.stride));
      times<G>([&](auto g) BALLAST_HERE {
        asked.store(q, g, kWideCodes ? _mm512_mul_ps(sums[q][g], unit) : sums[q][g]);
      });
    });
  }

 private:
  template <typename Words>
  BALLAST_INLINE static void multiply(Words& words, const Asked& asked, std::size_t group,
                                      std::size_t c, __m512i (&high)[Q][G], __m512i (&low)[Q][G]) {
    const std::uint32_t* at =
        opaque(Codes<type>::group(asked.query(0), group) + c * Keys<type>::kWords);
    times<Keys<type>::kWords>([&](auto i) BALLAST_HERE {
      const std::size_t stride = opaque(asked.stride);
      __m512i word[G];
      times<G>([&](auto g) BALLAST_HERE { word[g] = words.word(g, i); });
      times<Q>([&](auto q) BALLAST_HERE {
        const std::uint32_t* codes = at + q * stride + i;
        if constexpr (kWideCodes) {
          const auto h = broadcast(codes);
          codes += kGroupWords;
          times<G>([&](auto g)
                       BALLAST_HERE { high[q][g] = _mm512_dpbusd_epi32(high[q][g], word[g], h); });
        }
        const auto l = broadcast(codes);
        times<G>([&](auto g)
                     BALLAST_HERE { low[q][g] = _mm512_dpbusd_epi32(low[q][g], word[g], l); });
      });
      words.after(i, low);
    });
  }

  BALLAST_INLINE static void scale(const Asked& asked, std::size_t group,
                                   const __m512i (&high)[Q][G], const __m512i (&low)[Q][G],
                                   __m512 (&sums)[Q][G]) {
    const std::size_t groups = asked.stride / kQuantGroup;
    times<G>([&](auto g) BALLAST_HERE {
      const std::size_t key = (asked.first + g) * kWide;
      const auto scale = _mm512_load_ps(asked.scales->at(group) + key);
      times<Q>([&](auto q) BALLAST_HERE {
        if constexpr (kWideCodes) {
          const auto all = _mm512_add_epi32(_mm512_slli_epi32(high[q][g], 7), low[q][g]);
          sums[q][g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), scale, sums[q][g]);
        } else {
          const auto offset = _mm512_load_ps(asked.scales->at(groups + group) + key);
          const auto sum = _mm512_set1_ps(Codes<type>::sums(asked.query(q), asked.stride)[group]);
          const auto unit = _mm512_set1_ps(Codes<type>::units(asked.query(q), asked.stride)[group]);
          const auto dot =
              _mm512_fmadd_ps(_mm512_cvtepi32_ps(low[q][g]), scale, _mm512_mul_ps(offset, sum));
          sums[q][g] = _mm512_fmadd_ps(dot, unit, sums[q][g]);
        }
      });
    });
  }
};

// The largest magnitude; NaN if any number is not finite.
float magnitude(std::span<const float> row) {
  float largest = 0.0f, finite = 0.0f;
  for (float x : row) {
    largest = std::max(largest, std::abs(x));
    finite += x * 0.0f;
  }
  return largest + finite;
}

// round(x · most / largest); zeros if the largest is 0 or NaN, and then the unit says the rest.
std::int32_t code_of(float x, float largest, double most) {
  if (!(largest > 0.0f)) return 0;
  return static_cast<std::int32_t>(
      std::lrint(static_cast<double>(x) * (most / static_cast<double>(largest))));
}

void pack_int8(std::span<const float> row, float* out) {
  constexpr double kMost = 127 * 128 + 63;
  const std::size_t size = packed_size(row.size());
  const float largest = magnitude(row);
  *Codes<StorageType::int8>::units(out, size) = largest / static_cast<float>(kMost);
  auto* starts = reinterpret_cast<std::int32_t*>(Codes<StorageType::int8>::sums(out, size));
  std::fill_n(starts, size / kQuantGroup, 0);
  auto* bytes = reinterpret_cast<std::int8_t*>(out);
  for (std::size_t i = 0; i < size; ++i) {
    const std::int32_t code = i < row.size() ? code_of(row[i], largest, kMost) : 0;
    const std::int32_t high = (code + 64) >> 7;
    std::int8_t* group = bytes + i / kQuantGroup * 2 * kQuantGroup + i % kQuantGroup;
    group[0] = static_cast<std::int8_t>(high);
    group[kQuantGroup] = static_cast<std::int8_t>(code - 128 * high);
    starts[i / kQuantGroup] -= code;
  }
}

void pack_int4(std::span<const float> row, float* out) {
  const std::size_t size = packed_size(row.size());
  auto* codes = reinterpret_cast<std::int8_t*>(out);
  for (std::size_t g = 0; g < size / kQuantGroup; ++g) {
    const std::size_t begin = g * kQuantGroup;
    const auto group = row.subspan(begin, std::min(kQuantGroup, row.size() - begin));
    const float largest = magnitude(group);
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < kQuantGroup; ++i) {
      const std::int32_t code = i < group.size() ? code_of(group[i], largest, 127.0) : 0;
      codes[begin + i] = static_cast<std::int8_t>(code);
      sum += code;
    }
    Codes<StorageType::int4>::sums(out, size)[g] = static_cast<float>(sum);
    Codes<StorageType::int4>::units(out, size)[g] = largest / 127.0f;
  }
}

// ---- all types

// Sums that a tile keeps in registers, of which integers need two each.
template <StorageType type>
constexpr std::size_t kMostQueries = type == StorageType::bf16 ? 6 : 4;
template <StorageType type>
constexpr std::size_t kMostGroups = type == StorageType::bf16 ? 4 : 2;

// Words are made where they are used. Two groups at a time, so that sums do not wait for each
// other; of int8, which has two of each, one group if queries are more than two.
template <StorageType type>
void ask_few(const Keys<type>& keys, Asked asked, std::size_t count, const RowsView* next) {
  Upcoming upcoming(next, keys.groups() * keys.chunks());
  const auto of_groups = [&]<std::size_t G, std::size_t Q>() {
    if (asked.first + G > keys.groups()) return;
    FreshWords<type, G> words(keys, asked.first, upcoming);
    for (; asked.first + G <= keys.groups(); asked.first += G) {
      Tile<type, Q, G>::run(words, asked);
    }
  };
  in_tiles<kFewQueries>(count, [&]<std::size_t Q>(std::size_t) {
    if constexpr (type != StorageType::int8 || Q < 3) of_groups.template operator()<2, Q>();
    of_groups.template operator()<1, Q>();
  });
}

template <StorageType type>
void ask_many(const Keys<type>& keys, Asked asked, std::size_t count, const RowsView* next) {
  Upcoming upcoming(next, keys.groups());
  const std::size_t words = keys.words();
  __m512i kept[kKeyGroups * kMaxDim / 2];
  for (std::size_t g = 0; g < keys.groups(); ++g) {
    upcoming.next_part();
    const RowSet rows = keys.rows(g);
    for (std::size_t c = 0; c < keys.chunks(); ++c) {
      const HalfWords half = keys.half(rows, c);
      for (std::size_t i = 0; i < Keys<type>::kWords; ++i) {
        _mm512_store_si512(kept + g * words + c * Keys<type>::kWords + i,
                           Keys<type>::word(half, i));
      }
    }
  }
  // Groups outside, so that their keys stay in the first-level cache.
  const Asked all = asked;
  const auto of_groups = [&]<std::size_t G>() {
    for (; asked.first + G <= keys.groups(); asked.first += G) {
      in_tiles<kMostQueries<type>>(count, [&]<std::size_t Q>(std::size_t q) {
        asked.queries = all.query(q);
        asked.logits = all.logits + q * kEntryBlock;
        KeptWords<type> kept_words(kept + asked.first * words, words);
        Tile<type, Q, G>::run(kept_words, asked);
      });
    }
  };
  of_groups.template operator()<kMostGroups<type>>();
  of_groups.template operator()<1>();
}

template <StorageType type>
void ask(const RowsView& rows, const float* queries, std::size_t count, float* logits,
         const RowsView* next) {
  const Keys<type> keys(rows);
  const Scales scales(rows);
  const Asked asked{keys.chunks(), &scales, queries, packed_size(rows.dim), 0, logits};
  if (count <= kFewQueries) return ask_few(keys, asked, count, next);
  ask_many(keys, asked, count, next);
}

}  // namespace

void dot_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
               const RowsView* upcoming) {
  if (keys.rows == 0) return;
  const auto run = keys.type == StorageType::bf16   ? ask<StorageType::bf16>
                   : keys.type == StorageType::int8 ? ask<StorageType::int8>
                                                    : ask<StorageType::int4>;
  run(keys, queries, count, logits, upcoming);
}

void pack_query(StorageType type, std::span<const float> row, float* out) {
  if (type == StorageType::bf16) return pack_bf16(row, out);
  if (type == StorageType::int8) return pack_int8(row, out);
  pack_int4(row, out);
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES

namespace ballast::kernels::avx512 {

namespace {
std::atomic<bool> allowed = true;
}

bool multiplies(StorageType type) {
  static const bool able =
      __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vnni") != 0 &&
      __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  const bool floats = type == StorageType::f32 || type == StorageType::f16;
  return !floats && able && allowed.load(std::memory_order_relaxed);
}

void allow_for_test(bool use) { allowed = use; }

}  // namespace ballast::kernels::avx512

#else

namespace ballast::kernels::avx512 {

bool multiplies(StorageType) { return false; }
void allow_for_test(bool) {}
void pack_query(StorageType, std::span<const float>, float*) {}
void dot_block(const RowsView&, const float*, std::size_t, float*, const RowsView*) {}

}  // namespace ballast::kernels::avx512

#endif
