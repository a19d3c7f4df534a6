// The texts of files become sections of a library, and these caches.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "ballast/engine/session.h"
#include "library/library.h"
#include "library/update.h"

namespace ballast {

/// How the caches of sections are made and kept.
struct SectionStorage {
  CacheOptions options;
  std::string pack = "off";  ///< see Session::save()

  /// `cache`: how much of each is kept, `pack`: how whole ones are packed. Both empty: packed to
  /// 1/32 where the model has a basis, else an eighth. Throws Error where they do not fit
  /// together, or to the model.
  SectionStorage(const Model& model, const std::string& cache, const std::string& pack);
};

/// The form in which a section is read and asked.
QuestionForm section_form(const Tokenizer& tokenizer, const std::string& text);

/// Throws Error unless the caches of a library are of this model.
void require_model(const Library& library, const LibraryContent& content, const Model& model);

/// What is told while documents are added; each may be empty.
struct AddingProgress {
  std::function<void()> waits;  ///< another process adds documents
  std::function<void(std::size_t done, std::size_t all)> files;
  std::function<void(const LibraryUpdate&)> found;  ///< then the reading begins
  /// Tokens of the sections to be read, and how many these are. False stops.
  std::function<bool(std::size_t done, std::size_t all, std::size_t sections)> tokens;
  std::function<void(const LibraryDocument&)> read;  ///< all of its sections are
};

/// Takes files into a library: see update(). Then reads every section that has no cache, those of
/// these files first; each appears whole or not at all, so the same call goes on with what was
/// stopped. Holds the LibraryLock. Throws Error as update(), require_model() and Session do.
LibraryUpdate add_documents(Library& library, const std::shared_ptr<const TextModel>& model,
                            const SectionStorage& storage, std::span<const std::string> paths,
                            const AddingProgress& progress = {});

}  // namespace ballast
