#include "ballast/engine/gguf.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include "formats/gguf_types.h"
#include "formats/sniff.h"

namespace ballast {
namespace {

constexpr std::uint32_t kLastType = static_cast<std::uint32_t>(GgufType::f64);
/// The smallest encodings of a key-value pair and of a tensor's description.
constexpr std::size_t kLeastEntry = 8 + 4 + 1;
constexpr std::size_t kLeastTensor = 8 + 4 + 4 + 8;
/// Models have some hundred keys and some thousand tensors. A description of 24 bytes takes ten
/// times as much here.
constexpr std::size_t kMostDescribed = 100'000;

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

/// Reads the file front to back with a bounds check before every access.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::size_t position() const { return position_; }
  std::size_t left() const { return bytes_.size() - position_; }
  const std::string& file() const { return file_; }

  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    require(count <= left(), "{}: truncated or damaged: {} takes {} bytes at byte {} of {}", file_,
            what, count, position_, bytes_.size());
    position_ += count;
    return bytes_.subspan(position_ - count, count);
  }

  template <typename T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }

  std::string_view text(std::string_view what) {
    auto length = number<std::uint64_t>(what);
    auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::size_t position_ = 0;
};

/// The name of a key or tensor in messages, at most 80 characters.
std::string quoted(std::string_view kind, std::string_view name) {
  return fmt::format("{} '{}'", kind, printable(name));
}

GgufType read_type(Cursor& in, const std::string& what) {
  auto number = in.number<std::uint32_t>(what);
  require(number <= kLastType, "{}: {}: there is no value type {}; the last is {}", in.file(), what,
          number, kLastType);
  return static_cast<GgufType>(number);
}

void check_booleans(std::span<const std::byte> data, const std::string& what, Cursor& in) {
  for (std::byte b : data) {
    require(b <= std::byte{1}, "{}: {}: a truth value is {}, neither 0 nor 1", in.file(), what,
            static_cast<int>(b));
  }
}

GgufEntry read_entry(Cursor& in) {
  GgufEntry entry;
  entry.key = in.text("a key");
  std::string what = quoted("key", entry.key);
  require(!entry.key.empty() && entry.key.size() <= 65535, "{}: {} has {} bytes, not 1 to 65535",
          in.file(), what, entry.key.size());
  entry.type = read_type(in, what);
  if (entry.type == GgufType::array) {
    entry.is_array = true;
    entry.type = read_type(in, what);
    require(entry.type != GgufType::array, ErrorCode::unsupported,
            "{}: {} is an array of arrays, which is not supported", in.file(), what);
    auto count = in.number<std::uint64_t>(what);
    // Each element takes at least one byte, so the file's size bounds the count.
    require(count <= in.left(), "{}: truncated or damaged: {} claims {} elements; {} bytes follow",
            in.file(), what, count, in.left());
    entry.count = count;
  }
  std::size_t begin = in.position();
  if (entry.type == GgufType::string) {
    Cursor start = in;
    for (std::size_t i = 0; i < entry.count; ++i) (void)in.text(what);
    entry.data = start.take(in.position() - begin, what);
    return entry;
  }
  std::size_t bytes;
  if (__builtin_mul_overflow(entry.count, gguf_value_bytes(entry.type), &bytes)) {
    bytes = SIZE_MAX;  // certainly truncated
  }
  entry.data = in.take(bytes, what);
  if (entry.type == GgufType::boolean) check_booleans(entry.data, what, in);
  return entry;
}

/// A tensor and its offset in the data, which begins after the last description.
struct Placed {
  TensorView tensor;
  std::uint64_t begin;
  std::size_t bytes = 0;
  std::string unreadable;  ///< its type, if that is none of ours; then its size is not known
};

Placed read_tensor(Cursor& in) {
  Placed placed;
  TensorView& tensor = placed.tensor;
  tensor.name = in.text("a tensor's name");
  std::string what = quoted("tensor", tensor.name);
  auto dimensions = in.number<std::uint32_t>(what);
  require(dimensions <= kGgufDimensions, "{}: {} has {} dimensions; at most {} are possible",
          in.file(), what, dimensions, kGgufDimensions);
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    tensor.shape.push_back(in.number<std::uint64_t>(what));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  auto number = in.number<std::uint32_t>(what);
  std::optional<TensorType> type = tensor_type_of_gguf(number);
  placed.begin = in.number<std::uint64_t>(what);
  if (!type) {
    placed.unreadable = gguf_type_name(number);
    return placed;
  }
  tensor.type = *type;
  std::size_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  require(row % block_size(tensor.type) == 0,
          "{}: {} has rows of {} numbers, but blocks of type {} hold {}", in.file(), what, row,
          to_string(tensor.type), block_size(tensor.type));
  try {
    placed.bytes = tensor_bytes(tensor.type, element_count(tensor.shape));
  } catch (const Error& e) {
    fail("{}: {}: {}", in.file(), what, e.what());
  }
  return placed;
}

/// Assigns each tensor its bytes. Sorts by offset.
void place(std::vector<Placed>& tensors, std::span<const std::byte> data, std::size_t alignment,
           const std::string& file) {
  std::sort(tensors.begin(), tensors.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  std::uint64_t end = 0;
  for (Placed& placed : tensors) {
    std::string what = quoted("tensor", placed.tensor.name);
    require(placed.begin % alignment == 0, "{}: {} begins at byte {}, not a multiple of {}", file,
            what, placed.begin, alignment);
    require(
        placed.begin <= data.size() && placed.bytes <= data.size() - placed.begin,
        "{}: truncated or damaged: {} needs {} bytes at byte {} of the data, of which there are "
        "{}",
        file, what, placed.bytes, placed.begin, data.size());
    require(placed.begin >= end || placed.bytes == 0, "{}: {} overlaps the one before it", file,
            what);
    placed.tensor.data = data.subspan(placed.begin, placed.bytes);
    end = std::max<std::uint64_t>(end, placed.begin + placed.bytes);
  }
}

void check_magic(const MappedFile& mapped, const std::string& file) {
  std::span<const std::byte> bytes = mapped.bytes();
  if (bytes.size() >= 4 && load<std::uint32_t>(bytes.data()) == kGgufMagic) return;
  std::string_view seems = sniff(bytes);
  if (!seems.empty()) fail("{}: not a GGUF file; it seems to be {}", file, seems);
  fail("{}: not a GGUF file: it does not begin with GGUF", file);
}

void check_version(std::uint32_t version, const std::string& file) {
  require((version & 0xffff) != 0 || version == 0,
          "{}: a big-endian GGUF file; convert it to little-endian", file);
  require(version == 2 || version == 3, ErrorCode::unsupported,
          "{}: GGUF version {}; versions 2 and 3 can be read{}", file, version,
          version < 2 ? ", so convert the model anew" : "");
}

}  // namespace

Gguf::Gguf(const std::filesystem::path& path) try
    : path_(path), file_(std::make_unique<MappedFile>(path)) {
  std::string file = path.string();
  check_magic(*file_, file);
  Cursor in(file_->bytes(), file);
  (void)in.number<std::uint32_t>("the magic");
  version_ = in.number<std::uint32_t>("the version");
  check_version(version_, file);
  auto tensor_count = in.number<std::uint64_t>("the number of tensors");
  auto entry_count = in.number<std::uint64_t>("the number of keys");
  require(entry_count <= in.left() / kLeastEntry && tensor_count <= in.left() / kLeastTensor,
          "{}: truncated or damaged: {} keys and {} tensors do not fit into {} bytes", file,
          entry_count, tensor_count, in.left());
  require(entry_count <= kMostDescribed && tensor_count <= kMostDescribed,
          "{}: {} keys and {} tensors; at most {} of each are read: no model has so many", file,
          entry_count, tensor_count, kMostDescribed);
  for (std::uint64_t i = 0; i < entry_count; ++i) {
    entries_.push_back(read_entry(in));
    std::string_view key = entries_.back().key;
    require(by_key_.emplace(key, i).second, "{}: the key '{}' appears twice", file, printable(key));
  }
  std::uint64_t alignment = find<std::uint64_t>("general.alignment").value_or(kGgufAlignment);
  require(std::has_single_bit(alignment) && alignment <= (1u << 20),
          "{}: general.alignment is {}, not a power of two up to 2^20", file, alignment);
  std::vector<Placed> placed;
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    Placed tensor = read_tensor(in);
    if (tensor.unreadable.empty()) {
      placed.push_back(std::move(tensor));
    } else {
      require(unreadable_.emplace(tensor.tensor.name, tensor.unreadable).second,
              "{}: the tensor '{}' appears twice", file, printable(tensor.tensor.name));
    }
  }
  if (placed.empty() && !unreadable_.empty()) {
    fail_unreadable(unreadable_.begin()->first, unreadable_.begin()->second);
  }
  std::size_t begin = (in.position() + alignment - 1) / alignment * alignment;
  std::span<const std::byte> all = file_->bytes();
  place(placed, all.subspan(std::min(begin, all.size())), alignment, file);
  for (Placed& p : placed) add_tensor(std::move(p.tensor));
} catch (const Error& error) {
  rethrow_from_file(error);
}

Gguf::~Gguf() = default;
Gguf::Gguf(Gguf&&) noexcept = default;
Gguf& Gguf::operator=(Gguf&&) noexcept = default;

void Gguf::add_tensor(TensorView tensor) {
  require(
      !unreadable_.contains(tensor.name) && by_name_.emplace(tensor.name, tensors_.size()).second,
      "{}: the tensor '{}' appears twice", path_.string(), printable(tensor.name));
  tensors_.push_back(std::move(tensor));
}

const GgufEntry* Gguf::entry(std::string_view key) const {
  auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &entries_[found->second];
}

void Gguf::fail_missing(std::string_view key) const {
  fail("{}: the key '{}' is missing", path_.string(), printable(key));
}

void Gguf::fail_unreadable(const std::string& name, const std::string& type) const {
  fail(ErrorCode::unsupported,
       "{}: the tensor '{}' has the unsupported type {}; supported are F32, F16, BF16, F64, I8 to "
       "I64, and all that GGUF files are quantized to but Q8_1, Q8_K and NVFP4",
       path_.string(), printable(name), type);
}

const TensorView* Gguf::find_tensor(std::string_view name) const {
  const auto unreadable = unreadable_.find(name);
  if (unreadable != unreadable_.end()) fail_unreadable(unreadable->first, unreadable->second);
  auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorView& Gguf::tensor(std::string_view name) const {
  const TensorView* tensor = find_tensor(name);
  require(tensor != nullptr, "{}: there is no tensor '{}' among its {}", path_.string(),
          printable(name), tensors_.size());
  return *tensor;
}

namespace {

/// Element i of a numeric value as T, if T can hold it.
template <typename T>
std::optional<T> element(const GgufEntry& entry, std::size_t i) {
  const std::byte* p = entry.data.data() + i * gguf_value_bytes(entry.type);
  auto integer = [](auto x) -> std::optional<T> {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
    if constexpr (std::is_same_v<T, bool>) return std::nullopt;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (std::in_range<T>(x)) return static_cast<T>(x);
    }
    return std::nullopt;
  };
  auto real = [](auto x) -> std::optional<T> {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
    return std::nullopt;
  };
  switch (entry.type) {
    case GgufType::u8:
      return integer(load<std::uint8_t>(p));
    case GgufType::i8:
      return integer(load<std::int8_t>(p));
    case GgufType::u16:
      return integer(load<std::uint16_t>(p));
    case GgufType::i16:
      return integer(load<std::int16_t>(p));
    case GgufType::u32:
      return integer(load<std::uint32_t>(p));
    case GgufType::i32:
      return integer(load<std::int32_t>(p));
    case GgufType::u64:
      return integer(load<std::uint64_t>(p));
    case GgufType::i64:
      return integer(load<std::int64_t>(p));
    case GgufType::f32:
      return real(load<float>(p));
    case GgufType::f64:
      return real(load<double>(p));
    case GgufType::boolean:
      if constexpr (std::is_same_v<T, bool>) return load<std::uint8_t>(p) != 0;
      return std::nullopt;
    case GgufType::string:
    case GgufType::array:
      break;
  }
  return std::nullopt;
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

/// The strings of a value that read_entry() has checked.
std::vector<std::string_view> texts_of(const GgufEntry& entry) {
  std::vector<std::string_view> texts;
  texts.reserve(entry.count);
  const std::byte* p = entry.data.data();
  for (std::size_t i = 0; i < entry.count; ++i) {
    auto length = static_cast<std::size_t>(load<std::uint64_t>(p));
    texts.emplace_back(reinterpret_cast<const char*>(p + 8), length);
    p += 8 + length;
  }
  return texts;
}

/// The value as T, if it is of that kind.
template <typename T>
std::optional<T> convert(const GgufEntry& entry) {
  if (entry.is_array != IsVector<T>::value) return std::nullopt;
  bool is_text = entry.type == GgufType::string;
  if constexpr (std::is_same_v<T, std::string_view>) {
    if (!is_text) return std::nullopt;
    return texts_of(entry)[0];
  } else if constexpr (std::is_same_v<T, std::vector<std::string_view>>) {
    if (!is_text) return std::nullopt;
    return texts_of(entry);
  } else if constexpr (IsVector<T>::value) {
    T values;
    values.reserve(entry.count);
    for (std::size_t i = 0; i < entry.count; ++i) {
      auto value = element<typename T::value_type>(entry, i);
      if (!value) return std::nullopt;
      values.push_back(*value);
    }
    return values;
  } else {
    return element<T>(entry, 0);
  }
}

template <typename T>
std::string_view name_of() {
  if (std::is_same_v<T, bool>) return "a truth value";
  if (std::is_same_v<T, std::uint64_t>) return "an integer of at least 0";
  if (std::is_integral_v<T>) return "an integer";
  if (std::is_floating_point_v<T>) return "a number";
  if (std::is_same_v<T, std::string_view>) return "a string";
  if (std::is_same_v<T, std::vector<std::string_view>>) return "an array of strings";
  if (std::is_same_v<T, std::vector<std::int64_t>>) return "an array of integers";
  return "an array of numbers";
}

}  // namespace

template <typename T>
std::optional<T> Gguf::find(std::string_view key) const {
  const GgufEntry* found = entry(key);
  if (found == nullptr) return std::nullopt;
  std::optional<T> value = convert<T>(*found);
  require(value.has_value(), "{}: the key '{}' holds {}{}, which is not {}", path_.string(),
          printable(key), found->is_array ? "an array of " : "a value of type ",
          to_string(found->type), name_of<T>());
  return value;
}

template std::optional<bool> Gguf::find(std::string_view) const;
template std::optional<std::int64_t> Gguf::find(std::string_view) const;
template std::optional<std::uint64_t> Gguf::find(std::string_view) const;
template std::optional<float> Gguf::find(std::string_view) const;
template std::optional<double> Gguf::find(std::string_view) const;
template std::optional<std::string_view> Gguf::find(std::string_view) const;
template std::optional<std::vector<std::string_view>> Gguf::find(std::string_view) const;
template std::optional<std::vector<std::int64_t>> Gguf::find(std::string_view) const;
template std::optional<std::vector<float>> Gguf::find(std::string_view) const;

}  // namespace ballast
