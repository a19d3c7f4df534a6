// Row-major matrices of float32 and views of them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace ballast {

/// Every buffer begins at a multiple of this many bytes: a cache line, and an AVX-512 register.
inline constexpr std::size_t kAlignment = 64;

struct FreeAligned {
  void operator()(void* p) const { std::free(p); }
};

/// An owned, uninitialised, aligned array. Holds no size: the owner knows it.
template <typename T>
using AlignedArray = std::unique_ptr<T[], FreeAligned>;

/// Throws std::bad_alloc when memory is short.
template <typename T>
AlignedArray<T> allocate_aligned(std::size_t count) {
  if (count > (std::size_t{1} << 62) / sizeof(T)) throw std::bad_alloc();
  std::size_t bytes = (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  void* p = std::aligned_alloc(kAlignment, bytes == 0 ? kAlignment : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return AlignedArray<T>(static_cast<T*>(p));
}

/// A view of `rows` rows of `cols` elements, consecutive rows `stride` elements apart.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;

  MatrixView() = default;
  MatrixView(T* data, std::size_t rows, std::size_t cols, std::size_t stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}
  MatrixView(T* data, std::size_t rows, std::size_t cols) : MatrixView(data, rows, cols, cols) {}
  // A view of mutable elements converts to one of constant elements.
  operator MatrixView<const T>() const { return {data, rows, cols, stride}; }  // NOLINT

  T* row(std::size_t i) const { return data + i * stride; }
  std::span<T> operator[](std::size_t i) const { return {row(i), cols}; }
  MatrixView slice(std::size_t begin, std::size_t count) const {
    return {data + begin * stride, count, cols, stride};
  }
};

using ConstMatrix = MatrixView<const float>;
using MutableMatrix = MatrixView<float>;

/// An owned row-major matrix, zero at first, rows contiguous.
class Matrix {
 public:
  Matrix() = default;
  Matrix(std::size_t rows, std::size_t cols)
      : data_(allocate_aligned<float>(rows * cols)), rows_(rows), cols_(cols) {
    for (std::size_t i = 0; i < rows * cols; ++i) data_[i] = 0.0f;
  }

  std::size_t rows() const { return rows_; }
  std::size_t cols() const { return cols_; }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::span<float> operator[](std::size_t i) { return {data_.get() + i * cols_, cols_}; }
  std::span<const float> operator[](std::size_t i) const {
    return {data_.get() + i * cols_, cols_};
  }
  MutableMatrix view() { return {data_.get(), rows_, cols_}; }
  ConstMatrix view() const { return {data_.get(), rows_, cols_}; }

 private:
  AlignedArray<float> data_;
  std::size_t rows_ = 0;
  std::size_t cols_ = 0;
};

}  // namespace ballast
