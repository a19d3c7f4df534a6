#include "eval/results/result_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/fail.h"

namespace ballast {

namespace fs = std::filesystem;

struct ResultLog::State {
  fs::path path;
  std::FILE* file = nullptr;
  std::map<std::string, Json> findings;
  std::mutex mutex;

  ~State() {
    if (file != nullptr) std::fclose(file);
  }
  void write(const Json& line) {
    const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0) {
      fail("{}: cannot write: {}", path.string(), std::strerror(errno));
    }
  }
  std::size_t read(const std::string& content, const Json& identity);
};

namespace {

constexpr const char* kMark = "ballast_progress";

/// The first setting in which two identities differ, for messages.
std::string difference(const Json& was, const Json& is) {
  for (const auto& [key, value] : is.items()) {
    if (!was.contains(key)) return key;
    if (was[key] != value) {
      const auto text = [](const Json& json) { return json.dump().substr(0, 60); };
      return fmt::format("{} is {} there, {} here", key, text(was[key]), text(value));
    }
  }
  return "it has other settings";
}

}  // namespace

/// Returns the bytes that hold whole lines.
std::size_t ResultLog::State::read(const std::string& content, const Json& identity) {
  std::size_t begin = 0, number = 0;
  Json was;
  while (true) {
    const std::size_t end = content.find('\n', begin);
    // A log without findings is removed.
    if (end == std::string::npos) return findings.empty() ? 0 : begin;
    ++number;
    const Json line = Json::parse(content.begin() + static_cast<std::ptrdiff_t>(begin),
                                  content.begin() + static_cast<std::ptrdiff_t>(end), nullptr,
                                  /*allow_exceptions=*/false);
    if (number == 1) {
      require(line.is_object() && line.contains(kMark),
              "{}: not the progress of an experiment; move it away or name another file with "
              "--json=FILE",
              path.string());
      was = line[kMark];
    } else {
      require(was == identity,
              "{}: the progress of another command ({}); finish that one, or delete the file",
              path.string(), difference(was, identity));
      require(line.is_object() && line.contains("key") && line["key"].is_string() &&
                  line.contains("finding"),
              "{}, line {}: damaged; delete the line to have it computed again", path.string(),
              number);
      findings[line["key"].get<std::string>()] = line["finding"];
    }
    begin = end + 1;
  }
}

ResultLog::ResultLog(const fs::path& path, const Json& identity) : state_(new State) {
  state_->path = path;
  std::string content;
  {
    std::ifstream in(path, std::ios::binary);
    if (in) content.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::size_t whole = state_->read(content, identity);
  state_->file = std::fopen(path.c_str(), "ab");
  if (state_->file == nullptr || ::ftruncate(::fileno(state_->file), static_cast<off_t>(whole))) {
    fail("{}: cannot write: {}", path.string(), std::strerror(errno));
  }
  if (whole == 0) state_->write({{kMark, identity}});
}

ResultLog::ResultLog() = default;
ResultLog::~ResultLog() = default;
ResultLog::ResultLog(ResultLog&&) noexcept = default;
ResultLog& ResultLog::operator=(ResultLog&&) noexcept = default;

std::size_t ResultLog::found() const { return state_ ? state_->findings.size() : 0; }

const Json* ResultLog::find(const std::string& key) const {
  if (!state_) return nullptr;
  const auto at = state_->findings.find(key);
  return at == state_->findings.end() ? nullptr : &at->second;
}

void ResultLog::add(const std::string& key, const Json& finding) {
  if (!state_) return;
  std::lock_guard lock(state_->mutex);
  state_->write({{"key", key}, {"finding", finding}});
}

void ResultLog::finish() {
  if (!state_) return;
  std::error_code ignored;
  fs::remove(state_->path, ignored);
}

}  // namespace ballast
