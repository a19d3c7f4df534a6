#include "serve/library.h"

#include <algorithm>

#include "base/fail.h"
#include "base/read_file.h"
#include "formats/json_text.h"
#include "report/json.h"

namespace ballast::serve {

namespace {

LibraryDocument read_one(const std::filesystem::path& file) {
  const std::string where = file.string();
  const Json json = parse_json_text<Json>(read_file(file, {.pipes = false}), where);
  LibraryDocument out;
  out.file = file;
  const auto text = [&](const char* field, bool must) -> std::string {
    if (!json.is_object() || !json.contains(field) || !json[field].is_string()) {
      require(!must, ErrorCode::bad_file, "{}: no document of a library", where);
      return "";
    }
    return json[field];
  };
  const auto number = [&](const char* field) -> std::size_t {
    return json.contains(field) && json[field].is_number_unsigned() ? json[field].get<std::size_t>()
                                                                    : 0;
  };
  out.name = text("name", true);
  out.text = text("text", true);
  out.model = text("model", false);
  out.fingerprint = text("fingerprint", false);
  out.tokens = number("tokens");
  out.bytes = number("bytes");
  require(std::filesystem::exists(out.cache()), ErrorCode::bad_file, "{}: its cache is missing",
          where);
  return out;
}

}  // namespace

Library read_library(const std::filesystem::path& folder) {
  Library out;
  std::error_code error;
  std::filesystem::directory_iterator it(folder, error);
  require(!error || error == std::errc::no_such_file_or_directory, ErrorCode::io,
          "{}: cannot read the folder: {}", folder.string(), error.message());
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".json") continue;
    try {
      out.documents.push_back(read_one(it->path()));
    } catch (const Error& damaged) {
      out.damaged.emplace_back(damaged.what());
    }
  }
  std::ranges::sort(out.documents, {}, &LibraryDocument::name);
  std::ranges::sort(out.damaged);
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
