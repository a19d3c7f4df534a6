#include "formats/json_text.h"

#include <array>

namespace ballast {

void check_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  require(text.size() <= limits.bytes, ErrorCode::bad_file,
          "{}: {} bytes are too many for JSON; at most {} are read", source, text.size(),
          limits.bytes);
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
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      require(++depth <= kDeepestJson, ErrorCode::bad_file, "{}: JSON nested deeper than {}",
              source, kDeepestJson);
      fields[depth] = 0;
      count_value();
    } else if (c == ',') {
      count_value();
    } else if (c == ':') {
      require(++fields[depth] <= limits.fields, ErrorCode::bad_file,
              "{}: a JSON object of more than {} fields", source, limits.fields);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

}  // namespace ballast
