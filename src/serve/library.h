// Documents that `ballast library add` has read, each alone.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "documents/search.h"

namespace ballast::serve {

/// A document of a library: ID.json says what it is, ID.cache is its compressed cache.
struct LibraryDocument {
  std::filesystem::path file;  ///< ID.json
  std::string name, text;
  std::string model;        ///< whose cache it is; empty in files of earlier versions
  std::string fingerprint;  ///< of that model, in hexadecimal
  std::size_t tokens = 0, bytes = 0;

  std::filesystem::path cache() const {
    return std::filesystem::path(file).replace_extension(".cache");
  }
  /// For clients of a server.
  std::string id() const { return "lib_" + file.stem().string(); }
};

struct Library {
  std::vector<LibraryDocument> documents;  ///< sorted by name
  std::vector<std::string> damaged;        ///< a message for each file that is none
};

/// The documents in a folder; none where there is no folder. Throws Error if it cannot be read.
Library read_library(const std::filesystem::path& folder);

/// See find_passages(). Throws Error if no document has a word of the question.
std::vector<Found> find_documents(const std::vector<LibraryDocument>& library,
                                  std::string_view question, std::size_t most);

}  // namespace ballast::serve
