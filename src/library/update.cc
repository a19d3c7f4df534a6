#include "library/update.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/read_file.h"
#include "documents/document.h"
#include "documents/folder.h"
#include "formats/utf8_text.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

/// A file that is to be looked at.
struct Listed {
  LibrarySource source;
  std::string shown;       ///< as the caller named it
  bool of_folder = false;  ///< and left out where it is no text
};

std::string whole_path(const fs::path& path) {
  std::string out = fs::absolute(path).lexically_normal().string();
  if (out.size() > 1 && out.ends_with('/')) out.pop_back();
  return out;
}

bool is_under(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) &&
         (path[folder.size()] == '/' || folder == "/");
}

/// Removes what killed processes have not finished: files that no one has written to for an hour.
void remove_unfinished(const fs::path& folder) {
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->path().extension() != ".partial" || fs::last_write_time(it->path(), gone) > old || gone)
      continue;
    fs::remove(it->path(), gone);
  }
}

class Updating {
 public:
  Updating(Library& library, const UpdateOptions& options)
      : library_(library), o_(options), own_(whole_path(library.folder())) {
    for (const auto& document : library.content()->documents) {
      documents_.emplace(document->id(), *document);
      for (const LibrarySource& source : document->sources) {
        by_path_.emplace(source.path, document->id());
      }
    }
  }

  LibraryUpdate run(std::span<const std::string> paths) {
    for (const std::string& path : paths) list(path);
    std::size_t done = 0;
    for (const Listed& file : files_) {
      take(file);
      if (o_.progress) o_.progress(++done, files_.size());
    }
    out_.files = files_.size();
    if (out_.ids.empty() &&
        !folders_.empty()) {  // as where a disk is not there: nothing is dropped
      fail("{}: no text in this folder", folders_.front().second);
    }
    drop_gone();
    return std::move(out_);
  }

 private:
  void list(const std::string& path) {
    if (path == "-") {
      const std::string self = "standard input";
      take_text({"", self, 0, 0}, read_document(read_standard_input(), self, self), out_.ids);
      return;
    }
    std::error_code unknown;
    if (!fs::is_directory(path, unknown)) {
      add_file(path, fs::path(path).filename().string(), false);
      return;
    }
    const std::string folder = whole_path(path);
    folders_.emplace_back(folder, path);
    for (const fs::path& file : files_of(folder)) {
      if (is_under(file.string(), own_)) continue;
      add_file(file, file.lexically_relative(folder).string(), true);
    }
  }

  void add_file(const fs::path& path, const std::string& name, bool of_folder) {
    std::error_code unknown;
    const std::uintmax_t size = fs::file_size(path, unknown);
    Listed out{
        {whole_path(path), name, unknown ? 0 : size, written_at(path)}, path.string(), of_folder};
    if (listed_.insert(out.source.path).second) files_.push_back(std::move(out));
  }

  void take(const Listed& file) {
    for (auto [at, end] = by_path_.equal_range(file.source.path); at != end; ++at) {
      const std::vector<LibrarySource>& sources = documents_.at(at->second).sources;
      const auto source = std::ranges::find(sources, file.source.path, &LibrarySource::path);
      if (source == sources.end() || source->size != file.source.size ||
          source->changed != file.source.changed) {
        continue;
      }
      keep(at->second, file.source, out_.ids);
      return;
    }
    if (file.of_folder && !may_be_text(file.shown)) {
      out_.left_out.push_back(file.source.name);
      return;
    }
    std::vector<DocumentPart> parts;
    try {
      parts = read_document(read_file(file.shown), file.source.name, file.shown);
    } catch (const Error&) {  // a text of an unknown encoding, a PDF without text
      if (!file.of_folder) throw;
      out_.left_out.push_back(file.source.name);
      return;
    }
    const bool blank = std::ranges::all_of(parts, is_blank, &DocumentPart::text);
    require(!blank || file.of_folder, "{}: the document is empty", file.shown);
    if (!blank) take_text(file.source, parts, out_.ids);
  }

  /// A text that was read. `ids`: receives its document's.
  void take_text(const LibrarySource& source, const std::vector<DocumentPart>& parts,
                 std::vector<std::string>& ids) {
    for (const DocumentPart& part : parts) {
      if (!part.note.empty()) out_.notes.push_back(part.note);
    }
    LibraryDocument made = new_document(library_.folder(), source.name,
                                        joined_text(parts, has_pages(parts)), o_.tokens);
    require(!made.sections.empty(), "{}: the document is empty", source.name);
    const std::string id = made.id();
    const auto there = documents_.find(id);
    if (there == documents_.end()) {
      made.model = o_.model;
      made.fingerprint = o_.fingerprint;
      if (!source.path.empty()) made.sources = {source};
      library_.put(made);
      kept_.emplace(source.path, id);
      (by_path_.contains(source.path) ? out_.changed : out_.added).push_back(source.name);
      documents_.emplace(id, std::move(made));
      if (!source.path.empty()) by_path_.emplace(source.path, id);
      ids.push_back(id);
      return;
    }
    if (!source.path.empty() && there->second.name != source.name) {
      out_.same.push_back(fmt::format("{} has the text of {}", source.name, there->second.name));
    }
    keep(id, source, ids);
  }

  /// The file is one of this document.
  void keep(const std::string& id, const LibrarySource& source, std::vector<std::string>& ids) {
    if (std::ranges::count(ids, id) == 0) ids.push_back(id);
    if (source.path.empty()) return;
    LibraryDocument& document = documents_.at(id);
    const auto at = std::ranges::find(document.sources, source.path, &LibrarySource::path);
    kept_.emplace(source.path, id);
    if (at == document.sources.end()) {
      document.sources.push_back(source);
    } else if (at->size != source.size || at->changed != source.changed) {
      *at = source;
    } else {
      return;
    }
    library_.put(document);
  }

  /// Whether a source is still of its document.
  bool holds(const LibrarySource& source, const std::string& id) const {
    if (const auto now = kept_.find(source.path); now != kept_.end()) return now->second == id;
    if (listed_.contains(source.path)) return true;  // and could not be read
    return std::ranges::none_of(
        folders_, [&](const auto& folder) { return is_under(source.path, folder.first); });
  }

  /// Files that are gone or have another text now.
  void drop_gone() {
    std::vector<std::string> gone;
    for (auto& [id, document] : documents_) {
      const std::size_t before = document.sources.size();
      std::erase_if(document.sources, [&](const LibrarySource& one) { return !holds(one, id); });
      if (document.sources.size() == before) continue;
      if (!document.sources.empty()) {
        document.name = document.sources.front().name;
        library_.put(document);
        continue;
      }
      gone.push_back(id);
      if (std::ranges::count(out_.changed, document.name) == 0)
        out_.removed.push_back(document.name);
    }
    if (!gone.empty()) library_.remove(gone);
  }

  Library& library_;
  const UpdateOptions& o_;
  std::string own_;
  std::map<std::string, LibraryDocument> documents_;  ///< by id
  std::multimap<std::string, std::string> by_path_;   ///< ids
  std::vector<Listed> files_;
  std::set<std::string> listed_;                              ///< their paths
  std::vector<std::pair<std::string, std::string>> folders_;  ///< absolute, as named
  std::map<std::string, std::string> kept_;                   ///< the id of each path now
  LibraryUpdate out_;
};

}  // namespace

LibraryUpdate update(Library& library, std::span<const std::string> paths,
                     const UpdateOptions& options) {
  remove_unfinished(library.folder());
  return Updating(library, options).run(paths);
}

}  // namespace ballast
