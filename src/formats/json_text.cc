#include "formats/json_text.h"

#include <array>

namespace ballast {

void check_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  require(text.size() <= limits.bytes, ErrorCode::bad_file,
          "{}: {} bytes are too many for JSON; at most {} are read", source, text.size(),
          limits.bytes);
  // What the values take in memory: those of a list lie in a vector that grows, those of an object
  // in the nodes of a tree; texts of more than 15 bytes have room of their own.
  constexpr std::size_t kList = 64, kObject = 80, kField = 48, kPlace = 32, kText = 48;
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
        memory += kText + (i - begin > 16 ? i - begin : 0);
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
  const std::size_t most = kJsonMemoryPerByte * text.size() + kJsonMemory;
  require(memory <= most, ErrorCode::bad_file,
          "{}: as a document this JSON of {} bytes takes {} MB; at most {} are allowed: so many "
          "small values are no data of ours",
          source, text.size(), memory >> 20, most >> 20);
}

}  // namespace ballast
