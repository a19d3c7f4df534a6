#include "formats/tensor_stream.h"

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"

namespace ballast {
namespace {

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

TensorStream::Range TensorStream::declare(std::string_view name, TensorType type,
                                          std::span<const std::size_t> shape,
                                          const std::string& file) {
  std::size_t last = shape.empty() ? 1 : shape.back();
  require(last % block_size(type) == 0,
          "{}: tensor '{}': rows of {} numbers cannot have the type {}, whose blocks hold {}", file,
          printable(name), last, to_string(type), block_size(type));
  std::size_t bytes = tensor_bytes(type, element_count(shape));
  std::size_t begin = slots_.empty() ? 0 : round_up(slots_.back().range.end, alignment_);
  // Far below 2^64, so that adding headers and padding cannot overflow.
  require(bytes < (std::size_t{1} << 60) && begin < (std::size_t{1} << 60),
          "{}: tensor '{}' would make the file larger than 2^60 bytes", file, printable(name));
  slots_.push_back({std::string(name), type, {begin, begin + bytes}});
  return slots_.back().range;
}

void TensorStream::pad_to(OutputFile& file, std::size_t position) {
  if (position > position_) file.write(std::string(position - position_, '\0'));
  position_ = position;
}

void TensorStream::advance(OutputFile& file) {
  while (current_ < slots_.size() && position_ == slots_[current_].range.end) {
    if (++current_ < slots_.size()) pad_to(file, slots_[current_].range.begin);
  }
}

void TensorStream::write(OutputFile& file, std::span<const std::byte> bytes) {
  while (true) {
    advance(file);
    if (bytes.empty()) return;
    require(current_ < slots_.size(), "{}: {} bytes more than the declared tensors hold",
            file.path().string(), bytes.size());
    std::size_t n = std::min(bytes.size(), slots_[current_].range.end - position_);
    file.write(bytes.first(n));
    position_ += n;
    bytes = bytes.subspan(n);
  }
}

void TensorStream::write(OutputFile& file, std::span<const float> numbers) {
  advance(file);
  if (numbers.empty()) return;
  require(current_ < slots_.size(), "{}: {} numbers more than the declared tensors hold",
          file.path().string(), numbers.size());
  const Slot& slot = slots_[current_];
  require(tensor_bytes(slot.type, numbers.size()) <= slot.range.end - position_,
          "{}: {} numbers are more than are missing of tensor '{}'", file.path().string(),
          numbers.size(), printable(slot.name));
  constexpr std::size_t kPiece = 1 << 14;  // fits the cache; whole blocks of every type
  std::vector<std::byte> piece;
  TensorType type = slot.type;
  for (std::size_t i = 0; i < numbers.size(); i += kPiece) {
    std::span<const float> part = numbers.subspan(i, std::min(kPiece, numbers.size() - i));
    piece.resize(tensor_bytes(type, part.size()));
    encode(type, part, piece);
    write(file, std::span<const std::byte>(piece));
  }
}

void TensorStream::finish(OutputFile& file) {
  advance(file);
  if (current_ < slots_.size()) {
    const Slot& slot = slots_[current_];
    fail("{}: tensor '{}' is incomplete: {} of {} bytes were written", file.path().string(),
         printable(slot.name), position_ - slot.range.begin, slot.range.end - slot.range.begin);
  }
  pad_to(file, round_up(position_, alignment_));
}

}  // namespace ballast
