// Taking files into a library: what is new, what has changed, what is gone.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "library/library.h"

namespace ballast {

struct UpdateOptions {
  std::function<std::size_t(std::string_view)> tokens;  ///< how many a text has
  std::string model, fingerprint;                       ///< of new documents
  /// Called with the files looked at and all of them; may be empty.
  std::function<void(std::size_t done, std::size_t all)> progress;
};

/// What an update did, by name.
struct LibraryUpdate {
  std::vector<std::string> added, changed, removed;
  std::vector<std::string> same;      ///< new files, "copy.txt has the text of lease.txt"
  std::vector<std::string> left_out;  ///< files of folders that are no texts
  std::vector<std::string> notes;     ///< on encodings
  std::size_t files = 0;              ///< looked at
  std::vector<std::string> ids;       ///< of the documents of these files, in their order
};

/// Takes in the texts of these files, folders and "-" (standard input). A file of unchanged size
/// and time is not read. A text that is there already gets the file as a further source. A document
/// whose files under these paths are all gone or have other texts, and that has no other, is taken
/// out with its caches, once all else is done. Hold a LibraryLock. Throws Error for a path that
/// cannot be read, is no text or is empty, a folder without texts, and a full disk: what was taken
/// in before stays.
LibraryUpdate update(Library& library, std::span<const std::string> paths,
                     const UpdateOptions& options);

}  // namespace ballast
