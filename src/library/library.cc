#include "library/library.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <span>

#include "base/fail.h"
#include "base/fnv.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "documents/sections.h"
#include "formats/json_text.h"
#include "report/json.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

std::string key_of(std::string_view text) {
  Fnv hash;
  hash.add(std::as_bytes(std::span(text)));
  return fmt::format("{:016x}", hash.value());
}

bool is_key(const std::string& name) {
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

LibrarySection section_of(const Json& json, std::size_t size) {
  const LibrarySection out{json.at("key"), json.at("begin"), json.at("end"), json.at("title"),
                           json.at("tokens")};
  require(is_key(out.key) && out.begin < out.end && out.end <= size, "a section from {} to {}",
          out.begin, out.end);
  return out;
}

LibraryDocument read_document_file(const fs::path& file) {
  const Json json = parse_json_text<Json>(read_file(file, {.pipes = false}), file.string());
  try {
    LibraryDocument out{file,
                        json.at("name"),
                        json.at("text"),
                        json.at("model"),
                        json.at("fingerprint"),
                        json.at("added"),
                        {},
                        {}};
    for (const Json& one : json.at("sources")) {
      out.sources.push_back({one.at("path"), one.at("name"), one.at("size"), one.at("changed")});
    }
    for (const Json& one : json.at("sections")) {
      out.sections.push_back(section_of(one, out.text.size()));
    }
    return out;
  } catch (const std::exception& other) {  // of another type, or missing
    fail(ErrorCode::bad_file, "{}: no document of a library: {}", file.string(), other.what());
  }
}

std::string to_text(const LibraryDocument& document) {
  Json sources = Json::array(), sections = Json::array();
  for (const LibrarySource& one : document.sources) {
    sources.push_back(
        {{"path", one.path}, {"name", one.name}, {"size", one.size}, {"changed", one.changed}});
  }
  for (const LibrarySection& one : document.sections) {
    sections.push_back({{"key", one.key},
                        {"begin", one.begin},
                        {"end", one.end},
                        {"title", one.title},
                        {"tokens", one.tokens}});
  }
  return ballast::to_text(Json{{"name", document.name},
                               {"model", document.model},
                               {"fingerprint", document.fingerprint},
                               {"added", document.added},
                               {"sources", std::move(sources)},
                               {"sections", std::move(sections)},
                               {"text", document.text}});
}

/// ID.json and their sizes and times, in order.
std::vector<std::pair<std::string, std::pair<std::int64_t, std::uint64_t>>> documents_in(
    const fs::path& folder) {
  std::vector<std::pair<std::string, std::pair<std::int64_t, std::uint64_t>>> out;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  require(!error || error == std::errc::no_such_file_or_directory, ErrorCode::io,
          "{}: cannot read the folder: {}", folder.string(), error.message());
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".json") continue;
    std::error_code gone;
    const std::uintmax_t size = fs::file_size(it->path(), gone);
    out.push_back({it->path().filename().string(), {written_at(it->path()), gone ? 0 : size}});
  }
  std::ranges::sort(out);
  return out;
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  require(!error, ErrorCode::io, "{}: cannot be removed: {}", file.string(), error.message());
}

}  // namespace

std::size_t LibraryDocument::tokens() const {
  std::size_t sum = 0;
  for (const LibrarySection& section : sections) sum += section.tokens;
  return sum;
}

std::string LibraryDocument::read_text(const LibrarySection& section) const {
  std::string out = section.title.empty() ? "" : section.title + "\n\n";
  return out.append(text_of(section));
}

Place LibraryDocument::place_of(const LibrarySection& section, std::size_t at) const {
  const std::size_t title = section.title.empty() ? 0 : section.title.size() + 2;
  Place place =
      ballast::place_of(text, std::min(section.end, section.begin + at - std::min(at, title)));
  place.document = name;
  return place;
}

LibraryDocument new_document(const fs::path& folder, std::string name, std::string text,
                             const std::function<std::size_t(std::string_view)>& tokens) {
  LibraryDocument out;
  out.file = folder / (key_of(text) + ".json");
  out.name = std::move(name);
  out.text = std::move(text);
  out.added = std::chrono::duration_cast<std::chrono::seconds>(
                  std::chrono::system_clock::now().time_since_epoch())
                  .count();
  const std::vector<Section> sections = divide(out.text, tokens);
  const std::string title = sections.size() > 1 ? title_of(out.text) : "";
  for (const Section& one : sections) {
    LibrarySection section{"", one.begin, one.end, "", one.tokens};
    // A whole document has its title in its text.
    if (&one != &sections.front()) {
      section.title = title.empty() || title == one.title ? one.title
                      : one.title.empty()                 ? title
                                                          : title + ": " + one.title;
    }
    section.key = key_of(out.read_text(section));
    out.sections.push_back(std::move(section));
  }
  return out;
}

std::shared_ptr<const LibraryContent> Library::content() {
  const std::scoped_lock lock(mutex_);
  const auto files = documents_in(folder_);
  const bool same =
      content_ && std::ranges::equal(files, known_, [](const auto& a, const auto& b) {
        return a.first == b.first && a.second == std::pair(b.second.changed, b.second.size);
      });
  if (same) return content_;
  std::map<std::string, Known> now;
  auto out = std::make_shared<LibraryContent>();
  for (const auto& [name, about] : files) {
    const auto before = known_.find(name);
    Known one{about.first, about.second, nullptr, ""};
    if (before != known_.end() && before->second.changed == one.changed &&
        before->second.size == one.size) {
      one = before->second;
    } else {
      try {
        one.document = std::make_shared<const LibraryDocument>(read_document_file(folder_ / name));
      } catch (const Error& damaged) {
        one.damage = damaged.what();
      }
    }
    if (one.document) out->documents.push_back(one.document);
    const bool gone = !one.document && !fs::exists(folder_ / name);  // removed while it was read
    if (!one.document && !gone) out->damaged.push_back(one.damage);
    now.emplace(name, std::move(one));
  }
  std::ranges::sort(out->documents, {},
                    [](const auto& one) { return std::pair(one->name, one->id()); });
  known_ = std::move(now);
  content_ = std::move(out);
  return content_;
}

bool Library::is_read(const LibrarySection& section) const {
  std::error_code error;
  return fs::exists(cache_of(section), error);
}

std::size_t Library::bytes(const LibraryDocument& document) const {
  std::size_t sum = 0;
  for (const LibrarySection& section : document.sections) {
    std::error_code gone;
    const std::uintmax_t size = fs::file_size(cache_of(section), gone);
    if (!gone) sum += size;
  }
  return sum;
}

void Library::put(const LibraryDocument& document) { write_file(document.file, to_text(document)); }

void Library::remove(const std::vector<std::string>& ids) {
  const std::shared_ptr<const LibraryContent> before = content();
  std::set<std::string> kept, unused;
  for (const auto& document : before->documents) {
    const bool goes = std::ranges::count(ids, document->id()) > 0;
    for (const LibrarySection& section : document->sections) {
      (goes ? unused : kept).insert(section.key);
    }
  }
  // Caches last: one without a document is found by a later reading of its text.
  for (const std::string& id : ids) remove_file(folder_ / (id + ".json"));
  for (const std::string& key : unused) {
    if (!kept.contains(key)) remove_file(folder_ / (key + ".cache"));
  }
}

void Library::remove_named(const std::vector<std::string>& names) {
  const std::shared_ptr<const LibraryContent> now = content();
  std::vector<std::string> ids;
  for (const std::string& name : names) {
    const std::size_t before = ids.size();
    for (const auto& one : now->documents) {
      if (one->name == name) ids.push_back(one->id());
    }
    require(ids.size() > before, "{}: no document '{}'; ballast library list names them",
            folder_.string(), name);
  }
  const LibraryLock lock(folder_, {});
  remove(ids);
}

std::vector<FoundSection> Library::find(std::string_view question, std::size_t most) {
  const std::shared_ptr<const LibraryContent> now = content();
  std::vector<IndexedText> texts;
  std::vector<FoundSection> sections;
  const std::scoped_lock lock(indexes_mutex_);
  std::map<std::string, std::shared_ptr<const PassageIndex>> used;
  for (const auto& document : now->documents) {
    for (std::size_t s = 0; s < document->sections.size(); ++s) {
      const LibrarySection& section = document->sections[s];
      if (!is_read(section)) continue;
      std::shared_ptr<const PassageIndex>& index = used[section.key];
      if (const auto known = indexes_.find(section.key); known != indexes_.end()) {
        index = known->second;
      } else if (!index) {
        index = std::make_shared<const PassageIndex>(document->text_of(section));
      }
      texts.push_back({document->text_of(section), index.get()});
      sections.push_back({document, s, 0, 0, ""});
    }
  }
  indexes_ = std::move(used);
  std::vector<FoundSection> out;
  for (Found& one : find_passages(texts, question, most)) {
    FoundSection& section = sections[one.text];
    section.score = one.score;
    section.begin = section.part().begin + one.begin;
    section.passage = std::move(one.passage);
    out.push_back(std::move(section));
  }
  return out;
}

LibraryLock::LibraryLock(const fs::path& folder, const std::function<void()>& waits) {
  std::error_code error;
  fs::create_directories(folder, error);
  const auto failed = [&](const std::string& reason) {
    fail(ErrorCode::io, "{}: cannot write into the folder: {}; name another: --library",
         folder.string(), reason);
  };
  if (error) failed(error.message());
  if (!may_write(folder)) failed(std::strerror(errno));
  file_ = Descriptor(::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file_.number() < 0) failed(std::strerror(errno));
  if (lock_file(file_.number(), Lock::alone_or_not) || errno != EWOULDBLOCK) return;  // or none
  if (waits) waits();
  lock_file(file_.number(), Lock::alone);
}

}  // namespace ballast
