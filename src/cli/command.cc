#include "cli/command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "ballast/error.h"
#include "ballast/storage.h"
#include "base/fail.h"
#include "base/os/files.h"
#include "formats/utf8_text.h"
#include "report/json_rows.h"
#include "report/shell_line.h"
#include "report/terminal.h"

namespace ballast::cli {
namespace {

[[noreturn]] void output_failed() {
  if (errno == EPIPE) throw BrokenPipe{};
  fail(ErrorCode::io, "cannot write to standard output: {}", std::strerror(errno));
}

std::string command;
std::vector<std::string> given_words;

}  // namespace

const std::string& command_line() { return command; }

std::span<const std::string> command_words() { return given_words; }

void set_command_line(std::span<const std::string> words) {
  given_words.assign(words.begin(), words.end());
  command = "ballast " + shell_line(words);
}

void print(std::string_view text) {
  // A file gets the bytes as they are; a terminal obeys some of them.
  static const bool terminal = is_terminal(Stream::out);
  const std::string shown = terminal ? terminal_text(text) : std::string();
  if (terminal) text = shown;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) output_failed();
}

void flush_output() {
  if (std::fflush(stdout) != 0) output_failed();
}

std::string read_text(const std::string& path, bool quiet) {
  std::string note;
  std::string text = read_input(path, &note);
  if (!note.empty() && !quiet) tell("note: " + note);
  return text;
}

void tell(std::string_view text) {
  constexpr std::size_t kLongest = 2000;
  std::string line = terminal_text(text.substr(0, kLongest));
  if (text.size() > kLongest || line.size() > kLongest) {
    // Escapes are longer than what they stand for.
    std::size_t end = std::min(line.size(), kLongest - 20);
    while (end > 0 && end < line.size() && (line[end] & 0xc0) == 0x80) --end;
    line.resize(end);
    line += " …";
  }
  while (line.ends_with('\n')) line.pop_back();
  std::ranges::replace(line, '\n', ' ');
  std::fprintf(stderr, "ballast: %s\n", line.c_str());
}

void FormatOption::add_to(CLI::App& app) {
  // A flag takes a value only after `=`, so that `--json in.safetensors` cannot overwrite an input
  // file.
  app.add_flag(
         name_ + "{-}", target_,
         fmt::format("Print {0} instead of text; {1}=FILE: text here, {0} there", format_, name_))
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);  // else one of two files is not written
}

void FormatOption::open() {
  if (wanted() && text()) file_ = std::make_unique<OutputFile>(target_);
}

void FormatOption::write(std::string_view content) {
  if (!wanted()) return;
  if (!text()) return print(content);
  file_->write(content);
  file_->commit();
  name_written(target_);
}

void TableOutput::add_to(CLI::App& app) {
  json_.add_to(app);
  csv_.add_to(app);
  markdown_.add_to(app);
}

void TableOutput::open() {
  require(json_.text() + csv_.text() + markdown_.text() >= 2,
          "standard output takes one of --json, --csv and --markdown; write --json=FILE");
  json_.open();
  csv_.open();
  markdown_.open();
}

void TableOutput::say(std::string_view text) const {
  if (this->text()) print(wrap_lines(text, terminal_width()));
}

void TableOutput::show(const Table& table) { show_beside(table, table.to_csv()); }

void TableOutput::show(const Table& table, const Json& rows) {
  show_beside(table, rows_to_csv(rows));
}

void TableOutput::show_beside(const Table& table, const std::string& csv) {
  if (text()) print(table.to_string(terminal_width()));
  csv_text_ += (csv_text_.empty() ? "" : "\n") + csv;
  markdown_text_ += (markdown_text_.empty() ? "" : "\n") + table.to_markdown();
}

void TableOutput::finish(const Json& json) {
  json_.write(json);
  csv_.write(csv_text_);
  markdown_.write(markdown_text_);
}

void name_written(std::string_view path) {
  flush_output();
  tell(fmt::format("wrote {}", path));
}

void add_float_type(CLI::App& app, std::string& type) {
  const auto own_name = [](std::string& given) {
    try {
      const StorageType type = parse_storage_type(given);
      for (const StorageType known : {StorageType::f32, StorageType::bf16, StorageType::f16}) {
        if (type == known) given = to_string(type);
      }
    } catch (const Error&) {  // parse_float_type() refuses it
    }
    return std::string();
  };
  app.add_option("--dtype", type, "f32, bf16 or f16")
      ->transform(CLI::Validator(own_name, ""))
      ->capture_default_str()
      ->type_name("TYPE");
}

TensorType parse_float_type(std::string_view name) {
  if (name == "f32") return TensorType::f32;
  if (name == "bf16") return TensorType::bf16;
  if (name == "f16") return TensorType::f16;
  fail("unknown type '{}'; known: f32, bf16, f16", name);
}

}  // namespace ballast::cli
