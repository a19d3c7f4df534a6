// Reading and writing GGUF files, versions 2 and 3 (github.com/ggml-org/ggml, docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ballast/engine/tensor.h"

namespace ballast {

class MappedFile;
class OutputFile;
class TensorStream;

/// Types of metadata values, with the numbers that files use for them.
enum class GgufType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};

std::string_view to_string(GgufType type);

/// One key and its value, still in the file's encoding.
struct GgufEntry {
  std::string_view key;
  GgufType type = GgufType::u8;  ///< of the value, or of each element of an array
  bool is_array = false;
  std::size_t count = 1;            ///< elements
  std::span<const std::byte> data;  ///< elements one after another, unaligned
};

/// A GGUF file, memory-mapped: views stay valid as long as this object (or what it was moved to).
class Gguf {
 public:
  /// Checks the whole file before anything is used: every length, count and offset, types,
  /// duplicate keys and tensors, overlaps. Throws Error naming the file, the key or tensor and what
  /// is wrong. Little-endian files only. Files without tensors (vocabularies) are fine.
  explicit Gguf(const std::filesystem::path& path);
  ~Gguf();
  Gguf(Gguf&&) noexcept;
  Gguf& operator=(Gguf&&) noexcept;

  /// Takes in the tensors of the other pieces when this is the first of a model that was split
  /// (name-00001-of-00003.gguf); else does nothing. Throws Error when this is another piece, one is
  /// missing, or they do not belong together.
  void join_pieces();

  const std::filesystem::path& path() const { return path_; }
  /// The files that are mapped: this one and, once joined, the other pieces.
  std::vector<std::filesystem::path> files() const;
  std::uint32_t version() const { return version_; }

  /// Metadata in the order of the file.
  const std::vector<GgufEntry>& metadata() const { return entries_; }
  /// Null if there is no such key.
  const GgufEntry* entry(std::string_view key) const;

  /// The value of a key; nothing if it is absent. T is one of
  ///   bool, std::int64_t, std::uint64_t (any integer that fits), double, float (any number),
  ///   std::string_view, std::vector<std::string_view>,
  ///   std::vector<std::int64_t> (any integers), std::vector<float> (any numbers).
  /// Throws Error naming file, key, the type expected and the type found.
  template <typename T>
  std::optional<T> find(std::string_view key) const;
  /// The same, but absence is an Error too.
  template <typename T>
  T get(std::string_view key) const {
    std::optional<T> value = find<T>(key);
    if (!value) fail_missing(key);
    return *std::move(value);
  }

  /// In the order of their bytes, piece by piece. Shapes are outermost first: the reverse of the
  /// file's. Tensors of types that cannot be read are left out: a model may not need them.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  /// The names and types of those.
  const std::map<std::string, std::string, std::less<>>& unreadable() const { return unreadable_; }
  /// Null if there is none of that name. Throws Error if its type cannot be read.
  const TensorView* find_tensor(std::string_view name) const;
  /// Throws Error if there is none of that name.
  const TensorView& tensor(std::string_view name) const;

 private:
  [[noreturn]] void fail_missing(std::string_view key) const;
  [[noreturn]] void fail_unreadable(const std::string& name, const std::string& type) const;
  void add_tensor(TensorView tensor);

  std::filesystem::path path_;
  std::unique_ptr<MappedFile> file_;
  std::vector<std::unique_ptr<MappedFile>> pieces_;  ///< the others
  std::uint32_t version_ = 0;
  std::vector<GgufEntry> entries_;
  std::map<std::string_view, std::size_t> by_key_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string, std::less<>> unreadable_;  ///< tensors' names and types
};

/// Writes a GGUF file, version 3: first all keys and declarations, then the tensors' numbers in the
/// order declared. Holds no tensor in memory. The file appears, whole, on commit().
class GgufWriter {
 public:
  /// `alignment`: of every tensor in the file, a power of two from 8.
  explicit GgufWriter(const std::filesystem::path& path, std::uint32_t alignment = 32);
  ~GgufWriter();
  GgufWriter(GgufWriter&&) noexcept;
  GgufWriter& operator=(GgufWriter&&) noexcept;

  /// Numbers keep their C++ type in the file: pass std::uint32_t where readers expect u32.
  template <typename T>
  requires std::is_arithmetic_v<T>
  void add(std::string_view key, T value) {
    add_raw(key, type_of<T>(), false, 1, std::as_bytes(std::span(&value, 1)));
  }
  void add(std::string_view key, std::string_view value);
  template <typename T>
  requires std::is_arithmetic_v<T>
  void add_array(std::string_view key, std::span<const T> values) {
    add_raw(key, type_of<T>(), true, values.size(), std::as_bytes(values));
  }
  void add_array(std::string_view key, std::span<const std::string> values);

  /// Shape outermost first, up to 4 dimensions; the last a multiple of block_size(type).
  void declare(std::string_view name, TensorType type, std::span<const std::size_t> shape);

  /// The next bytes, in the order declared, in pieces of any size.
  void write(std::span<const std::byte> bytes);
  /// The next numbers, all of one tensor and whole blocks, converted to its type (see encode()).
  void write(std::span<const float> numbers);
  /// Throws Error if anything declared is missing or the disk is full.
  void commit();

 private:
  template <typename T>
  static constexpr GgufType type_of() {
    if constexpr (std::is_same_v<T, bool>) return GgufType::boolean;
    if constexpr (std::is_floating_point_v<T>) {
      return sizeof(T) == 4 ? GgufType::f32 : GgufType::f64;
    }
    constexpr bool is_signed = std::is_signed_v<T>;
    switch (sizeof(T)) {
      case 1:
        return is_signed ? GgufType::i8 : GgufType::u8;
      case 2:
        return is_signed ? GgufType::i16 : GgufType::u16;
      case 4:
        return is_signed ? GgufType::i32 : GgufType::u32;
      default:
        return is_signed ? GgufType::i64 : GgufType::u64;
    }
  }
  void add_raw(std::string_view key, GgufType type, bool is_array, std::size_t count,
               std::span<const std::byte> data);
  void write_head();

  std::unique_ptr<OutputFile> file_;
  std::unique_ptr<TensorStream> stream_;
  std::uint32_t alignment_;
  std::vector<std::string> keys_;
  std::string metadata_;  ///< encoded
  std::string infos_;     ///< encoded descriptions of tensors
  bool head_written_ = false;
};

}  // namespace ballast
