#include "experiments/data/json_lines.h"

#include <algorithm>
#include <cerrno>

#include "base/fail.h"
#include "base/printable.h"
#include "base/read_file.h"
#include "formats/json_text.h"

namespace ballast {
namespace {

constexpr std::size_t kLongestLine = std::size_t{256} << 20;

const SortedJson& field(const Record& record, const char* name) {
  require(record.has(name), ErrorCode::bad_file, "{}: the field \"{}\" is missing", record.place,
          name);
  return record.fields.at(name);
}

[[noreturn]] void fail_type(const Record& record, const char* name, const char* expected) {
  fail(ErrorCode::bad_file, "{}: the field \"{}\" is {}; expected {}", record.place, name,
       record.fields.at(name).type_name(), expected);
}

/// std::getline that stops at a limit: a file of one endless line is not a benchmark.
bool read_line(std::istream& in, std::string& line, const std::string& place) {
  line.clear();
  std::streambuf& buffer = *in.rdbuf();
  for (int c = buffer.sbumpc(); c != std::char_traits<char>::eof(); c = buffer.sbumpc()) {
    if (c == '\n') return true;
    require(line.size() < kLongestLine, ErrorCode::bad_file, "{}: the line is longer than 256 MiB",
            place);
    line.push_back(static_cast<char>(c));
  }
  return !line.empty();
}

}  // namespace

bool Record::has(const char* name) const {
  const auto found = fields.find(name);
  return found != fields.end() && !found->is_null();
}

const std::string& Record::text(const char* name) const {
  const SortedJson& value = field(*this, name);
  if (!value.is_string()) fail_type(*this, name, "text");
  return value.get_ref<const std::string&>();
}

std::string Record::digits(const char* name) const {
  const SortedJson& value = field(*this, name);
  if (value.is_number_integer()) return value.dump();
  if (!value.is_string()) fail_type(*this, name, "a whole number");
  const std::string& text = value.get_ref<const std::string&>();
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  const bool whole =
      text.size() > sign && text.find_first_not_of("0123456789", sign) == std::string::npos;
  require(whole, ErrorCode::bad_file, "{}: the field \"{}\" is \"{}\"; expected a whole number",
          place, name, printable(text));
  return text;
}

std::int64_t Record::number(const char* name) const {
  const std::string written = digits(name);
  require(written.size() <= 18, ErrorCode::bad_file,
          "{}: the field \"{}\" is {}, which is too large", place, name, printable(written));
  return std::stoll(written);
}

std::vector<std::string> Record::texts(const char* name) const {
  const SortedJson& value = field(*this, name);
  if (!value.is_array()) fail_type(*this, name, "a list of texts");
  require(!value.empty(), ErrorCode::bad_file, "{}: the list \"{}\" is empty", place, name);
  std::vector<std::string> out;
  for (const SortedJson& item : value) {
    require(item.is_string(), ErrorCode::bad_file, "{}: the list \"{}\" holds {}; expected texts",
            place, name, item.type_name());
    out.push_back(item.get<std::string>());
  }
  return out;
}

Record Record::object(const char* name) const {
  const SortedJson& value = field(*this, name);
  if (!value.is_object()) fail_type(*this, name, "an object");
  return {place, value};
}

JsonLines::JsonLines(const std::filesystem::path& path) : path_(path) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), ErrorCode::io,
          "{}: is a folder; expected a .jsonl file", path.string());
  errno = 0;
  file_.open(path, std::ios::binary);
  if (!file_.is_open()) fail_to_open(path, errno);
}

std::optional<Record> JsonLines::next() {
  std::string line;
  for (;;) {
    const std::string place = fmt::format("{}:{}", path_.string(), line_ + 1);
    if (!read_line(file_, line, place)) break;
    if (line_++ == 0 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Record record{place, parse_json_text(line, place)};
    require(record.fields.is_object(), ErrorCode::bad_file, "{}: {} where an object was expected",
            place, record.fields.type_name());
    ++found_;
    return record;
  }
  require(!file_.bad(), ErrorCode::io, "{}: cannot be read to its end", path_.string());
  require(found_ != 0, ErrorCode::bad_file, "{}: holds no sample", path_.string());
  return std::nullopt;
}

std::vector<std::filesystem::path> json_lines_files(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  require(!files.empty(), ErrorCode::bad_file, "{}: the folder holds no .jsonl file",
          path.string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace ballast
