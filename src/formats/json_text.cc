#include "formats/json_text.h"

namespace ballast {

void check_json(std::string_view text, std::string_view source, std::size_t most) {
  require(text.size() <= most, ErrorCode::bad_file,
          "{}: {} bytes are too many for JSON; at most {} are read", source, text.size(), most);
  std::size_t depth = 0;
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
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

}  // namespace ballast
