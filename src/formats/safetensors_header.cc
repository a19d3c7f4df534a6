#include "formats/safetensors_header.h"

#include <cstdint>
#include <optional>
#include <unordered_set>

#include "base/fail.h"
#include "base/keyed_hash.h"
#include "base/printable.h"
#include "formats/json.h"

namespace ballast {
namespace {

using json = SortedJson;

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMostDimensions = 16, kMostMetadata = 10'000;

std::optional<TensorType> find_dtype(std::string_view name) {
  for (int t = 0; t < static_cast<int>(TensorType::q4_0); ++t) {
    auto type = static_cast<TensorType>(t);
    if (to_string(type) == name) return type;
  }
  return std::nullopt;
}

/// Follows the parser through the one shape a header may have: {"__metadata__": {key: text…}, name:
/// {"dtype": text, "shape": […], "data_offsets": [a, b]}…} A document tree would take many times
/// the text's size before it could be rejected.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  HeaderReader(SafetensorsHeader& header, std::string_view file) : header_(header), file_(file) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a fraction"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      Entry& entry = header_.tensors.back();
      require(entry.shape.size() < kMostDimensions, "{}: tensor '{}' has over {} dimensions", file_,
              printable(entry.name), kMostDimensions);
      entry.shape.push_back(value);
    } else if (place_ == Place::offsets && offsets_ < 2) {
      Entry& entry = header_.tensors.back();
      (offsets_++ == 0 ? entry.begin : entry.end) = value;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      require(header_.metadata.size() < kMostMetadata, "{}: over {} fields of metadata", file_,
              kMostMetadata);
      header_.metadata[key_] = value;
    } else if (place_ == Place::tensor && key_ == "dtype") {
      std::optional<TensorType> type = find_dtype(value);
      require(type.has_value(),
              "{}: tensor '{}' has the dtype '{}'; known: F64, F32, F16, BF16, I64, I32, I16, "
              "I8, U64, U32, U16, U8, BOOL, F8_E4M3",
              file_, printable(header_.tensors.back().name), printable(value));
      header_.tensors.back().type = *type;
    } else {
      unexpected("text");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside && !done_) {
      place_ = Place::top;
    } else if (place_ == Place::top && key_ == kMetadata) {
      place_ = Place::metadata;
    } else if (place_ == Place::top) {
      place_ = Place::tensor;
      header_.tensors.push_back({});
      header_.tensors.back().name = key_;
      seen_ = 0;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::top) {
      require(names_.insert(value).second, "{}: the name '{}' appears twice", file_,
              printable(value));
    } else if (place_ == Place::tensor) {
      unsigned bit = value == "dtype" ? 1 : value == "shape" ? 2 : value == "data_offsets" ? 4 : 0;
      require(bit != 0 && (seen_ & bit) == 0, "{}: tensor '{}': {} key '{}' in its description",
              file_, printable(header_.tensors.back().name), bit == 0 ? "unexpected" : "duplicate",
              printable(value));
      seen_ |= bit;
    }
    key_ = value;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      check_tensor();
      place_ = Place::top;
    } else if (place_ == Place::metadata) {
      place_ = Place::top;
    } else {
      place_ = Place::outside;
      done_ = true;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || key_ == "dtype") unexpected("a list");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    if (place_ == Place::offsets) offsets_ = 0;
    return true;
  }

  bool end_array() override {
    require(place_ == Place::shape || offsets_ == 2,
            "{}: tensor '{}': data_offsets must hold two numbers", file_,
            printable(header_.tensors.back().name));
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    fail("{}: its header is not valid JSON at byte {}", file_, position);
  }

 private:
  using Entry = SafetensorsHeader::Entry;
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] void unexpected(std::string_view what) {
    fail("{}: its header holds {} where {} belongs (after the key '{}')", file_, what, expected(),
         printable(key_));
  }

  std::string_view expected() const {
    switch (place_) {
      case Place::outside:
        return "an object of tensors";
      case Place::top:
        return "the description of a tensor";
      case Place::metadata:
        return "text";
      case Place::tensor:
        return key_ == "dtype" ? "text" : "a list";
      case Place::shape:
        return "a dimension";
      case Place::offsets:
        return "one of two offsets";
    }
    return "";
  }

  void check_tensor() {
    const Entry& entry = header_.tensors.back();
    std::string name = printable(entry.name);
    require(seen_ == 7, "{}: tensor '{}' lacks {}", file_, name,
            (seen_ & 1) == 0   ? "dtype"
            : (seen_ & 2) == 0 ? "shape"
                               : "data_offsets");
    require(entry.begin <= entry.end, "{}: tensor '{}' ends at {} before it begins at {}", file_,
            name, entry.end, entry.begin);
    std::size_t needed;
    try {
      needed = tensor_bytes(entry.type, element_count(entry.shape));
    } catch (const Error& e) {
      fail("{}: tensor '{}': {}", file_, name, e.what());
    }
    require(entry.end - entry.begin == needed,
            "{}: tensor '{}' of type {} and shape {} needs {} bytes, but its offsets hold {}",
            file_, name, to_string(entry.type), to_string(entry.shape), needed,
            entry.end - entry.begin);
  }

  SafetensorsHeader& header_;
  std::string_view file_;
  Place place_ = Place::outside;
  bool done_ = false;
  std::string key_;
  std::unordered_set<std::string, KeyedHash> names_;
  unsigned seen_ = 0;     // dtype, shape, data_offsets of the current tensor: bits 1, 2, 4
  unsigned offsets_ = 0;  // how many of its two offsets
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::string_view file) {
  SafetensorsHeader header;
  HeaderReader reader(header, file);
  json::sax_parse(text.begin(), text.end(), &reader);
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  auto quoted = [](const std::string& text) {
    try {
      return json(text).dump();
    } catch (const json::exception&) {
      fail("'{}' is not valid UTF-8, which safetensors files demand", printable(text));
    }
  };
  std::string out = "{";
  if (!header.metadata.empty()) {
    out += quoted(std::string(kMetadata)) + ":{";
    for (const auto& [key, value] : header.metadata) {
      if (out.back() != '{') out += ',';
      out += quoted(key) + ':' + quoted(value);
    }
    out += '}';
  }
  for (const SafetensorsHeader::Entry& entry : header.tensors) {
    if (out.size() > 1) out += ',';
    out += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                       quoted(entry.name), to_string(entry.type), to_string(entry.shape),
                       entry.begin, entry.end);
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

}  // namespace ballast
