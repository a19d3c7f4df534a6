#include "cli/command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>

#include "ballast/error.h"
#include "ballast/storage.h"
#include "base/fail.h"
#include "report/result.h"
#include "report/terminal.h"

namespace ballast::cli {
namespace {

[[noreturn]] void output_failed() {
  if (errno == EPIPE) throw BrokenPipe{};
  fail(ErrorCode::io, "cannot write to standard output: {}", std::strerror(errno));
}

thread_local std::string command;
thread_local std::string* captured = nullptr;

}  // namespace

const std::string& command_line() { return command; }

void set_command_line(std::span<const std::string> words) {
  command = "ballast";
  for (const std::string& word : words) {
    const bool plain =
        !word.empty() &&
        word.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%") ==
            std::string::npos;
    command += ' ';
    if (plain) {
      command += word;
      continue;
    }
    command += '\'';
    for (char c : word) command += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command += '\'';
  }
}

CapturedOutput::CapturedOutput() { captured = &text_; }
CapturedOutput::~CapturedOutput() { captured = nullptr; }

void print(std::string_view text) {
  if (captured != nullptr) {
    captured->append(text);
    return;
  }
  // A file gets the bytes as they are; a terminal obeys some of them.
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string shown = terminal ? terminal_text(text) : std::string();
  if (terminal) text = shown;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) output_failed();
}

void flush_output() {
  if (std::fflush(stdout) != 0) output_failed();
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
  if (captured != nullptr) return;
  flush_output();
  tell(fmt::format("wrote {}", path));
}

void add_synth_options(CLI::App& app, SynthOptions& o, const std::string& group) {
  auto add = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str()->group(group);
  };
  add("--tokens", o.tokens, "Tokens");
  add("--layers", o.layers, "Layers");
  add("--heads", o.heads, "Query heads, a multiple of --kv-heads");
  add("--kv-heads", o.kv_heads, "KV heads");
  add("--dim", o.dim, "Head dimension, up to 256");
  add("--clusters", o.clusters, "Clusters of keys in a head");
  add("--query-norm", o.query_norm, "Mean length of queries");
  add("--key-norm", o.key_norm, "Mean length of keys less their mean");
  add("--value-norm", o.value_norm, "Mean length of values");
  add("--sink-tokens", o.sink, "First tokens, which attract about half of all attention");
  add("--needle", o.needle,
      "Plant a needle there, 0 to 1 of the text: a key that the last query of the last head "
      "matches; "
      "-1: none");
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

std::vector<std::size_t> parse_selection(std::string_view text, std::string_view what) {
  std::vector<std::size_t> out;
  auto number = [&](std::string_view part) {
    std::uint32_t value = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    require(error == std::errc() && end == part.data() + part.size() && value < 1000000,
            "{} {}: expected numbers and ranges such as 0,2,5-7", what, text);
    return std::size_t{value};
  };
  for (std::string_view rest = text; !text.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t dash = item.find('-');
    const std::size_t low = number(item.substr(0, dash));
    const std::size_t high = dash == std::string_view::npos ? low : number(item.substr(dash + 1));
    require(low <= high, "{} {}: the range {} ends before it begins", what, text, item);
    for (std::size_t i = low; i <= high; ++i) out.push_back(i);
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::string> split_methods(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (std::string_view rest : texts) {
    bool option_may_follow = false;  // of the method before, after a ','
    while (true) {
      const std::size_t end = std::min(rest.find_first_of(",;"), rest.size());
      std::string_view item = rest.substr(0, end);
      while (item.starts_with(' ')) item.remove_prefix(1);
      while (item.ends_with(' ')) item.remove_suffix(1);
      const std::size_t sign = item.find_first_of(":=");
      const bool option = sign != std::string_view::npos && item[sign] == '=';
      if (option && option_may_follow) {
        out.back().append(",").append(item);
      } else if (!item.empty()) {
        out.emplace_back(item);
      }
      if (end == rest.size()) break;
      option_may_follow = rest[end] == ',' && (option_may_follow || !item.empty());
      rest.remove_prefix(end + 1);
    }
  }
  return out;
}

}  // namespace ballast::cli
