// QK kernel for bf16, int8 and int4 keys: see avx512.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "attention/kernels/amx.h"
#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/avx512.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/qk_int16_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
#include "simd/bf16_tiles-inl.h"
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kKeyGroups = kEntryBlock / kWide;

// Inputs of a tile besides the transposed keys.
struct TileInput {
  std::size_t pieces;
  const Scales<>* scales;
  const float* queries;
  std::size_t stride;
  std::size_t first;  // group of keys
  float* logits;

  const float* query(std::size_t q) const { return queries + q * stride; }
  float* logit(std::size_t q, std::size_t g) const {
    return logits + q * kEntryBlock + (first + g) * kWide;
  }
};

// Each logit has one accumulator (integer ones are exact). Its terms are added in the same order in
// every tile.
template <StorageType type, std::size_t Q, std::size_t G>
struct Tile;

// ---- bf16

// Adds the products of one piece: its 8 words of Q queries at `queries` with those of G groups.
template <std::size_t Q, std::size_t G, typename Words>
BALLAST_INLINE void add_bf16_piece(Words& words, const TileInput& input,
                                   const std::uint32_t* queries, __m512i (&sums)[Q][G]) {
  unroll<8>([&](auto i) BALLAST_INLINE_LAMBDA {
    const std::size_t stride = opaque(input.stride);
    __m512i word[G];
    unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { word[g] = words.word(g, i); });
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      const auto query = broadcast(queries + q * stride + i);
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
        sums[q][g] =
            (__m512i)_mm512_dpbf16_ps((__m512)sums[q][g], (__m512bh)word[g], (__m512bh)query);
      });
    });
    words.after(i, sums);
  });
}

template <std::size_t Q, std::size_t G>
struct Tile<StorageType::bf16, Q, G> {
  template <typename Words>
  BALLAST_INLINE static void run(Words& words, const TileInput& input) {
    __m512i sums[Q][G];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { sums[q][g] = _mm512_setzero_si512(); });
    });
    const auto* queries = reinterpret_cast<const std::uint32_t*>(input.queries);
    for (std::size_t p = 0; p < input.pieces; ++p) {
      words.piece(p);
      add_bf16_piece(words, input, opaque(queries + p * 8), sums);
    }
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
        _mm512_storeu_ps(input.logit(q, g), (__m512)sums[q][g]);
      });
    });
  }
};

// The same in the order of tiles (simd/bf16_tiles-inl.h), a step of which is two pieces.
template <std::size_t Q, std::size_t G>
struct OrderedTile {
  template <typename Words>
  BALLAST_INLINE static void run(Words& words, const TileInput& input) {
    __m512i part[Q][G];
    // In memory, from where they are needed once a piece.
    alignas(64) float half[Q][G][kWide], sum[Q][G][kWide];
    const auto all = [&](const auto& action) BALLAST_INLINE_LAMBDA {
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { action(q, g); });
      });
    };
    const auto clear = [&](auto q, auto g)
                           BALLAST_INLINE_LAMBDA { part[q][g] = _mm512_setzero_si512(); };
    all(clear);
    all([&](auto q, auto g) BALLAST_INLINE_LAMBDA { _mm512_store_si512(sum[q][g], part[q][g]); });
    const auto* queries = reinterpret_cast<const std::uint32_t*>(input.queries);
    for (std::size_t p = 0; p < input.pieces; ++p) {
      words.piece(p);
      add_bf16_piece(words, input, opaque(queries + p * 8), part);
      if (p % 2 == 0) {
        all([&](auto q, auto g)
                BALLAST_INLINE_LAMBDA { _mm512_store_si512(half[q][g], part[q][g]); });
        all(clear);
        if (p + 1 < input.pieces) continue;
      }
      all([&](auto q, auto g) BALLAST_INLINE_LAMBDA {
        _mm512_store_ps(sum[q][g], add_tile_step(_mm512_load_ps(sum[q][g]),
                                                 _mm512_load_ps(half[q][g]), (__m512)part[q][g]));
      });
      all(clear);
    }
    all([&](auto q, auto g) BALLAST_INLINE_LAMBDA {
      _mm512_storeu_ps(input.logit(q, g), _mm512_load_ps(sum[q][g]));
    });
  }
};

// ---- int8 and int4

template <StorageType type, std::size_t Q, std::size_t G>
requires(type == StorageType::int8 || type == StorageType::int4) struct Tile<type, Q, G> {
  static constexpr bool kWideCodes = type == StorageType::int8;
  static constexpr std::size_t kGroups = kWideCodes ? 1 : 2;  // of a piece

  template <typename Words>
  BALLAST_INLINE static void run(Words& words, const TileInput& input) {
    __m512 sums[Q][G];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { sums[q][g] = _mm512_setzero_ps(); });
    });
    const std::size_t groups = input.stride / kQuantGroup;
    for (std::size_t p = 0; p < input.pieces; ++p) {
      words.piece(p);
      unroll<kGroups>([&](auto half) BALLAST_INLINE_LAMBDA {
        const std::size_t group = p * kGroups + half;
        __m512i high[Q][G], low[Q][G];
        unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
          const float* start = Codes<type>::sums(input.query(q), input.stride) + group;
          unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
            low[q][g] = _mm512_setzero_si512();
            if constexpr (kWideCodes) {
              high[q][g] = broadcast(reinterpret_cast<const std::uint32_t*>(start));
            }
          });
        });
        multiply<half>(words, input, group, high, low);
        if (half == 0 || group < groups) scale(input, group, high, low, sums);
      });
    }
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA { store(input, q, sums[q]); });
  }
  // Stores the logits of query q.
  BALLAST_INLINE static void store(const TileInput& input, std::size_t q, const __m512 (&sums)[G]) {
    const auto unit = _mm512_set1_ps(*Codes<type>::units(input.query(q), input.stride));
    unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
      _mm512_storeu_ps(input.logit(q, g), kWideCodes ? _mm512_mul_ps(sums[g], unit) : sums[g]);
    });
  }
  // Adds a group's integer sums to `sums`, with the scales and offsets of the keys and the query's
  // units.
  BALLAST_INLINE static void scale(const TileInput& input, std::size_t group,
                                   const __m512i (&high)[Q][G], const __m512i (&low)[Q][G],
                                   __m512 (&sums)[Q][G]) {
    const std::size_t groups = input.stride / kQuantGroup;
    unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
      const std::size_t key = (input.first + g) * kWide;
      const auto scale = _mm512_load_ps(input.scales->at(group) + key);
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        auto& sum = sums[q][g];
        if constexpr (kWideCodes) {
          const auto all = _mm512_add_epi32(_mm512_slli_epi32(high[q][g], 7), low[q][g]);
          sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), scale, sum);
        } else {
          const auto offset = _mm512_load_ps(input.scales->at(groups + group) + key);
          const auto unit = _mm512_set1_ps(Codes<type>::units(input.query(q), input.stride)[group]);
          const auto share = _mm512_set1_ps(Codes<type>::sums(input.query(q), input.stride)[group]);
          const auto dot = _mm512_mul_ps(_mm512_cvtepi32_ps(low[q][g]), scale);
          sum = _mm512_fmadd_ps(dot, unit, _mm512_fmadd_ps(offset, share, sum));
        }
      });
    });
  }

 private:
  template <std::size_t kHalf, typename Words>
  BALLAST_INLINE static void multiply(Words& words, const TileInput& input, std::size_t group,
                                      __m512i (&high)[Q][G], __m512i (&low)[Q][G]) {
    const std::uint32_t* at = opaque(Codes<type>::group(input.query(0), group));
    unroll<kGroupWords>([&](auto i) BALLAST_INLINE_LAMBDA {
      constexpr std::size_t kWord = kHalf * kGroupWords + i;
      const std::size_t stride = opaque(input.stride);
      __m512i word[G];
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { word[g] = words.word(g, kWord); });
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        const std::uint32_t* codes = at + q * stride + Keys<type>::place(i);
        if constexpr (kWideCodes) {
          const auto h = broadcast(codes);
          codes += kGroupWords;
          unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
            high[q][g] = _mm512_dpbusd_epi32(high[q][g], word[g], h);
          });
        }
        const auto l = broadcast(codes);
        unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
          low[q][g] = _mm512_dpbusd_epi32(low[q][g], word[g], l);
        });
      });
      words.after(kWord, low);
    });
  }
};

// Three or four queries of int8. A piece of keys stays in registers while queries are processed one
// by one. Two groups of keys share each load of a query.
template <std::size_t Q>
struct FewInt8 {
  static constexpr StorageType kType = StorageType::int8;
  static constexpr std::size_t G = 2;

  template <CacheLevel kLevel>
  BALLAST_INLINE static void run(FreshWords<kType, G, kLevel>& words, const TileInput& input) {
    constexpr std::size_t kLines = FreshWords<kType, G, kLevel>::kLines;
    __m512 sums[Q][1][G];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { sums[q][0][g] = _mm512_setzero_ps(); });
    });
    for (std::size_t p = 0; p < input.pieces; ++p) {
      words.piece(p);
      __m512i word[kGroupWords][G];
      unroll<kGroupWords>([&](auto i) BALLAST_INLINE_LAMBDA {
        unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
          word[i][g] = words.word(g, i);
          in_order(word[i][g]);
        });
      });
      const std::uint32_t* at = opaque(Codes<kType>::group(input.query(0), p));
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        const std::uint32_t* codes = at + q * opaque(input.stride);
        const float* start = Codes<kType>::sums(input.query(q), input.stride) + p;
        __m512i high[1][G], low[1][G];
        unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
          high[0][g] = broadcast(reinterpret_cast<const std::uint32_t*>(start));
          low[0][g] = _mm512_setzero_si512();
        });
        unroll<kGroupWords>([&](auto i) BALLAST_INLINE_LAMBDA {
          add(high[0], word[i], codes + i);
          add(low[0], word[i], codes + kGroupWords + i);
          unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { in_order(low[0][g]); });
          // Spread prefetches evenly. Load the next rows into registers that this piece no longer
          // needs.
          constexpr std::size_t kAll = Q * kGroupWords;
          constexpr std::size_t kLine = (q * kGroupWords + i) * kLines / kAll;
          constexpr std::size_t kNext = (q * kGroupWords + i + 1) * kLines / kAll;
          if constexpr (kLine != kNext) words.fetch(kLine);
          if constexpr (q == Q - 1 && i % 2 == 1) words.load(i / 2);
        });
        Tile<kType, 1, G>::scale(input, p, high, low, sums[q]);
      });
    }
    unroll<Q>([&](auto q)
                  BALLAST_INLINE_LAMBDA { Tile<kType, 1, G>::store(input, q, sums[q][0]); });
  }

 private:
  BALLAST_INLINE static void add(__m512i (&sums)[G], const __m512i (&word)[G],
                                 const std::uint32_t* codes) {
    const auto query = broadcast(codes);
    unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
      sums[g] = _mm512_dpbusd_epi32(sums[g], word[g], query);
    });
  }
};

// Up to four queries of int4. A piece of their codes stays in registers while keys are read as
// stored. The partial sums of a key, two per group, stay side by side until the piece ends.
template <std::size_t Q>
class FewInt4 {
  static constexpr StorageType kType = StorageType::int4;

 public:
  // Adds a piece to the logits of all keys; the first piece initialises them.
  template <CacheLevel kLevel>
  static void run(const Keys<kType>& keys, const TileInput& input, std::size_t piece,
                  Prefetcher& rest) {
    const FewInt4 tile(input, piece);
    Prefetcher prefetcher = rest;  // a local copy stays in registers
    piece == 0 ? tile.add<kLevel, true>(keys, prefetcher)
               : tile.add<kLevel, false>(keys, prefetcher);
    rest = prefetcher;
  }

 private:
  BALLAST_INLINE FewInt4(const TileInput& input, std::size_t piece)
      : piece_(piece), groups_(input.stride / kQuantGroup - 2 * piece), logits_(input.logits) {
    const std::size_t all_groups = input.stride / kQuantGroup;
    unroll<2>([&](auto g) BALLAST_INLINE_LAMBDA {
      const std::size_t group = 2 * piece + (groups_ > g ? g : 0);
      scales_[g] = input.scales->at(group);
      offsets_[g] = input.scales->at(all_groups + group);
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        units_[g][q] = Codes<kType>::units(input.query(q), input.stride)[group];
        shares_[g][q] = Codes<kType>::sums(input.query(q), input.stride)[group];
      });
    });
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      codes_[q] = Codes<kType>::group(input.query(q), 2 * piece);
    });
  }

  template <CacheLevel kLevel, bool kFirst>
  BALLAST_INLINE void add(const Keys<kType>& keys, Prefetcher& prefetcher) const {
    __m512i codes[Q][4];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      // Per group, codes of the low nibbles first, then codes of the high nibbles.
      const __mmask16 valid = groups_ == 1 ? 0x00FF : 0xFFFF;
      const auto all = _mm512_maskz_loadu_epi32(valid, codes_[q]);
      unroll<4>([&](auto i) BALLAST_INLINE_LAMBDA {
        const int first = i / 2 * 2 + i % 2 * 4, second = first + 8;
        const auto words = _mm512_set_epi32(
            second + 1, second, second + 1, second, first + 1, first, first + 1, first,  //
            second + 1, second, second + 1, second, first + 1, first, first + 1, first);
        codes[q][i] = _mm512_permutexvar_epi32(words, all);
        in_order(codes[q][i]);
      });
    });
    RowSet rows = keys.rows(0);
    for (std::size_t g = 0; g < keys.groups(); ++g) {
      if (g == keys.in_place()) [[unlikely]]
        rows = keys.rows(g);
      const std::uintptr_t lines = prefetcher.lines<kLevel>(kPieceLines);
      sixteen_keys<kFirst>(rows, g * kWide, codes, [&](std::size_t line) BALLAST_INLINE_LAMBDA {
        prefetcher.fetch<kLevel>(lines, line);
      });
      rows.data += kWide * rows.stride;
    }
  }
  // fetch: prefetches one of kPieceLines lines between the multiplications.
  template <bool kFirst, class Fetch>
  BALLAST_INLINE void sixteen_keys(const RowSet& rows, std::size_t key,
                                   const __m512i (&codes)[Q][4], const Fetch& fetch) const {
    __m512i sums[2][Q];  // of eight keys: 0 to 3 of both groups, 4 to 7
    unroll<2>([&](auto half) BALLAST_INLINE_LAMBDA {
      __m512i other[Q];
      four_keys(rows, half, 0, codes, fetch, sums[half]);
      four_keys(rows, half, 2, codes, fetch, other);
      // At most 16 · 15 · 127, which fits into 16 bits.
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        const auto pairs = _mm512_packs_epi32(sums[half][q], other[q]);
        sums[half][q] = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
      });
    });
    float* at = logits_ + key;
    __m512 logits[Q];
    const auto scale = [&](auto g) BALLAST_INLINE_LAMBDA {
      const auto scales = _mm512_load_ps(scales_[g] + key),
                 offsets = _mm512_load_ps(offsets_[g] + key);
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        const auto products = _mm512_shuffle_i64x2(sums[0][q], sums[1][q], g == 0 ? 0x88 : 0xDD);
        const auto dot = _mm512_mul_ps(_mm512_cvtepi32_ps(products), scales);
        const auto share = _mm512_set1_ps(shares_[g][q]);
        if constexpr (kFirst && g == 0) {
          logits[q] = _mm512_mul_ps(offsets, share);
        } else {
          if constexpr (g == 0) logits[q] = _mm512_loadu_ps(at + q * kEntryBlock);
          logits[q] = _mm512_fmadd_ps(offsets, share, logits[q]);
        }
        logits[q] = _mm512_fmadd_ps(dot, _mm512_set1_ps(units_[g][q]), logits[q]);
      });
    };
    scale(std::integral_constant<std::size_t, 0>());
    if (groups_ > 1) scale(std::integral_constant<std::size_t, 1>());
    unroll<Q>([&](auto q)
                  BALLAST_INLINE_LAMBDA { _mm512_storeu_ps(at + q * kEntryBlock, logits[q]); });
  }
  // Rows j, j + 1, j + 4 and j + 5 of eight.
  template <class Fetch>
  BALLAST_INLINE void four_keys(const RowSet& rows, std::size_t half, std::size_t j,
                                const __m512i (&codes)[Q][4], const Fetch& fetch,
                                __m512i (&sums)[Q]) const {
    const auto a = Keys<kType>::two_rows(rows, piece_ * kPiece, j, half);
    const auto b = Keys<kType>::two_rows(rows, piece_ * kPiece, j + 1, half);
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA { sums[q] = _mm512_setzero_si512(); });
    unroll<4>([&](auto i) BALLAST_INLINE_LAMBDA {
      const auto both = i < 2 ? _mm512_unpacklo_epi64(a, b) : _mm512_unpackhi_epi64(a, b);
      const auto numbers =
          _mm512_and_si512(i % 2 == 0 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        sums[q] = _mm512_dpbusd_epi32(sums[q], numbers, codes[q][i]);
        in_order(sums[q]);
      });
      if (i % 2 == 0) fetch(half * 4 + j + i / 2);
    });
  }

  std::size_t piece_, groups_;  // piece: index; groups: from its first one on
  float* logits_;
  const std::uint32_t* codes_[Q];
  const float *scales_[2], *offsets_[2];
  float units_[2][Q], shares_[2][Q];
};

// ---- all types

// The largest tile, whose sums fit in registers; integer types need two accumulators per sum.
template <StorageType type>
constexpr std::size_t kMostQueries = type == StorageType::bf16 ? 6 : 4;
template <StorageType type>
constexpr std::size_t kMostGroups = type == StorageType::bf16 ? 4 : 2;

// Keys are transposed where they are used. Tiles span two groups, so that sums do not wait for each
// other. kAsTiles, for bf16: in the order of tiles.
template <StorageType type, bool kAsTiles>
void qk_few(const Keys<type>& keys, TileInput input, std::size_t count,
            const PrefetchRange* range) {
  Prefetcher prefetcher(keys.view(), range, keys.groups() * keys.pieces() * kPieceLines);
  const auto of_groups = [&]<std::size_t G, std::size_t Q>() {
    if (input.first + G > keys.groups()) return;
    for_cache_level([&]<CacheLevel kLevel>() {
      FreshWords<type, G, kLevel> words(keys, input.first, prefetcher);
      for (; input.first + G <= keys.groups(); input.first += G) {
        if constexpr (type == StorageType::int8 && Q > 2 && G == 2) {
          FewInt8<Q>::run(words, input);
        } else {
          std::conditional_t<kAsTiles, OrderedTile<Q, G>, Tile<type, Q, G>>::run(words, input);
        }
      }
    });
  };
  in_tiles<kFewQueries>(count, [&]<std::size_t Q>(std::size_t) {
    of_groups.template operator()<2, Q>();
    of_groups.template operator()<1, Q>();
  });
}

template <>
void qk_few<StorageType::int4, false>(const Keys<StorageType::int4>& keys, TileInput input,
                                      std::size_t count, const PrefetchRange* range) {
  Prefetcher prefetcher(keys.view(), range, keys.groups() * keys.pieces() * kPieceLines);
  in_tiles<kFewQueries>(count, [&]<std::size_t Q>(std::size_t) {
    for (std::size_t p = 0; p < keys.pieces(); ++p) {
      for_cache_level([&]<CacheLevel kLevel>() {
        FewInt4<Q>::template run<kLevel>(keys, input, p, prefetcher);
      });
    }
  });
}

template <StorageType type>
void qk_many(const Keys<type>& keys, TileInput input, std::size_t count,
             const PrefetchRange* range) {
  Prefetcher prefetcher(keys.view(), range, keys.groups() * keys.pieces() * kPieceLines);
  const std::size_t words = keys.words();
  __m512i kept[kKeyGroups * kMaxDim / 2];
  for (std::size_t g = 0; g < keys.groups(); ++g) {
    const RowSet rows = keys.rows(g);
    for (std::size_t p = 0; p < keys.pieces(); ++p) {
      const std::uintptr_t lines = prefetcher.lines(kPieceLines);
      const PieceWords piece = keys.piece(rows, p);
      unroll<Keys<type>::kWords>([&](auto i) BALLAST_INLINE_LAMBDA {
        _mm512_store_si512(kept + g * words + p * Keys<type>::kWords + i,
                           Keys<type>::word(piece, i));
        if constexpr (i < kPieceLines) prefetcher.fetch(lines, i);
      });
    }
  }
  // Key groups form the outer loop, so that their keys stay in the L1 cache for all queries.
  const TileInput all = input;
  const auto of_groups = [&]<std::size_t G>() {
    for (; input.first + G <= keys.groups(); input.first += G) {
      in_tiles<kMostQueries<type>>(count, [&]<std::size_t Q>(std::size_t q) {
        input.queries = all.query(q);
        input.logits = all.logits + q * kEntryBlock;
        KeptWords<type> kept_words(kept + input.first * words, words);
        Tile<type, Q, G>::run(kept_words, input);
      });
    }
  };
  of_groups.template operator()<kMostGroups<type>>();
  of_groups.template operator()<1>();
}

template <StorageType type, bool kAsTiles = false>
void qk(const RowsView& rows, const float* queries, std::size_t count, float* logits,
        const PrefetchRange* range) {
  const Keys<type> keys(rows);
  const Scales<> scales(rows);
  const TileInput input{keys.pieces(), &scales, queries, packed_size(rows.dim), 0, logits};
  if (count <= kFewQueries) return qk_few<type, kAsTiles>(keys, input, count, range);
  if constexpr (kAsTiles) {
    static_assert(amx::least_queries(type) <= kFewQueries + 1, "tiles multiply more");
  } else {
    qk_many(keys, input, count, range);
  }
}

void qk_as_tiles(const RowsView& rows, const float* queries, std::size_t count, float* logits,
                 const PrefetchRange* range) {
  const RoundingOfTiles rounding;
  qk<StorageType::bf16, true>(rows, queries, count, logits, range);
}

}  // namespace

void qk_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
              const PrefetchRange* range) {
  if (keys.rows == 0) return;
  if (amx::multiplies(keys.type, count)) {
    return amx::qk_block(keys, queries, count, logits, range);
  }
  const auto run = keys.type == StorageType::int8   ? qk<StorageType::int8>
                   : keys.type == StorageType::int4 ? qk<StorageType::int4>
                   : has_amx_bf16()                 ? qk_as_tiles
                                                    : qk<StorageType::bf16>;
  run(keys, queries, count, logits, range);
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES

#else

namespace ballast::kernels::avx512 {

void qk_block(const RowsView&, const float*, std::size_t, float*, const PrefetchRange*) {}

}  // namespace ballast::kernels::avx512

#endif
