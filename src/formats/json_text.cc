#include "formats/json_text.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace ballast {
namespace {

// What values take in memory: those of a list lie in a vector that grows, those of an object in the
// nodes of a tree; texts of more than 15 bytes have room of their own.
constexpr std::size_t kList = 64, kObject = 80, kField = 48, kPlace = 32, kText = 48;

std::size_t text_memory(std::size_t size) { return kText + (size > 15 ? size : 0); }

void check_memory(std::size_t memory, std::size_t text, std::string_view source) {
  const std::size_t most = kJsonMemoryPerByte * text + kJsonMemory;
  require(memory <= most, ErrorCode::bad_file,
          "{}: as a document this JSON of {} bytes takes {} MB; at most {} are allowed: so many "
          "small values are no data of ours",
          source, text, memory >> 20, most >> 20);
}

// Makes a document of the library's events, without what is taken.
class PartsReader final : public nlohmann::json_sax<SortedJson> {
 public:
  PartsReader(std::size_t text, std::string_view source, const TakeJson& take)
      : text_(text), source_(source), take_(take) {}

  SortedJson& root() { return root_; }

  bool null() override { return scalar(SortedJson()); }
  bool boolean(bool value) override { return scalar(SortedJson(value)); }
  bool number_integer(number_integer_t value) override { return scalar(SortedJson(value)); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(SortedJson(value)); }
  bool number_float(number_float_t value, const string_t&) override {
    return scalar(SortedJson(value));
  }
  bool string(string_t& value) override {
    const std::size_t memory = memory_ + text_memory(value.size());
    return add(SortedJson(std::move(value)), memory);
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(SortedJson::object(), kObject); }
  bool start_array(std::size_t) override { return open(SortedJson::array(), kList); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    path_.back() = std::move(value);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const SortedJson::exception& error) override {
    if (const auto* parse = dynamic_cast<const SortedJson::parse_error*>(&error)) {
      fail(ErrorCode::bad_file, "{}: not valid JSON at byte {}", source_, parse->byte);
    }
    fail(ErrorCode::bad_file, "{}: a number in this JSON is too large", source_);
  }

 private:
  struct Open {
    SortedJson value;
    std::size_t before;  // the memory counted where it began
  };

  bool scalar(SortedJson value) { return add(std::move(value), memory_); }

  bool open(SortedJson value, std::size_t memory) {
    open_.push_back({std::move(value), memory_});
    path_.emplace_back();
    memory_ += memory;
    return true;
  }

  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    path_.pop_back();
    const std::size_t memory = std::exchange(memory_, done.before);
    return add(std::move(done.value), memory);
  }

  // `memory`: counted with this value. It is the old count again for a value that is taken.
  bool add(SortedJson value, std::size_t memory) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    if (take_(path_, value)) return true;
    SortedJson& parent = open_.back().value;
    memory_ = memory + kPlace;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
    } else {
      memory_ += kField + text_memory(path_.back().size());
      parent[path_.back()] = std::move(value);
    }
    check_memory(memory_, text_, source_);
    return true;
  }

  std::size_t text_;
  std::string_view source_;
  const TakeJson& take_;
  SortedJson root_;
  std::vector<Open> open_;
  std::vector<std::string> path_;  // a key for each that is open; "" in a list
  std::size_t memory_ = 0;
};

}  // namespace

SortedJson parse_json_parts(std::string_view text, std::string_view source, const TakeJson& take) {
  check_json(text, source, {.memory = false});
  PartsReader reader(text.size(), source, take);
  SortedJson::sax_parse(text.begin(), text.end(), &reader);
  return std::move(reader.root());
}

void check_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  require(text.size() <= limits.bytes, ErrorCode::bad_file,
          "{}: {} bytes are too many for JSON; at most {} are read", source, text.size(),
          limits.bytes);
  std::size_t memory = 0, begin = 0;
  std::size_t depth = 0, values = 0;
  std::array<std::size_t, kDeepestJson + 1> fields{};  // of the objects that are open
  const auto count_value = [&] {
    require(++values <= limits.values, ErrorCode::bad_file, "{}: JSON of more than {} values",
            source, limits.values);
  };
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
        memory += text_memory(i - begin - 1);
      }
    } else if (c == '"') {
      quoted = true;
      begin = i;
    } else if (c == '[' || c == '{') {
      require(++depth <= kDeepestJson, ErrorCode::bad_file, "{}: JSON nested deeper than {}",
              source, kDeepestJson);
      fields[depth] = 0;
      count_value();
      memory += c == '[' ? kList : kObject;
    } else if (c == ',') {
      count_value();
      memory += kPlace;
    } else if (c == ':') {
      memory += kField;
      require(++fields[depth] <= limits.fields, ErrorCode::bad_file,
              "{}: a JSON object of more than {} fields", source, limits.fields);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  if (limits.memory) check_memory(memory, text.size(), source);
}

template <typename Value>
Value parse_json_text(std::string_view text, std::string_view source, JsonLimits limits) {
  if constexpr (std::is_same_v<Value, Json>) limits.fields = std::min(limits.fields, kMostFields);
  check_json(text, source, limits);
  try {
    return Value::parse(text.begin(), text.end());
  } catch (const SortedJson::parse_error& e) {
    fail(ErrorCode::bad_file, "{}: not valid JSON at byte {}", source, e.byte);
  } catch (const SortedJson::exception&) {
    fail(ErrorCode::bad_file, "{}: a number in this JSON is too large", source);
  }
}
template SortedJson parse_json_text(std::string_view, std::string_view, JsonLimits);
template Json parse_json_text(std::string_view, std::string_view, JsonLimits);

Json parse_own_json(std::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace ballast
