// A library: documents in a folder, each divided into sections that a model has read alone.
//
//   ID.json     what a document is: its text, its files, its sections
//   KEY.cache   the cache of a section; sections of the same text share it
//
// A document is there once its ID.json is; its sections can be asked as soon as their caches are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/files.h"
#include "documents/passages.h"
#include "documents/search.h"

namespace ballast {

/// A part of a document that is read alone.
struct LibrarySection {
  std::string key;                 ///< of its cache
  std::size_t begin = 0, end = 0;  ///< bytes of the document's text
  std::string title;               ///< heading that the model reads above it; may be empty
  std::size_t tokens = 0;          ///< about
};

/// A file that has a document's text.
struct LibrarySource {
  std::string path;  ///< absolute
  std::string name;  ///< for people: as the folder's that was added
  std::uint64_t size = 0;
  std::int64_t changed = 0;  ///< nanoseconds; see written_at()
};

struct LibraryDocument {
  std::filesystem::path file;  ///< ID.json
  std::string name, text;
  std::string model;                   ///< whose caches its sections have
  std::string fingerprint;             ///< of that model, in hexadecimal
  std::int64_t added = 0;              ///< seconds since 1970; 0: not known
  std::vector<LibrarySource> sources;  ///< empty: the text came through a pipe
  std::vector<LibrarySection> sections;

  std::string id() const { return file.stem().string(); }
  std::size_t tokens() const;
  std::string_view text_of(const LibrarySection& section) const {
    return std::string_view(text).substr(section.begin, section.end - section.begin);
  }
  /// What the model reads of a section: its title and its text.
  std::string read_text(const LibrarySection& section) const;
  /// Where a byte of read_text() stands in the document; of its title: where the section begins.
  Place place_of(const LibrarySection& section, std::size_t at) const;
};

/// A document of one text; its sections have no caches yet. `tokens`: how many a text has.
LibraryDocument new_document(const std::filesystem::path& folder, std::string name,
                             std::string text,
                             const std::function<std::size_t(std::string_view)>& tokens);

/// What was in the folder at a time.
struct LibraryContent {
  std::vector<std::shared_ptr<const LibraryDocument>> documents;  ///< in the order of their names
  std::vector<std::string> damaged;  ///< an error for each ID.json that cannot be read
};

/// A section that may answer a question.
struct FoundSection {
  std::shared_ptr<const LibraryDocument> document;
  std::size_t section = 0;  ///< its number
  double score = 0;         ///< see Found
  std::size_t begin = 0;    ///< byte of the document's text at which the best passage begins
  std::string passage;

  const LibrarySection& part() const { return document->sections[section]; }
};

/// The folder. Any thread may call; several processes may use it.
class Library {
 public:
  explicit Library(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  /// What is there now: reads what is new or has changed since the last call. None where there is
  /// no folder. Throws Error if it cannot be read.
  std::shared_ptr<const LibraryContent> content();
  /// The file of a section's cache, whether it is there or not.
  std::filesystem::path cache_of(const LibrarySection& section) const {
    return folder_ / (section.key + ".cache");
  }
  bool is_read(const LibrarySection& section) const;
  /// Bytes of the caches of a document's sections that are there.
  std::size_t bytes(const LibraryDocument& document) const;

  /// Writes a document's ID.json, whole or not at all. Throws Error if it cannot.
  void put(const LibraryDocument& document);
  /// Takes documents out; the caches that no other has go, too. Throws Error if a file stays.
  void remove(const std::vector<std::string>& ids);
  /// The same by their names, every document of a name, with a LibraryLock. Throws Error for a name
  /// that none has, too.
  void remove_named(const std::vector<std::string>& names);

  /// Up to `most` sections that the model has read and that share words with the question, best
  /// first. A section's score is that of its best passage: see find_passages().
  std::vector<FoundSection> find(std::string_view question, std::size_t most);

 private:
  struct Known {
    std::int64_t changed = 0;
    std::uint64_t size = 0;
    std::shared_ptr<const LibraryDocument> document;  ///< null: damaged
    std::string damage;
  };

  std::filesystem::path folder_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;  ///< by file name
  std::shared_ptr<const LibraryContent> content_;
  std::mutex indexes_mutex_;
  std::map<std::string, std::shared_ptr<const PassageIndex>> indexes_;  ///< by section's key
};

/// One process changes a library at a time: holds its lock as long as it lives, killed or not.
class LibraryLock {
 public:
  /// Makes the folder if need be, and waits for the process that has the lock; `waits` is called
  /// once before. Throws Error if the folder cannot be written.
  LibraryLock(const std::filesystem::path& folder, const std::function<void()>& waits);

 private:
  Descriptor file_;
};

}  // namespace ballast
