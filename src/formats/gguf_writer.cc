#include <algorithm>
#include <bit>
#include <utility>

#include "ballast/engine/gguf.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "formats/gguf_types.h"
#include "formats/tensor_stream.h"

namespace ballast {
namespace {

template <typename T>
void append(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void append_text(std::string& out, std::string_view text) {
  append(out, std::uint64_t{text.size()});
  out += text;
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path, std::uint32_t alignment)
    : alignment_(alignment) {
  require(std::has_single_bit(alignment) && alignment >= 8 && alignment <= (1u << 20),
          "the alignment of a GGUF file cannot be {}: it is a power of two from 8 to 2^20",
          alignment);
  file_ = std::make_unique<OutputFile>(path);
  stream_ = std::make_unique<TensorStream>(alignment);
  if (alignment != kGgufAlignment) add("general.alignment", alignment);
}

GgufWriter::~GgufWriter() = default;
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;
GgufWriter& GgufWriter::operator=(GgufWriter&&) noexcept = default;

void GgufWriter::add_raw(std::string_view key, GgufType type, bool is_array, std::size_t count,
                         std::span<const std::byte> data) {
  require(!head_written_, "{}: the key '{}' comes after the first tensor's numbers",
          file_->path().string(), printable(key));
  require(!key.empty() && std::find(keys_.begin(), keys_.end(), key) == keys_.end(),
          "{}: cannot add the key '{}' again", file_->path().string(), printable(key));
  keys_.emplace_back(key);
  append_text(metadata_, key);
  if (is_array) append(metadata_, GgufType::array);
  append(metadata_, type);
  if (is_array) append(metadata_, std::uint64_t{count});
  metadata_.append(reinterpret_cast<const char*>(data.data()), data.size());
}

void GgufWriter::add(std::string_view key, std::string_view value) {
  std::string data;
  append_text(data, value);
  add_raw(key, GgufType::string, false, 1, std::as_bytes(std::span(data)));
}

void GgufWriter::add_array(std::string_view key, std::span<const std::string> values) {
  std::string data;
  for (const std::string& value : values) append_text(data, value);
  add_raw(key, GgufType::string, true, values.size(), std::as_bytes(std::span(data)));
}

void GgufWriter::declare(std::string_view name, TensorType type,
                         std::span<const std::size_t> shape) {
  require(!head_written_, "{}: tensor '{}' is declared after the first tensor's numbers",
          file_->path().string(), printable(name));
  require(shape.size() <= kGgufDimensions,
          "{}: tensor '{}' has {} dimensions; at most {} are possible", file_->path().string(),
          printable(name), shape.size(), kGgufDimensions);
  std::uint32_t number = gguf_number_of(type);
  TensorStream::Range range = stream_->declare(name, type, shape, file_->path().string());
  append_text(infos_, name);
  append(infos_, static_cast<std::uint32_t>(shape.size()));
  for (std::size_t i = shape.size(); i-- > 0;) append(infos_, std::uint64_t{shape[i]});
  append(infos_, number);
  append(infos_, std::uint64_t{range.begin});
}

void GgufWriter::write_head() {
  if (std::exchange(head_written_, true)) return;
  std::string head;
  append(head, kGgufMagic);
  append(head, std::uint32_t{3});
  append(head, std::uint64_t{stream_->count()});
  append(head, std::uint64_t{keys_.size()});
  std::size_t size = head.size() + metadata_.size() + infos_.size();
  file_->write(head);
  file_->write(metadata_);
  file_->write(infos_);
  file_->write(std::string((alignment_ - size % alignment_) % alignment_, '\0'));
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  write_head();
  stream_->write(*file_, bytes);
}

void GgufWriter::write(std::span<const float> numbers) {
  write_head();
  stream_->write(*file_, numbers);
}

void GgufWriter::commit() {
  write_head();
  stream_->finish(*file_);
  file_->commit();
}

}  // namespace ballast
