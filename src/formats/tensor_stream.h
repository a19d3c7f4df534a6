// Writes the data part of a tensor file front to back.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tensor.h"
#include "base/output_file.h"

namespace ballast {

/// Tracks the current tensor, pads between tensors, and rejects too many or too few bytes.
class TensorStream {
 public:
  /// Tensors begin at multiples of `alignment` bytes of the data.
  explicit TensorStream(std::size_t alignment = 1) : alignment_(alignment) {}

  /// Adds a tensor and returns where its data begins and ends. Throws Error on a taken name or on
  /// overflow; messages begin with `file`.
  struct Range {
    std::size_t begin, end;
  };
  Range declare(std::string_view name, TensorType type, std::span<const std::size_t> shape,
                const std::string& file);

  void write(OutputFile& file, std::span<const std::byte> bytes);
  void write(OutputFile& file, std::span<const float> numbers);
  /// Pads the end. Throws Error if tensors are incomplete.
  void finish(OutputFile& file);

  std::size_t count() const { return slots_.size(); }

 private:
  struct Slot {
    std::string name;
    TensorType type;
    Range range;
  };
  /// Moves past complete tensors and writes the padding between.
  void advance(OutputFile& file);
  void pad_to(OutputFile& file, std::size_t position);

  std::size_t alignment_;
  std::vector<Slot> slots_;
  std::size_t current_ = 0;   ///< the tensor being written
  std::size_t position_ = 0;  ///< bytes of data written, padding included
};

}  // namespace ballast
