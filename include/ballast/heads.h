// Views of heads in the caller's memory: keys, values, queries and outputs as an engine holds them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ballast/matrix.h"

namespace ballast {

/// How the caller stores an element. f16: IEEE binary16; bf16: the upper half of a float32.
enum class ElementType : std::uint8_t { f32, f16, bf16 };

constexpr std::size_t element_bytes(ElementType type) { return type == ElementType::f32 ? 4 : 2; }

/// A view of `tokens` × `heads` vectors of `dim` contiguous elements. Strides are in elements.
/// Data is aligned for its type.
template <typename Void>
struct BasicHeadsView {
  Void* data = nullptr;
  ElementType type = ElementType::f32;
  std::size_t tokens = 0;
  std::size_t heads = 0;
  std::size_t dim = 0;
  std::size_t token_stride = 0;  ///< from a token to the next, same head
  std::size_t head_stride = 0;   ///< from a head to the next, same token

  BasicHeadsView() = default;
  BasicHeadsView(Void* data, ElementType type, std::size_t tokens, std::size_t heads,
                 std::size_t dim, std::size_t token_stride, std::size_t head_stride)
      : data(data),
        type(type),
        tokens(tokens),
        heads(heads),
        dim(dim),
        token_stride(token_stride),
        head_stride(head_stride) {}
  /// Rows of tokens in float32, as one head: Cache::forward() takes its heads side by side.
  template <typename Float>
  BasicHeadsView(MatrixView<Float> rows)  // NOLINT: a matrix is such a view
      : BasicHeadsView(of(rows, 1)) {}

  /// A contiguous array [token][head][dim].
  static BasicHeadsView token_major(Void* data, ElementType type, std::size_t tokens,
                                    std::size_t heads, std::size_t dim) {
    return {data, type, tokens, heads, dim, heads * dim, dim};
  }
  /// A contiguous array [head][token][dim].
  static BasicHeadsView head_major(Void* data, ElementType type, std::size_t tokens,
                                   std::size_t heads, std::size_t dim) {
    return {data, type, tokens, heads, dim, dim, tokens * dim};
  }
  /// Rows of tokens in float32, heads side by side.
  template <typename Float>
  static BasicHeadsView of(MatrixView<Float> rows, std::size_t heads) {
    const std::size_t dim = heads == 0 ? 0 : rows.cols / heads;
    return {rows.data, ElementType::f32, rows.rows, heads, dim, rows.stride, dim};
  }
  // A view that may be written to converts to one that is read.
  operator BasicHeadsView<const void>() const {  // NOLINT
    return {data, type, tokens, heads, dim, token_stride, head_stride};
  }

  /// Tokens [begin, begin + count).
  BasicHeadsView slice(std::size_t begin, std::size_t count) const {
    BasicHeadsView part = *this;
    part.data = at(begin, 0);
    part.tokens = count;
    return part;
  }
  /// The first element of a head of a token; null when there is no data.
  Void* at(std::size_t token, std::size_t head) const {
    if (data == nullptr) return nullptr;
    return shift(data, (token * token_stride + head * head_stride) * element_bytes(type));
  }

 private:
  static const void* shift(const void* p, std::size_t n) {
    return static_cast<const std::byte*>(p) + n;
  }
  static void* shift(void* p, std::size_t n) { return static_cast<std::byte*>(p) + n; }
};

using HeadsView = BasicHeadsView<const void>;
using MutableHeadsView = BasicHeadsView<void>;

}  // namespace ballast
