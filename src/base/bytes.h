// Little-endian serialisation with bounds checks: what saved caches are written with.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/fail.h"

namespace ballast {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

/// Where bytes go: a file, or memory.
class ByteWriter {
 public:
  virtual ~ByteWriter() = default;
  virtual void write(const void* data, std::size_t size) = 0;

  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    write(&value, sizeof(T));
  }
  template <typename T>
  void put_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    write(values.data(), values.size_bytes());
  }
  void put_text(std::string_view text) {
    put<std::uint64_t>(text.size());
    write(text.data(), text.size());
  }
};

class MemoryWriter : public ByteWriter {
 public:
  void write(const void* data, std::size_t size) override {
    auto* p = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), p, p + size);
  }
  std::vector<std::byte> bytes;
};

/// Reads from memory; throws Error at the end of it.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes, std::string what = "saved state")
      : bytes_(bytes), what_(std::move(what)) {}

  void read(void* out, std::size_t size) {
    require(size <= left(), "{}: ends at byte {}, {} more were expected", what_, bytes_.size(),
            size - left());
    if (size != 0) std::memcpy(out, bytes_.data() + at_, size);
    at_ += size;
  }
  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    read(&value, sizeof(T));
    return value;
  }
  template <typename T>
  void get_all(std::span<T> out) {
    static_assert(std::is_trivially_copyable_v<T>);
    read(out.data(), out.size_bytes());
  }
  std::string get_text() {
    auto size = get<std::uint64_t>();
    require(size <= left(), "{}: a text of {} bytes at byte {} runs past the end", what_, size,
            at_);
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }
  /// A count that may not exceed `limit`.
  std::size_t get_count(std::size_t limit, const char* name) {
    auto count = get<std::uint64_t>();
    require(count <= limit, "{}: {} is {}, at most {} is possible", what_, name, count, limit);
    return count;
  }
  std::size_t left() const { return bytes_.size() - at_; }
  const std::string& what() const { return what_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::string what_;
};

/// Gives `to` the state of `from` through its saved form.
template <typename T>
void copy_saved(const T& from, T& to) {
  MemoryWriter out;
  out.bytes.reserve(from.bytes());
  from.save(out);
  ByteReader in(out.bytes);
  to.load(in);
}

}  // namespace ballast
