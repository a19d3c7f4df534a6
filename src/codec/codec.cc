#include "ballast/codec.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ballast/pack.h"
#include "base/fail.h"
#include "base/fnv.h"
#include "codec/chunk_head.h"
#include "codec/fast.h"
#include "codec/packed.h"

namespace ballast {
namespace {

constexpr std::size_t kMostDim = 256;
/// Far above what a cache has; keeps products of sizes within 64 bits.
constexpr std::size_t kMostLayers = 1 << 14, kMostHeads = 1 << 14;

struct FastPreset {
  std::string_view name;
  StorageType values;
};
constexpr std::array<FastPreset, 3> kFast = {
    {{"fast-4", StorageType::q4}, {"fast-3", StorageType::q3}, {"fast-2", StorageType::q2}}};

struct PackedPreset {
  std::string_view name;
  std::uint32_t divisor;
};
constexpr std::array<PackedPreset, 2> kPacked = {{{"pack-16", 16}, {"pack-32", 32}}};

std::shared_ptr<const ChunkCoder> coder_of(const CacheShape& shape, std::string_view preset,
                                           std::shared_ptr<const PackBasis> basis) {
  for (const FastPreset& p : kFast) {
    if (p.name == preset) return std::make_shared<FastCoder>(shape, StorageType::q4, p.values);
  }
  for (const PackedPreset& p : kPacked) {
    if (p.name != preset) continue;
    require(basis != nullptr,
            "preset {} needs the model's basis: make one with: ballast calibrate -m MODEL", preset);
    return std::make_shared<PackedCoder>(shape, std::move(basis), p.divisor);
  }
  fail("preset '{}'; known: fast-4, fast-3, fast-2, pack-16, pack-32", preset);
}

void check_shape(const CacheShape& s) {
  require(s.layers >= 1 && s.layers <= kMostLayers && s.kv_heads >= 1 && s.kv_heads <= kMostHeads,
          "{} layers of {} KV heads; a codec takes 1 to {} of each", s.layers, s.kv_heads,
          kMostLayers);
  for (std::size_t dim : {s.key_dim, s.value_dim}) {
    require(dim >= 1 && dim <= kMostDim, "heads of {} dimensions; a codec takes 1 to {}", dim,
            kMostDim);
  }
  require(s.rotations.empty() || s.rotations.size() == s.layers, "rotations of {} layers of {}",
          s.rotations.size(), s.layers);
  for (std::size_t l = 0; l < s.layers; ++l) {
    require(2 * s.rotary_of(l).frequencies.size() <= s.key_dim,
            "{} rotations of two elements in keys of {}", s.rotary_of(l).frequencies.size(),
            s.key_dim);
  }
}

std::uint64_t fingerprint_of(const CacheShape& shape, std::string_view model,
                             const PackBasis* basis) {
  Fnv hash;
  hash.add(model.size());
  hash.add(std::as_bytes(std::span(model)));
  for (std::size_t l = 0; l < (shape.rotations.empty() ? 1 : shape.layers); ++l) {
    const Rotary& rotary = shape.rotary_of(l);
    hash.add(rotary.frequencies.size());
    hash.add(std::as_bytes(std::span(rotary.frequencies)));
    hash.add(rotary.pairs ? 1 : 0);
  }
  if (basis != nullptr) hash.add(basis->hash());
  return hash.value();
}

/// Throws Error unless the views are those of a chunk of the shape; returns its tokens.
template <typename View>
std::size_t tokens_of(const CacheShape& shape, std::span<const View> keys,
                      std::span<const View> values) {
  require(keys.size() == shape.layers && values.size() == shape.layers,
          "keys of {} layers and values of {}; the codec is for {}", keys.size(), values.size(),
          shape.layers);
  const std::size_t tokens = keys[0].tokens;
  for (const auto& [views, dim, name] :
       {std::tuple(keys, shape.key_dim, "keys"), std::tuple(values, shape.value_dim, "values")}) {
    for (std::size_t l = 0; l < views.size(); ++l) {
      const View& v = views[l];
      require(v.tokens == tokens && v.heads == shape.kv_heads && v.dim == dim,
              "{} of layer {}: {} tokens of {} heads of {}; expected {} of {} of {}", name, l,
              v.tokens, v.heads, v.dim, tokens, shape.kv_heads, dim);
      require(v.data != nullptr || tokens == 0, "{} of layer {} are null", name, l);
    }
  }
  return tokens;
}

}  // namespace

Codec::Codec(CacheShape shape, std::string_view preset, std::string_view model,
             std::shared_ptr<const PackBasis> basis)
    : shape_(std::move(shape)), preset_(preset == "fast" ? kFast[0].name : preset) {
  check_shape(shape_);
  const bool packs = preset_.starts_with("pack");
  fingerprint_ = fingerprint_of(shape_, model, packs ? basis.get() : nullptr);
  coder_ = coder_of(shape_, preset_, std::move(basis));
}

std::size_t Codec::bound(std::size_t tokens) const {
  require(tokens <= std::numeric_limits<Position>::max(), "a chunk of {} tokens", tokens);
  return kChunkHeadBytes + coder_->bound(tokens);
}

std::size_t Codec::encode(Views keys, Views values, std::span<std::byte> out,
                          std::int64_t position) const {
  const std::size_t tokens = tokens_of(shape_, keys, values);
  require(out.size() >= bound(tokens), "room of {} bytes for a chunk of up to {}", out.size(),
          bound(tokens));
  position = std::max<std::int64_t>(position, -1);
  const std::size_t body = coder_->encode(keys, values, position, out.subspan(kChunkHeadBytes));
  ChunkInfo info;
  info.model = fingerprint_;
  info.layers = shape_.layers;
  info.kv_heads = shape_.kv_heads;
  info.key_dim = shape_.key_dim;
  info.value_dim = shape_.value_dim;
  info.tokens = tokens;
  info.position = position;
  info.preset = preset_;
  info.bytes = kChunkHeadBytes + body;
  write_chunk_head(info, out);
  return info.bytes;
}

void Codec::decode(std::span<const std::byte> chunk, MutableViews keys, MutableViews values) const {
  const std::size_t tokens = tokens_of(shape_, keys, values);
  const ChunkInfo info = read_chunk_head(chunk);
  const auto expect = [](bool same, std::string_view what, const auto& has, const auto& wants) {
    require(same, ErrorCode::bad_file, "a chunk of another {}: {}, expected {}", what, has, wants);
  };
  const auto shape = [](const auto& s) {
    return fmt::format("{} layers of {} KV heads of {} and {}", s.layers, s.kv_heads, s.key_dim,
                       s.value_dim);
  };
  expect(info.layers == shape_.layers && info.kv_heads == shape_.kv_heads &&
             info.key_dim == shape_.key_dim && info.value_dim == shape_.value_dim,
         "shape", shape(info), shape(shape_));
  expect(info.model == fingerprint_, "model", fmt::format("{:016x}", info.model),
         fmt::format("{:016x}", fingerprint_));
  expect(info.preset == preset_, "preset", info.preset, preset_);
  expect(info.tokens == tokens, "length", info.tokens, tokens);
  coder_->decode(chunk.first(info.bytes).subspan(kChunkHeadBytes), info.position, keys, values);
}

ChunkInfo Codec::inspect(std::span<const std::byte> chunk) { return read_chunk_head(chunk); }

}  // namespace ballast
