#include "formats/json_file.h"

#include <cstddef>
#include <string_view>

#include "base/fail.h"
#include "base/mapped_file.h"

namespace ballast {

nlohmann::json read_json(const std::filesystem::path& path) {
  constexpr std::size_t kLargest = std::size_t{32} << 20;
  MappedFile file(path);
  require(file.bytes().size() <= kLargest, "{}: {} bytes are too many for a description in JSON",
          path.string(), file.bytes().size());
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  auto limit_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    require(depth <= 64, "{}: JSON nested deeper than 64", path.string());
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), limit_depth);
  } catch (const nlohmann::json::parse_error& e) {
    fail("{}: not valid JSON at byte {}", path.string(), e.byte);
  } catch (const nlohmann::json::out_of_range&) {
    fail("{}: a number in this JSON is too large", path.string());
  }
}

}  // namespace ballast
