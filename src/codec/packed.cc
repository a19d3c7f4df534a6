#include "codec/packed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ballast/serialize.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "storage/round.h"

namespace ballast {
namespace {

constexpr std::byte kRaw{0}, kPacked{1};
/// Where a chunk may begin, if nobody knows.
constexpr std::int64_t kMostPosition = 1 << 17;

float get(const void* row, ElementType type, std::size_t i) {
  if (type == ElementType::f32) return static_cast<const float*>(row)[i];
  const std::uint16_t word = static_cast<const std::uint16_t*>(row)[i];
  return type == ElementType::bf16 ? kernels::bf16_decode(word) : kernels::f16_decode(word);
}

void put(float x, void* row, ElementType type, std::size_t i) {
  if (type == ElementType::f32) {
    static_cast<float*>(row)[i] = x;
  } else {
    static_cast<std::uint16_t*>(row)[i] =
        type == ElementType::bf16 ? kernels::bf16_encode(x) : kernels::f16_encode(x);
  }
}

/// Elements of the heads of a token.
std::size_t width_of(const HeadsView& v) { return v.heads * v.dim; }

/// Copies a token's heads side by side.
void gather(const HeadsView& view, std::size_t token, std::span<float> out) {
  for (std::size_t h = 0; h < view.heads; ++h) {
    const void* row = view.at(token, h);
    for (std::size_t i = 0; i < view.dim; ++i) out[h * view.dim + i] = get(row, view.type, i);
  }
}

void scatter(std::span<const float> in, const MutableHeadsView& view, std::size_t token) {
  for (std::size_t h = 0; h < view.heads; ++h) {
    void* row = view.at(token, h);
    for (std::size_t i = 0; i < view.dim; ++i) put(in[h * view.dim + i], row, view.type, i);
  }
}

std::size_t raw_bytes(const CacheShape& shape, std::size_t tokens) {
  return 2 * tokens * shape.layers * shape.kv_heads * (shape.key_dim + shape.value_dim);
}

void write_raw(ChunkCoder::Views keys, ChunkCoder::Views values, ByteWriter& out) {
  std::vector<float> row;
  for (const ChunkCoder::Views side : {keys, values}) {
    for (const HeadsView& view : side) {
      row.resize(width_of(view));
      for (std::size_t t = 0; t < view.tokens; ++t) {
        gather(view, t, row);
        for (float x : row) out.put(kernels::bf16_encode(x));
      }
    }
  }
}

void read_raw(ByteReader& in, ChunkCoder::MutableViews keys, ChunkCoder::MutableViews values) {
  std::vector<float> row;
  for (const ChunkCoder::MutableViews side : {keys, values}) {
    for (const MutableHeadsView& view : side) {
      row.resize(width_of(view));
      for (std::size_t t = 0; t < view.tokens; ++t) {
        for (float& x : row) {
          x = kernels::bf16_decode(in.get<std::uint16_t>());
          require(std::isfinite(x), ErrorCode::bad_file, "a chunk has an element out of range");
        }
        scatter(row, view, t);
      }
    }
  }
}

}  // namespace

PackedCoder::PackedCoder(const CacheShape& shape, std::shared_ptr<const PackBasis> basis,
                         std::uint32_t divisor)
    : shape_(shape),
      basis_(basis),
      codec_(std::move(basis)),
      back_(shape, true),
      forth_(shape, false) {
  const PackBasis& b = *basis_;
  require(b.layers == shape.layers && b.kv_heads == shape.kv_heads && b.key_dim == shape.key_dim &&
              b.value_dim == shape.value_dim,
          "a basis of {} layers, {} KV heads, keys of {} and values of {} elements for chunks of "
          "{}, {}, {} and {}: all layers and heads are packed together",
          b.layers, b.kv_heads, b.key_dim, b.value_dim, shape.layers, shape.kv_heads, shape.key_dim,
          shape.value_dim);
  const auto found = std::ranges::find(b.presets, divisor, &PackPreset::divisor);
  require(found != b.presets.end(), "the basis has no preset of 1/{}", divisor);
  step_ = found->step;
}

std::size_t PackedCoder::bound(std::size_t tokens) const { return 1 + raw_bytes(shape_, tokens); }

void PackedCoder::read(Views keys, Views values, std::size_t g, std::size_t first,
                       MutableMatrix out) const {
  const PackGroup& group = basis_->groups[g];
  const std::size_t width = basis_->layer_width(), key_width = basis_->kv_heads * basis_->key_dim;
  for (std::size_t t = 0; t < out.rows; ++t) {
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      const std::span<float> x = out[t].subspan(i * width, width);
      gather(keys[group.layers[i]], first + t, x.first(key_width));
      gather(values[group.layers[i]], first + t, x.subspan(key_width));
    }
  }
}

std::int64_t PackedCoder::find_position(Views keys, Views values) const {
  constexpr std::size_t kTokens = 8;
  const std::size_t tokens = keys[0].tokens, count = std::min(tokens, kTokens);
  if (tokens == 0 || codec_.basis().groups.empty()) return 0;
  const PackGroup& group = basis_->groups.front();
  const std::size_t width = basis_->layer_width(), key_width = basis_->kv_heads * basis_->key_dim;
  std::vector<std::size_t> which;  // of the chunk's second half: a text's first tokens are unlike
  for (std::size_t i = 0; i < count; ++i) which.push_back(tokens - 1 - i * tokens / (2 * count));
  Matrix rows(count, group.width()), turned(count, group.width());
  for (std::size_t i = 0; i < count; ++i) {
    read(keys, values, 0, which[i], rows.view().slice(i, 1));
  }
  double least = std::numeric_limits<double>::infinity();
  std::int64_t best = 0;
  for (std::int64_t n = 0; n < kMostPosition; n += static_cast<std::int64_t>(tokens)) {
    std::copy_n(rows.data(), count * group.width(), turned.data());
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      back_.turn(*basis_, group, static_cast<std::uint64_t>(n) + which[i],
                 turned.view().slice(i, 1));
      for (std::size_t at = 0; at < group.width(); at += width) {
        for (std::size_t c = at; c < at + key_width; ++c) {
          const double d = double{turned[i][c]} - double{group.mean[c]};
          sum += d * d;
        }
      }
    }
    if (sum < least) {
      least = sum;
      best = n;
    }
  }
  return best;
}

std::size_t PackedCoder::encode(Views keys, Views values, std::int64_t& position,
                                std::span<std::byte> out) const {
  const std::size_t tokens = keys[0].tokens;
  if (position < 0) position = find_position(keys, values);
  const PackedRows packed = codec_.encode(
      tokens,
      [&](std::size_t g, std::size_t first, MutableMatrix rows) {
        read(keys, values, g, first, rows);
        back_.turn(*basis_, basis_->groups[g], static_cast<std::uint64_t>(position) + first, rows);
      },
      step_);
  MemoryWriter body;
  const bool smaller = packed.bytes() < raw_bytes(shape_, tokens);
  body.put(smaller ? kPacked : kRaw);
  if (smaller) {
    packed.save(body);
  } else {
    write_raw(keys, values, body);
  }
  std::ranges::copy(body.bytes, out.begin());
  return body.bytes.size();
}

void PackedCoder::decode(std::span<const std::byte> body, std::int64_t position, MutableViews keys,
                         MutableViews values) const try {
  const std::size_t tokens = keys[0].tokens;
  ByteReader in(body, "a chunk");
  const auto kind = in.get<std::byte>();
  if (kind == kRaw) {
    require(in.left() == raw_bytes(shape_, tokens), ErrorCode::bad_file,
            "a chunk of {} tokens has {} bytes of rows", tokens, in.left());
    read_raw(in, keys, values);
    return;
  }
  require(kind == kPacked && position >= 0, ErrorCode::bad_file, "a chunk's rows are of no kind");
  const PackedRows packed = PackedRows::load(in, *basis_);
  require(packed.tokens == tokens && in.left() == 0, ErrorCode::bad_file,
          "a chunk of {} tokens has rows of {}, and {} bytes behind them", tokens, packed.tokens,
          in.left());
  const std::size_t width = basis_->layer_width(), key_width = basis_->kv_heads * basis_->key_dim;
  for (std::size_t g = 0; g < basis_->groups.size(); ++g) {
    const PackGroup& group = basis_->groups[g];
    Matrix rows(tokens, group.width());
    codec_.decode(packed, g, 0, rows.view());
    parallel_for(tokens, [&](std::size_t t) {
      forth_.turn(*basis_, group, static_cast<std::uint64_t>(position) + t,
                  rows.view().slice(t, 1));
      for (std::size_t i = 0; i < group.layers.size(); ++i) {
        const std::span<const float> x = std::span<const float>(rows[t]).subspan(i * width, width);
        scatter(x.first(key_width), keys[group.layers[i]], t);
        scatter(x.subspan(key_width), values[group.layers[i]], t);
      }
    });
  }
} catch (const Error& error) {
  rethrow_from_file(error);
}

}  // namespace ballast
