#include "serve/library.h"

#include <algorithm>

#include "base/fail.h"
#include "base/read_file.h"
#include "formats/json_text.h"
#include "report/json.h"

namespace ballast::serve {

std::vector<LibraryDocument> library_documents(const std::filesystem::path& folder) {
  std::vector<LibraryDocument> out;
  std::error_code none;
  for (const auto& one : std::filesystem::directory_iterator(folder, none)) {
    if (one.path().extension() != ".json") continue;
    const std::string where = one.path().string();
    const Json json = parse_json_text<Json>(read_file(one.path()), where);
    require(json.is_object() && json.contains("name") && json.contains("text") &&
                json["name"].is_string() && json["text"].is_string(),
            "{}: no document of a library; remove the file", where);
    out.push_back({one.path(), json["name"], json["text"], json.value("tokens", std::size_t{0}),
                   json.value("bytes", std::size_t{0})});
  }
  std::ranges::sort(out, {}, &LibraryDocument::name);
  return out;
}

std::vector<Found> find_documents(const std::vector<LibraryDocument>& library,
                                  std::string_view question, std::size_t most) {
  std::vector<std::string_view> texts;
  for (const LibraryDocument& document : library) texts.push_back(document.text);
  std::vector<Found> found = find_passages(texts, question, most);
  require(!found.empty(),
          "no document has a word of the question; ballast library list names them");
  return found;
}

}  // namespace ballast::serve
