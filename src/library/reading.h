// The sections of a library become caches.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/engine/session.h"
#include "ballast/pack.h"
#include "library/library.h"

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

/// Throws Error unless the caches of a library are of this model.
void require_model(const Library& library, const LibraryContent& content, const Model& model);

/// A section without a cache.
struct UnreadSection {
  std::shared_ptr<const LibraryDocument> document;
  std::size_t section = 0;
};
/// Each once, those of the documents `first` before others.
std::vector<UnreadSection> unread_sections(const Library& library, const LibraryContent& content,
                                           std::span<const std::string> first);

/// Reads a section and writes its cache, whole or not at all. `progress` is told its tokens done;
/// false stops the reading, and false is returned. Throws Error as Session does.
bool read_section(const std::shared_ptr<const TextModel>& model, const SectionStorage& storage,
                  const Library& library, const UnreadSection& unread,
                  const std::function<bool(std::size_t done)>& progress);

/// What a section is called among others: "handbook.pdf, 3 of 40".
std::string name_of(const LibraryDocument& document, std::size_t section);

}  // namespace ballast
