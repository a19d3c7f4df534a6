// Packed contexts: every token of a text in a small fraction of the bytes of its cache, for caches
// that rest on disk.
//
// The vector x of a token has the keys before rotary positions and the values of a group of layers.
//   y = Q^T Ms (x - mean)      Ms: symmetric roots of the model's own metric, a block a head
//   q = y / step, rounded      one step for the whole text
// The integers q are entropy-coded. Decoding is integer products and float32 sums in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/cache.h"
#include "ballast/matrix.h"
#include "ballast/serialize.h"
#include "ballast/storage.h"

namespace ballast {

/// The transform of a group of layers. Elements of x: for each layer in order the keys of KV head
/// 0, 1, …, then the values of KV head 0, 1, …; N of them. Keys are before rotary positions, and
/// without the magnitude that these multiply them by.
struct PackGroup {
  /// Rising, counted among the layers that attend. Layers with a sliding window and others are in
  /// different groups.
  std::vector<std::size_t> layers;
  std::vector<float> mean;  ///< N
  /// For each layer kv_heads blocks of key_dim × key_dim, then kv_heads blocks of value_dim ×
  /// value_dim: symmetric positive definite roots Ms.
  std::vector<float> metric;
  std::vector<float> variance;     ///< of the k coefficients y in the calibration, falling
  std::vector<std::int8_t> basis;  ///< k rows of N: Q^T, divided by basis_scale of the row
  std::vector<float> basis_scale;  ///< k
  /// What rounding left of the first rows of `basis`, in 1/254 of a code: as many rows of N.
  std::vector<std::int8_t> fine;
  /// Log scores of a token, as the model's calibration gives them: for each layer and KV head an
  /// offset, and a row of k weights of the coefficients y. Both empty: there was no calibration.
  std::vector<float> score_offsets, score_weights;
  std::size_t width() const { return mean.size(); }           ///< N
  std::size_t directions() const { return variance.size(); }  ///< k
};

/// A step, and what it was measured to give on ordinary text.
struct PackPreset {
  std::uint32_t divisor = 0;  ///< 16: a sixteenth of the bytes of bf16 rows
  float step = 0;
  float loss = 0;  ///< nats a token (KL to the exact cache) of held-out text; 0: not measured
  bool operator==(const PackPreset&) const = default;
};

/// What packing rests on: one a model, made by `ballast calibrate`.
struct PackBasis {
  std::string model;                                                 ///< calibration_key()
  std::size_t layers = 0, kv_heads = 0, key_dim = 0, value_dim = 0;  ///< as in CacheShape
  std::vector<PackGroup> groups;                                     ///< every layer is in one
  std::vector<PackPreset> presets;

  /// Elements of one layer in x.
  std::size_t layer_width() const { return kv_heads * (key_dim + value_dim); }
  /// Elements of one layer in PackGroup::metric.
  std::size_t metric_size() const { return kv_heads * (key_dim * key_dim + value_dim * value_dim); }
  /// Whether tokens can be scored from their rows.
  bool has_scores() const;
  /// Differs where a decoded row differs; presets and scores do not count.
  std::uint64_t hash() const;
  /// Throws Error, which begins with `name`, on sizes that do not fit together, elements that are
  /// not finite, or a variance or scale that is not positive.
  void check(const std::string& name) const;

  /// Writes a versioned file with a checksum, whole or not at all. Metrics are rounded to f16: use
  /// the basis that load() returns, whose hash() is that of others who load it.
  void save(const std::filesystem::path& path) const;
  /// Throws Error that says what is wrong with a damaged or foreign file.
  static PackBasis load(const std::filesystem::path& path);
  /// The same from memory; errors begin with `name`.
  static PackBasis parse(std::span<const std::byte> bytes, const std::string& name);
};

/// The rows of a text, packed.
struct PackedRows {
  /// Tokens at the start and at the end of a text that are stored nearly exactly.
  static constexpr std::size_t kExactFirst = 4, kExactLast = 8;
  /// Tokens that are coded together.
  static constexpr std::size_t kBlock = 128;

  /// How numbers are coded.
  struct Code {
    /// Of each number, how widely it spreads: an index into a fixed scale; 0: it is not stored.
    std::vector<std::uint8_t> spread;
    /// Frequencies of the symbols of each spread, and where their magnitudes are decoded to.
    std::vector<std::byte> tables;
  };
  struct Group {
    /// Tokens between the exact ones that lie far from all others, in the metric (attention
    /// sinks): rising. At most a 64th.
    std::vector<std::uint32_t> far;
    /// What the blocks lose of Ms (x - mean) of tokens 0 to 3, of the last 8, then of the far ones,
    /// in a 16th of the step; 32 elements of a token have one spread.
    Code exact_code;
    std::vector<std::byte> exact;
    Code code;                                   ///< of the k coefficients
    std::vector<std::vector<std::byte>> blocks;  ///< of kBlock tokens each, the last fewer
  };

  std::size_t tokens = 0;
  float step = 0;
  std::uint64_t basis = 0;  ///< PackBasis::hash()
  std::vector<Group> groups;

  /// All that save() writes.
  std::size_t bytes() const;
  void save(ByteWriter& out) const;
  /// Throws Error if the bytes are damaged, or packed with another basis.
  static PackedRows load(ByteReader& in, const PackBasis& basis);
};

/// Packs and unpacks with one basis. Any thread may call; loops run on the pool of the scope.
class PackCodec {
 public:
  /// Writes x of tokens [first, first + out.rows) of a group into the rows of `out`. Several
  /// threads call it at once.
  using Rows = std::function<void(std::size_t group, std::size_t first, MutableMatrix out)>;

  explicit PackCodec(std::shared_ptr<const PackBasis> basis);
  ~PackCodec();
  PackCodec(PackCodec&&) noexcept;
  PackCodec& operator=(PackCodec&&) noexcept;

  const PackBasis& basis() const { return *basis_; }

  /// The result does not depend on threads. Throws Error on a step that is not positive, or an
  /// element that is not finite.
  PackedRows encode(std::size_t tokens, const Rows& rows, float step) const;
  /// The step with which encode() takes about 1/divisor of the bytes of bf16 rows, within 1%: found
  /// on a sample of the tokens.
  float step_for(std::size_t tokens, const Rows& rows, double divisor) const;
  /// x of tokens [first, first + out.rows) of a group.
  void decode(const PackedRows& packed, std::size_t group, std::size_t first,
              MutableMatrix out) const;

 private:
  struct Prepared;
  std::shared_ptr<const PackBasis> basis_;
  std::unique_ptr<Prepared> prepared_;
};

/// Whether a file holds a packed cache.
bool is_packed(std::span<const std::byte> file);

/// What the file of a packed cache says before it is unpacked.
struct PackedFile {
  PackPreset preset;
  std::uint64_t basis = 0;  ///< PackBasis::hash()
  std::size_t first = 0;    ///< of the tokens; those before are elsewhere
  std::size_t tokens = 0;
  CacheShape shape;
  CacheOptions options;  ///< of the cache that was packed
  std::string note;

  /// Throws Error, which begins with `name`, if the file is damaged or no packed cache.
  static PackedFile parse(std::span<const std::byte> file, const std::string& name);
};

/// The file of a cache: the rows of all its tokens packed, states of recurrent layers as they are.
/// `note` is kept with it. Throws Error unless the cache is of the basis' shape and has every token
/// of its text: it is exact, of whatever storage type, and not joined. `first`: the tokens before
/// that one stay out, for unpack_behind().
std::vector<std::byte> pack(const Cache& cache, const PackCodec& codec, const PackPreset& preset,
                            std::string_view note = {}, std::size_t first = 0);
/// The same into a file, whole or not at all.
void save_packed(const std::filesystem::path& path, const Cache& cache, const PackCodec& codec,
                 const PackPreset& preset, std::string_view note = {});

/// The cache of such a file: its tokens as if they had just been read, and with protocol prefill
/// the prompt ended. `options`: those of the cache to be made; null: of the one that was packed.
/// A method whose scores come with the tokens (calibrated) gets them from the rows. Throws Error as
/// PackedFile::parse() does, for a file that was packed with another basis, for options of a method
/// that needs queries or a replay pass, and where the basis has no scores.
Cache unpack(std::span<const std::byte> file, const std::string& name, const PackCodec& codec,
             const CacheOptions* options = nullptr);
/// Gives an exact cache that has the tokens before them those of a file of later tokens. Throws
/// Error as unpack() does, and where the file goes on from another token.
void unpack_behind(Cache& cache, std::span<const std::byte> file, const std::string& name,
                   const PackCodec& codec);

}  // namespace ballast
