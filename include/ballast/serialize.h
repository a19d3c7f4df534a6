// What saved caches are written with: little-endian bytes, read with bounds checks.
//
//   call              bytes written
//   put(x)            sizeof(x), as x lies in memory
//   put_all(xs)       the elements of xs one after the other; no count
//   put_text(text)    a u64 with the length, then the text without a terminator
//
// Nothing is aligned or padded. A struct given to put() must have no padding of its own. A reader
// calls the get_…() of the same names in the same order; get_count() reads what put<std::uint64_t>
// wrote.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Collects what is written.
class MemoryWriter : public ByteWriter {
 public:
  void write(const void* data, std::size_t size) override {
    auto* p = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), p, p + size);
  }
  std::vector<std::byte> bytes;
};

/// Reads from memory that someone else holds. Each call throws Error, which begins with what(),
/// when the bytes end before it is done.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes, std::string what = "saved state")
      : bytes_(bytes), what_(std::move(what)) {}

  void read(void* out, std::size_t size);
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
  std::string get_text();
  /// A count that may not exceed `limit`; the Error calls it `name`. Read every count with it
  /// before memory is allocated for as many.
  std::size_t get_count(std::size_t limit, const char* name);

  /// Bytes not read yet.
  std::size_t left() const { return bytes_.size() - at_; }
  /// What the bytes are, as errors call them.
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
