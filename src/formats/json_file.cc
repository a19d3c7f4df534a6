#include "formats/json_file.h"

#include <cstddef>
#include <string_view>

#include "base/mapped_file.h"
#include "formats/json_text.h"

namespace ballast {

SortedJson read_json(const std::filesystem::path& path) {
  constexpr std::size_t kLargest = std::size_t{32} << 20;  // of a description
  MappedFile file(path);
  return parse_json_text({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
                         path.string(), {.bytes = kLargest});
}

}  // namespace ballast
