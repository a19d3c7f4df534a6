#include "codec/fast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "codec/kernels/fast_rows.h"
#include "storage/round.h"

namespace ballast {
namespace {

using kernels::HeadRows;
using kernels::IndexTurns;

/// Of a block at most this fraction of tokens, or one, is kept exact: those whose rows have more
/// than kFar times the energy of the median.
constexpr std::size_t kFarFraction = 64;
constexpr float kFar = 6.0f;

/// Means, scales and exact elements are of this magnitude at most, so that sums of them are finite.
constexpr float kMostElement = 1e17f;

bool in_range(std::uint16_t word) {
  return std::abs(kernels::bf16_decode(word)) <= kMostElement;  // not NaN
}

std::size_t most_far(std::size_t tokens) { return std::max<std::size_t>(1, tokens / kFarFraction); }

/// The rotations of a layer by index, made once for all blocks.
class TurnTable {
 public:
  TurnTable(const Rotary& rotary, std::size_t dim, std::size_t tokens) {
    const std::size_t pairs = rotary.frequencies.size();
    if (pairs == 0) return;
    table_.assign(tokens * 2 * dim, 0.0f);
    for (std::size_t i = 0; i < dim; ++i) partner_[i] = static_cast<std::uint16_t>(i);
    for (std::size_t j = 0; j < tokens; ++j) std::fill_n(row(j, dim), dim, 1.0f);
    for (std::size_t f = 0; f < pairs; ++f) {
      const std::size_t a = rotary.pairs ? 2 * f : f, b = rotary.pairs ? 2 * f + 1 : f + pairs;
      partner_[a] = static_cast<std::uint16_t>(b);
      partner_[b] = static_cast<std::uint16_t>(a);
      for (std::size_t j = 0; j < tokens; ++j) {
        const double angle = static_cast<double>(j) * double{rotary.frequencies[f]};
        float* const cosines = row(j, dim);
        cosines[a] = cosines[b] = static_cast<float>(std::cos(angle));
        cosines[dim + b] = static_cast<float>(std::sin(angle));
        cosines[dim + a] = -cosines[dim + b];
      }
    }
  }
  IndexTurns turns() const { return {table_.empty() ? nullptr : table_.data(), partner_.data()}; }

 private:
  float* row(std::size_t j, std::size_t dim) { return table_.data() + j * 2 * dim; }
  std::vector<float> table_;
  std::array<std::uint16_t, 256> partner_{};
};

/// The tables of all layers; layers that turn alike share one.
class TurnTables {
 public:
  TurnTables(const CacheShape& shape, std::size_t tokens) {
    for (std::size_t l = 0; l < shape.layers; ++l) {
      const Rotary& rotary = shape.rotary_of(l);
      std::size_t same = 0;
      while (same < l && !(shape.rotary_of(same) == rotary)) ++same;
      of_.push_back(same < l ? of_[same]
                             : std::make_shared<TurnTable>(rotary, shape.key_dim, tokens));
    }
  }
  IndexTurns of(std::size_t layer, int side) const {
    return side == 0 ? of_[layer]->turns() : IndexTurns{};
  }

 private:
  std::vector<std::shared_ptr<const TurnTable>> of_;
};

std::uint8_t* put_words(const std::uint16_t* words, std::size_t count, std::uint8_t* out) {
  std::memcpy(out, words, count * sizeof(*words));
  return out + count * sizeof(*words);
}

template <typename View>
auto rows_of(const View& view, std::size_t head) {
  using Void = std::remove_pointer_t<decltype(view.data)>;
  return HeadRows<Void>{view.at(0, head), view.type, view.tokens, view.dim, view.token_stride};
}

std::uint16_t as_bf16(const HeadsView& view, std::size_t token, std::size_t head, std::size_t i) {
  const void* row = view.at(token, head);
  if (view.type == ElementType::f32) return kernels::bf16_encode(static_cast<const float*>(row)[i]);
  const std::uint16_t word = static_cast<const std::uint16_t*>(row)[i];
  return view.type == ElementType::bf16 ? word : kernels::bf16_encode(kernels::f16_decode(word));
}

void put_bf16(std::uint16_t word, const MutableHeadsView& view, std::size_t token, std::size_t head,
              std::size_t i) {
  void* row = view.at(token, head);
  const float x = kernels::bf16_decode(word);
  if (view.type == ElementType::f32) {
    static_cast<float*>(row)[i] = x;
  } else {
    static_cast<std::uint16_t*>(row)[i] =
        view.type == ElementType::bf16 ? word : kernels::f16_encode(x);
  }
}

/// Tokens whose energy is far above the median, rising.
std::vector<std::uint8_t> far_tokens(std::span<const float> energies) {
  std::vector<float> sorted(energies.begin(), energies.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  const float least = kFar * *middle;
  std::vector<std::uint8_t> out;
  for (std::size_t j = 0; j < energies.size(); ++j) {
    if (energies[j] > least) out.push_back(static_cast<std::uint8_t>(j));
  }
  if (const std::size_t most = most_far(energies.size()); out.size() > most) {
    std::ranges::stable_sort(out, [&](auto a, auto b) { return energies[a] > energies[b]; });
    out.resize(most);
    std::ranges::sort(out);
  }
  return out;
}

struct FarRows {
  std::vector<std::uint8_t> tokens;
  std::vector<std::uint16_t> rows;
};

FarRows far_rows(const HeadsView& view, std::span<const float> energies) {
  FarRows out{far_tokens(energies), {}};
  for (const std::uint8_t token : out.tokens) {
    for (std::size_t h = 0; h < view.heads; ++h) {
      for (std::size_t i = 0; i < view.dim; ++i) out.rows.push_back(as_bf16(view, token, h, i));
    }
  }
  return out;
}

void put_far_rows(const MutableHeadsView& view, std::span<const std::uint8_t> tokens,
                  const std::uint8_t* rows) {
  for (const std::uint8_t token : tokens) {
    for (std::size_t h = 0; h < view.heads; ++h) {
      for (std::size_t i = 0; i < view.dim; ++i, rows += sizeof(std::uint16_t)) {
        std::uint16_t word = 0;
        std::memcpy(&word, rows, sizeof(word));
        require(in_range(word), ErrorCode::bad_file, "a chunk has an element out of range");
        put_bf16(word, view, token, h, i);
      }
    }
  }
}

/// Writes the heads of a block; returns the energies of its tokens.
std::array<float, kFastBlock> encode_block(const HeadsView& view, const IndexTurns& turns,
                                           StorageType type, bool averaged, std::uint8_t* out) {
  std::array<float, kFastBlock> energies{};
  float mean[256];
  std::uint16_t words[256], scales[kFastBlock];
  for (std::size_t h = 0; h < view.heads; ++h) {
    const auto rows = rows_of(view, h);
    kernels::mean_of_rows(rows, turns, mean);
    for (std::size_t i = 0; i < view.dim; ++i) {
      require(std::abs(mean[i]) < kMostElement, ErrorCode::not_finite,
              "an element of KV head {} is not finite, or above 1e15", h);
      words[i] = kernels::bf16_encode(mean[i]);
      mean[i] = kernels::bf16_decode(words[i]);
    }
    out = put_words(words, view.dim, out);
    std::uint8_t* const codes = out + view.tokens * sizeof(scales[0]);
    kernels::encode_rows(rows, turns, mean, type, averaged, reinterpret_cast<std::byte*>(codes),
                         scales, energies.data());
    put_words(scales, view.tokens, out);
    out = codes + view.tokens * row_bytes(type, view.dim);
  }
  for (std::size_t j = 0; j < view.tokens; ++j) {
    require(std::isfinite(energies[j]), ErrorCode::not_finite,
            "an element of token {} is not finite, or above 1e15", j);
  }
  return energies;
}

void decode_block(const std::uint8_t* in, const IndexTurns& turns, StorageType type,
                  const MutableHeadsView& view) {
  float mean[256];
  std::uint16_t words[256], scales[kFastBlock];
  for (std::size_t h = 0; h < view.heads; ++h) {
    std::memcpy(words, in, view.dim * sizeof(words[0]));
    in += view.dim * sizeof(words[0]);
    std::memcpy(scales, in, view.tokens * sizeof(scales[0]));
    in += view.tokens * sizeof(scales[0]);
    require(std::all_of(words, words + view.dim, in_range) &&
                std::all_of(scales, scales + view.tokens, in_range),
            ErrorCode::bad_file, "a chunk has a mean or a scale out of range");
    for (std::size_t i = 0; i < view.dim; ++i) mean[i] = kernels::bf16_decode(words[i]);
    kernels::decode_rows(type, reinterpret_cast<const std::byte*>(in), scales, turns, mean,
                         rows_of(view, h));
    in += view.tokens * row_bytes(type, view.dim);
  }
}

std::size_t blocks_of(std::size_t tokens) { return (tokens + kFastBlock - 1) / kFastBlock; }

}  // namespace

/// Where the rows of a layer, a block and a side are.
struct FastCoder::Section {
  std::size_t layer, first, tokens;
  int side;
  std::size_t begin;  ///< byte of the body
};

std::size_t FastCoder::section_bytes(int side, std::size_t tokens) const {
  return shape_.kv_heads *
         (dim(side) * sizeof(std::uint16_t) + tokens * stored_row_bytes(types_[side], dim(side)));
}

FastCoder::Section FastCoder::section(std::size_t index, std::size_t tokens) const {
  const std::size_t blocks = blocks_of(tokens), block = index / 2 % blocks;
  Section out{};
  out.layer = index / 2 / blocks;
  out.first = block * kFastBlock;
  out.tokens = std::min(kFastBlock, tokens - out.first);
  out.side = static_cast<int>(index % 2);
  std::size_t layer_bytes = 0;
  for (int side : {0, 1}) {
    const std::size_t whole = section_bytes(side, kFastBlock);
    const std::size_t last = section_bytes(side, tokens - (blocks - 1) * kFastBlock);
    layer_bytes += (blocks - 1) * whole + last;
    out.begin += block * whole;
  }
  if (out.side == 1) out.begin += section_bytes(0, out.tokens);
  out.begin += out.layer * layer_bytes;
  return out;
}

std::size_t FastCoder::bound(std::size_t tokens) const {
  std::size_t bytes = 0;
  for (std::size_t first = 0; first < tokens; first += kFastBlock) {
    const std::size_t count = std::min(kFastBlock, tokens - first);
    for (int side : {0, 1}) {
      const std::size_t row = 1 + shape_.kv_heads * dim(side) * sizeof(std::uint16_t);
      bytes += section_bytes(side, count) + 1 + most_far(count) * row;
    }
  }
  return shape_.layers * bytes;
}

std::size_t FastCoder::encode(Views keys, Views values, std::int64_t& /*position*/,
                              std::span<std::byte> out) const {
  const std::size_t tokens = keys[0].tokens;
  const std::size_t count = 2 * shape_.layers * blocks_of(tokens);
  if (count == 0) return 0;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(out.data());
  const TurnTables tables(shape_, std::min(tokens, kFastBlock));
  std::vector<FarRows> far(count);
  parallel_for(count, [&](std::size_t i) {
    const Section s = section(i, tokens);
    const HeadsView view = (s.side == 0 ? keys : values)[s.layer].slice(s.first, s.tokens);
    try {
      const auto energies = encode_block(view, tables.of(s.layer, s.side), types_[s.side],
                                         s.side == 1, bytes + s.begin);
      far[i] = far_rows(view, std::span(energies).first(s.tokens));
    } catch (const Error& error) {
      fail(error.code(), "{} of layer {}, tokens from {}: {}", s.side == 0 ? "keys" : "values",
           s.layer, s.first, error.what());
    }
  });
  const Section last = section(count - 1, tokens);
  std::uint8_t* at = bytes + last.begin + section_bytes(1, last.tokens);
  for (const FarRows& f : far) *at++ = static_cast<std::uint8_t>(f.tokens.size());
  for (const FarRows& f : far) at = std::copy(f.tokens.begin(), f.tokens.end(), at);
  for (const FarRows& f : far) at = put_words(f.rows.data(), f.rows.size(), at);
  return static_cast<std::size_t>(at - bytes);
}

void FastCoder::decode(std::span<const std::byte> body, std::int64_t /*position*/,
                       MutableViews keys, MutableViews values) const {
  const std::size_t tokens = keys[0].tokens;
  const std::size_t count = 2 * shape_.layers * blocks_of(tokens);
  const auto fits = [](bool right) {
    require(right, ErrorCode::bad_file, "a chunk's body does not fit its head");
  };
  if (count == 0) return fits(body.empty());
  const Section last = section(count - 1, tokens);
  const std::size_t coded = last.begin + section_bytes(1, last.tokens);
  fits(body.size() >= coded + count);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(body.data());
  const std::uint8_t* const counts = bytes + coded;
  std::vector<std::size_t> far(count + 1), rows(count + 1);  // where those of a section begin
  for (std::size_t i = 0; i < count; ++i) {
    far[i + 1] = far[i] + counts[i];
    rows[i + 1] = rows[i] + counts[i] * shape_.kv_heads * dim(static_cast<int>(i % 2)) *
                                sizeof(std::uint16_t);
  }
  fits(body.size() == coded + count + far[count] + rows[count]);
  const TurnTables tables(shape_, std::min(tokens, kFastBlock));
  parallel_for(count, [&](std::size_t i) {
    const Section s = section(i, tokens);
    const MutableHeadsView view = (s.side == 0 ? keys : values)[s.layer].slice(s.first, s.tokens);
    const std::span which(counts + count + far[i], counts[i]);
    fits(std::ranges::all_of(which, [&](std::uint8_t token) { return token < s.tokens; }));
    decode_block(bytes + s.begin, tables.of(s.layer, s.side), types_[s.side], view);
    put_far_rows(view, which, counts + count + far[count] + rows[i]);
  });
}

}  // namespace ballast
