#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "ballast/joined.h"
#include "ballast/pack.h"
#include "ballast/scoring.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/thread_pool.h"
#include "pack/key_turner.h"
#include "pack/products.h"
#include "simd/vector_math.h"

// The file of a packed cache is little-endian, without padding.
//
//   8 bytes, u32     magic BALLASTP, version 2; 3: of later tokens
//   u64              version 3: the first token
//   u32, f32, f32    preset: divisor, step, loss
//   u64, u64, bytes  sizes before and after zlib; zlib of Cache::to_bytes() of an empty cache of
//   the
//                    same shape, but for recurrent layers, and the same options, with the note
//   u64[n]           u64 count; elements of the recurrent layers' states
//                    PackedRows::save()
//     u64, f32, u64    tokens, step, hash of the basis
//     u64              groups; each:
//       u32, u32[]       far tokens: count, which
//       2 × u32, bytes   zlib: u8 spread of each number; for each spread that occurs, rising, a
//                        table: u16[17] frequencies, i8[3] what decoding takes from magnitudes.
//                        The numbers of exact tokens, then the k coefficients of others
//       u32[]            sizes of the exact tokens and the blocks
//       bytes            these
//                    with recurrent layers: RecurrentStates::save()
//   u32              CRC-32 of all bytes before it
namespace ballast {
namespace {

constexpr std::array<char, 8> kMagic = {'B', 'A', 'L', 'L', 'A', 'S', 'T', 'P'};
constexpr std::uint32_t kVersion = 2, kLaterTokens = 3;

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void check_shape(const PackBasis& basis, const CacheShape& shape) {
  require(
      basis.layers == shape.layers && basis.kv_heads == shape.kv_heads &&
          basis.key_dim == shape.key_dim && basis.value_dim == shape.value_dim,
      "a cache of {} layers, {} KV heads, keys of {} and values of {} elements cannot be packed "
      "with a basis of {}, {}, {} and {}",
      shape.layers, shape.kv_heads, shape.key_dim, shape.value_dim, basis.layers, basis.kv_heads,
      basis.key_dim, basis.value_dim);
}

/// Of a cache's rows. In rolling caches keys come before rotation.
KeyTurner turner_of(const CacheShape& shape, const CacheOptions& options, bool back) {
  return options.positions == Positions::rolling ? KeyTurner() : KeyTurner(shape, back);
}

/// The rows of a cache that has every token.
class CacheRows {
 public:
  /// `skipped`: tokens that are left out.
  CacheRows(const Cache& cache, std::size_t skipped)
      : skipped_(skipped), turner_(turner_of(cache.shape(), cache.options(), true)) {
    const CacheShape& shape = cache.shape();
    const std::size_t tokens = cache.tokens();
    require(joined_tokens(cache) == 0, "joined documents are not packed: pack each of them");
    for (std::size_t l = 0; l < shape.layers; ++l) {
      for (std::size_t h = 0; h < shape.kv_heads; ++h) {
        heads_.push_back(cache.segments(l, h));
        std::size_t rows = 0;
        bool whole = cache.tokens(l) == tokens;
        for (const Segment& segment : heads_.back()) {
          whole &=
              segment.role == Role::both && segment.log_weights == nullptr &&
              segment.positions == nullptr &&
              (segment.first_position < 0 || segment.first_position == static_cast<Position>(rows));
          rows += segment.keys.rows;
        }
        require(whole && rows == tokens,
                "only caches with every token are packed: method {} keeps {} entries of {} tokens; "
                "read the text with the method exact",
                cache.options().policy.to_string(), rows, tokens);
      }
    }
  }

  void get(const PackBasis& basis, std::size_t g, std::size_t first, MutableMatrix out) const {
    const PackGroup& group = basis.groups[g];
    first += skipped_;
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      for (std::size_t h = 0; h < basis.kv_heads; ++h) {
        const std::size_t key = i * basis.layer_width() + h * basis.key_dim;
        const std::size_t value =
            i * basis.layer_width() + basis.kv_heads * basis.key_dim + h * basis.value_dim;
        std::size_t begin = 0;
        for (const Segment& s : heads_[group.layers[i] * basis.kv_heads + h]) {
          const std::size_t end = begin + s.keys.rows;
          for (std::size_t t = std::max(first, begin); t < std::min(first + out.rows, end); ++t) {
            s.keys.decode(t - begin, out[t - first].subspan(key, basis.key_dim));
            s.values.decode(t - begin, out[t - first].subspan(value, basis.value_dim));
          }
          begin = end;
        }
      }
    }
    turner_.turn(basis, group, first, out);
  }

 private:
  std::vector<std::vector<Segment>> heads_;  ///< layer by layer
  std::size_t skipped_;
  KeyTurner turner_;
};

/// The file up to its rows, and a reader of the rest.
struct Opened {
  PackedFile file;
  ByteReader rest;
};

Opened open(std::span<const std::byte> bytes, const std::string& name) {
  require(is_packed(bytes), "{}: not a packed cache", name);
  constexpr std::size_t tail = sizeof(std::uint32_t);
  require(bytes.size() >= kMagic.size() + sizeof(kVersion) + tail, "{}: ends within its head",
          name);
  Opened out{{},
             ByteReader(bytes.subspan(kMagic.size(), bytes.size() - kMagic.size() - tail), name)};
  ByteReader& in = out.rest;
  const auto version = in.get<std::uint32_t>();
  require(version == kVersion || version == kLaterTokens, ErrorCode::unsupported,
          "{}: a packed cache of version {}, this program reads version {}: read the text again",
          name, version, kVersion);
  std::uint32_t stored = 0;
  std::memcpy(&stored, bytes.data() + bytes.size() - tail, tail);
  require(stored == crc_of(bytes.first(bytes.size() - tail)),
          "{}: damaged: its checksum does not fit its content", name);
  if (version == kLaterTokens) {
    out.file.first = in.get_count(std::numeric_limits<Position>::max() / 2, "the first token");
  }
  out.file.preset.divisor = in.get<std::uint32_t>();
  out.file.preset.step = in.get<float>();
  out.file.preset.loss = in.get<float>();
  constexpr std::size_t kMostRatio = 1032;  // of zlib
  std::vector<std::byte> empty(in.get_count(in.left() * kMostRatio, "the size of the settings"));
  const std::size_t small = in.get_count(in.left(), "the size of the settings in the file");
  require(empty.size() / kMostRatio <= small, "{}: settings of {} bytes in {}", name, empty.size(),
          small);
  std::vector<std::byte> deflated(small);
  in.get_all<std::byte>(deflated);
  uLongf size = empty.size();
  const int status = uncompress(reinterpret_cast<Bytef*>(empty.data()), &size,
                                reinterpret_cast<const Bytef*>(deflated.data()), deflated.size());
  require(status == Z_OK && size == empty.size(), "{}: its settings are damaged", name);
  const Cache settings = Cache::parse(empty, name, &out.file.note);
  require(settings.tokens() == 0, "{}: its settings hold {} tokens", name, settings.tokens());
  out.file.shape = settings.shape();
  out.file.options = settings.options();
  out.file.shape.recurrent.resize(
      in.get_count(in.left() / sizeof(std::uint64_t), "recurrent layers"));
  std::size_t states = 0;
  for (std::size_t& n : out.file.shape.recurrent) {
    n = in.get_count(in.left() / sizeof(float), "the elements of a state");
    states += n;
  }
  require(states <= in.left() / sizeof(float), "{}: recurrent states of {} elements in {} bytes",
          name, states, in.left());
  ByteReader rows = in;  // which the reader of the rows reads again
  out.file.tokens = rows.get_count(std::numeric_limits<Position>::max(), "the number of tokens");
  rows.get<float>();
  out.file.basis = rows.get<std::uint64_t>();
  return out;
}

}  // namespace

bool is_packed(std::span<const std::byte> file) {
  return file.size() >= kMagic.size() &&
         std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0;
}

PackedFile PackedFile::parse(std::span<const std::byte> file, const std::string& name) try {
  return open(file, name).file;
} catch (const Error& error) {
  rethrow_from_file(error);
}

std::vector<std::byte> pack(const Cache& cache, const PackCodec& codec, const PackPreset& preset,
                            std::string_view note, std::size_t first) {
  const PoolScope scope(cache.options().pool.get());
  const CacheShape& shape = cache.shape();
  check_shape(codec.basis(), shape);
  require(first <= cache.tokens(), "{} tokens to be packed from {} on", cache.tokens(), first);
  const CacheRows rows(cache, first);
  const PackedRows packed = codec.encode(
      cache.tokens() - first,
      [&](std::size_t g, std::size_t token, MutableMatrix out) {
        rows.get(codec.basis(), g, token, out);
      },
      preset.step);
  MemoryWriter out;
  out.bytes.reserve(packed.bytes() + note.size() + 4096);
  out.put(kMagic);
  out.put(first > 0 ? kLaterTokens : kVersion);
  if (first > 0) out.put<std::uint64_t>(first);
  out.put(preset.divisor);
  out.put(preset.step);
  out.put(preset.loss);
  CacheShape attending = shape;
  attending.recurrent.clear();
  CacheOptions options = cache.options();
  options.recording = {};
  options.expected_tokens = 0;
  const std::vector<std::byte> empty = Cache(attending, options).to_bytes(note);
  std::vector<std::byte> deflated(compressBound(empty.size()));
  uLongf size = deflated.size();
  const int status = compress(reinterpret_cast<Bytef*>(deflated.data()), &size,
                              reinterpret_cast<const Bytef*>(empty.data()), empty.size());
  require(status == Z_OK, ErrorCode::out_of_memory, "no memory to compress settings");
  out.put<std::uint64_t>(empty.size());
  out.put<std::uint64_t>(size);
  out.write(deflated.data(), size);
  out.put<std::uint64_t>(shape.recurrent.size());
  for (std::size_t n : shape.recurrent) out.put<std::uint64_t>(n);
  packed.save(out);
  if (cache.recurrent() != nullptr) cache.recurrent()->save(out, cache.tokens());
  out.put(crc_of(out.bytes));
  return std::move(out.bytes);
}

void save_packed(const std::filesystem::path& path, const Cache& cache, const PackCodec& codec,
                 const PackPreset& preset, std::string_view note) {
  const std::vector<std::byte> bytes = pack(cache, codec, preset, note);
  OutputFile file(path);
  file.write(bytes);
  file.commit();
}

namespace {

/// Scores of tokens from their rows: what the calibration of the model gives, as far as rows tell.
class PackScores {
 public:
  /// Throws Error if the basis has none.
  explicit PackScores(const PackBasis& basis);
  /// Of rows x of a group: a row each, with a score for each of its layers and KV heads.
  Matrix of(std::size_t group, ConstMatrix rows) const;

 private:
  std::vector<Matrix> weights_;              ///< of each group: layers · KV heads × N
  std::vector<std::vector<float>> offsets_;  ///< for rows that are not about the mean
};
PackScores::PackScores(const PackBasis& basis) {
  require(basis.has_scores(), ErrorCode::unsupported,
          "the basis for packing has no scores, by which a part of the entries could be chosen: "
          "make it anew with: ballast calibrate");
  for (const PackGroup& group : basis.groups) {
    const std::size_t n = group.width(), k = group.directions();
    Matrix& weights = weights_.emplace_back(group.score_offsets.size(), n);
    std::vector<float>& offsets = offsets_.emplace_back(group.score_offsets);
    kernels::PackBlocks metric;
    std::size_t at = 0;
    for (std::size_t i = 0; i < 2 * group.layers.size(); ++i) {
      const std::size_t dim = i % 2 == 0 ? basis.key_dim : basis.value_dim;
      for (std::size_t h = 0; h < basis.kv_heads; ++h, at += dim * dim) {
        metric.add(dim, std::span(group.metric).subspan(at, dim * dim));
      }
    }
    parallel_for(weights.rows(), [&](std::size_t s) {
      std::vector<float> row(n);
      for (std::size_t i = 0; i < k; ++i) {
        const float factor = group.score_weights[s * k + i] * group.basis_scale[i];
        for (std::size_t c = 0; c < n; ++c) row[c] = group.basis[i * n + c];
        kernels::axpy(factor, row, weights[s]);
      }
      metric.apply(weights.view().slice(s, 1), {}, {});
      offsets[s] -= kernels::dot(weights[s], group.mean);
    });
  }
}

Matrix PackScores::of(std::size_t group, ConstMatrix rows) const {
  const Matrix& weights = weights_.at(group);
  Matrix out(rows.rows, weights.rows());
  parallel_for(rows.rows, [&](std::size_t t) {
    for (std::size_t s = 0; s < weights.rows(); ++s) {
      const float log_score = offsets_[group][s] + kernels::dot(weights[s], rows[t]);
      out[t][s] = std::exp(std::clamp(log_score, -40.0f, 40.0f));
    }
  });
  return out;
}

/// Unpacks some tokens at a time.
class Unpacker {
 public:
  /// Of rows that come behind what the cache has.
  Unpacker(const PackedRows& packed, const PackCodec& codec, Cache& cache)
      : packed_(packed),
        codec_(codec),
        cache_(cache),
        before_(cache.tokens()),
        chunk_(chunk_of(codec.basis())),
        turner_(turner_of(cache.shape(), cache.options(), false)) {
    const PackBasis& basis = codec.basis();
    if (scoring_of(cache).takes_scores()) scores_.emplace(basis);
    places_.resize(basis.layers);
    for (std::size_t g = 0; g < basis.groups.size(); ++g) {
      rows_.emplace_back(chunk_, basis.groups[g].width());
      const std::vector<std::size_t>& layers = basis.groups[g].layers;
      for (std::size_t i = 0; i < layers.size(); ++i) places_[layers[i]] = {g, i};
    }
  }

  /// Gives the cache all of them.
  void add_all() {
    for (std::size_t first = 0; first < packed_.tokens;) {
      Scoring& scoring = scoring_of(cache_);
      if (scoring.chunk_room() == 0) scoring.end_chunk();
      const std::size_t count = std::min({chunk_, packed_.tokens - first, scoring.chunk_room()});
      add(first, count);
      first += count;
    }
  }

 private:
  /// A few blocks for each thread, in 64 MiB at most where rows are wide.
  static std::size_t chunk_of(const PackBasis& basis) {
    std::size_t width = 0;
    for (const PackGroup& group : basis.groups) width += group.width();
    constexpr std::size_t kBlock = PackedRows::kBlock;
    const std::size_t most = (std::size_t{64} << 20) / sizeof(float) / width / kBlock;
    return std::clamp<std::size_t>(most, 1, 2 * loop_threads()) * kBlock;
  }
  /// Gives the cache tokens [first, first + count) of these.
  void add(std::size_t first, std::size_t count) {
    const PackBasis& basis = codec_.basis();
    std::vector<Matrix> scores;
    for (std::size_t g = 0; g < basis.groups.size(); ++g) {
      const MutableMatrix rows = rows_[g].view().slice(0, count);
      codec_.decode(packed_, g, first, rows);
      if (scores_) scores.push_back(scores_->of(g, rows));
      constexpr std::size_t kBlock = PackedRows::kBlock;
      parallel_for((count + kBlock - 1) / kBlock, [&](std::size_t p) {
        const std::size_t begin = p * kBlock, size = std::min(kBlock, count - begin);
        turner_.turn(basis, basis.groups[g], before_ + first + begin, rows.slice(begin, size));
      });
    }
    const std::size_t heads = basis.kv_heads;
    for (std::size_t l = 0; l < basis.layers; ++l) {
      const auto [g, i] = places_[l];
      const Matrix& of = rows_[g];
      const float* data = of.data() + i * basis.layer_width();
      const auto view = [&](std::size_t at, std::size_t dim) {
        return HeadsView{data + at, ElementType::f32, count, heads, dim, of.cols(), dim};
      };
      cache_.forward(l, view(0, basis.key_dim), view(heads * basis.key_dim, basis.value_dim),
                     HeadsView{}, MutableHeadsView{});
      if (!scores_) continue;
      const Matrix& all = scores[g];
      scoring_of(cache_).note_scores(l, {all.data() + i * heads, count, heads, all.cols()});
    }
  }

  struct Place {
    std::size_t group, index;
  };
  const PackedRows& packed_;
  const PackCodec& codec_;
  Cache& cache_;
  std::size_t before_, chunk_;
  KeyTurner turner_;
  std::optional<PackScores> scores_;
  std::vector<Matrix> rows_;   ///< of each group
  std::vector<Place> places_;  ///< of each layer
};

}  // namespace

Cache unpack(std::span<const std::byte> file, const std::string& name, const PackCodec& codec,
             const CacheOptions* wanted) try {
  const PackedFile packed = open(file, name).file;
  require(packed.first == 0, "{}: holds a text from token {} on, without its beginning", name,
          packed.first);
  CacheOptions options = wanted != nullptr ? *wanted : packed.options;
  require(!options.needs_queries() && !options.policy.needs().reads_again(), ErrorCode::unsupported,
          "{}: method {} needs queries or a replay pass, which a packed cache does not have", name,
          options.policy.to_string());
  if (wanted != nullptr && options.expected_tokens == 0) options.expected_tokens = packed.tokens;
  check_shape(codec.basis(), packed.shape);
  Cache cache(packed.shape, options);
  unpack_behind(cache, file, name, codec);
  if (options.protocol == Protocol::prefill && packed.tokens > 0) cache.finish_prompt();
  return cache;
} catch (const Error& error) {
  rethrow_from_file(error);
}

void unpack_behind(Cache& cache, std::span<const std::byte> file, const std::string& name,
                   const PackCodec& codec) try {
  Opened opened = open(file, name);
  check_shape(codec.basis(), cache.shape());
  require(opened.file.first == cache.tokens(), "{}: goes on from token {}, not from {}", name,
          opened.file.first, cache.tokens());
  const PackedRows packed = PackedRows::load(opened.rest, codec.basis());
  const PoolScope scope(cache.options().pool.get());
  Unpacker(packed, codec, cache).add_all();
  if (cache.recurrent() != nullptr) {
    cache.recurrent()->load(opened.rest);
    cache.recurrent()->set_tokens(cache.tokens(), name);
  }
  require(opened.rest.left() == 0, "{}: {} bytes too many", name, opened.rest.left());
} catch (const Error& error) {
  rethrow_from_file(error);
}

}  // namespace ballast
