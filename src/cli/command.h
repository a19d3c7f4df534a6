// The subcommands of the program and their common parts.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tensor.h"
#include "base/output_file.h"
#include "report/json.h"
#include "report/table.h"

namespace ballast::cli {

/// Adds a subcommand to `parent`. Parsing sets `task` if the command line selects it.
using AddCommand = void (*)(CLI::App& parent, std::function<void()>& task);

void add_methods(CLI::App& parent, std::function<void()>& task);
void add_inspect(CLI::App& parent, std::function<void()>& task);
void add_run(CLI::App& parent, std::function<void()>& task);
void add_calibrate(CLI::App& parent, std::function<void()>& task);
void add_chat(CLI::App& parent, std::function<void()>& task);
void add_perplexity(CLI::App& parent, std::function<void()>& task);
void add_library(CLI::App& parent, std::function<void()>& task);
void add_tokenize(CLI::App& parent, std::function<void()>& task);

/// The command that runs, quoted for a shell; empty before it is set.
const std::string& command_line();
/// Its words, without the program's name.
std::span<const std::string> command_words();
/// `words`: without the program's name.
void set_command_line(std::span<const std::string> words);

/// All commands, in the order in which --help shows them.
std::span<const AddCommand> commands();

/// Standard output was closed by its reader.
struct BrokenPipe {};

/// Writes to standard output. Throws BrokenPipe, or Error if it cannot be written (a full disk).
void print(std::string_view text);
/// Flushes standard output; throws as print() does.
void flush_output();

/// Prints "ballast: `text`" as one line on standard error: printable, at most 2,000 characters.
void tell(std::string_view text);

/// A text in UTF-8; "-": standard input. Unless `quiet` a note says where its encoding is a guess
/// and which byte was replaced. Throws Error as read_input() does.
std::string read_text(const std::string& path, bool quiet = false);

/// --NAME: prints in a format in place of text. --NAME=FILE: also writes the format to a file.
class FormatOption {
 public:
  /// `name`: "--csv"; `format`: "CSV", for the help.
  FormatOption(std::string name, std::string format)
      : name_(std::move(name)), format_(std::move(format)) {}
  void add_to(CLI::App& app);
  /// Call it before long work, so that an unwritable file fails at once.
  void open();
  bool wanted() const { return !target_.empty(); }
  /// Whether text goes to standard output.
  bool text() const { return target_ != "-"; }
  /// The file of --NAME=FILE.
  const std::string& file() const { return target_; }
  /// Prints or writes `content` if wanted. A written file is named on standard error.
  void write(std::string_view content);

 private:
  std::string name_;
  std::string format_;
  std::string target_;
  std::unique_ptr<OutputFile> file_;
};

/// --json.
class JsonOption : public FormatOption {
 public:
  JsonOption() : FormatOption("--json", "JSON") {}
  void write(const Json& json) {
    if (wanted()) FormatOption::write(ballast::to_text(json));
  }
};

/// --json, --csv, --markdown: what a command that prints tables writes in place of text.
class TableOutput {
 public:
  void add_to(CLI::App& app);
  /// As FormatOption::open(). Throws Error if standard output is to take more than one format.
  void open();
  /// Whether text goes to standard output.
  bool text() const { return json_.text() && csv_.text() && markdown_.text(); }
  /// Prints what stands around tables, in lines that fit the terminal; CSV and Markdown have the
  /// tables alone.
  void say(std::string_view text) const;
  void show(const Table& table);
  /// `rows`: an array of objects, of which CSV has every key.
  void show(const Table& table, const Json& rows);
  /// Writes the formats that are wanted; in CSV and Markdown a blank line parts tables.
  void finish(const Json& json);

 private:
  void show_beside(const Table& table, const std::string& csv);

  JsonOption json_;
  FormatOption csv_{"--csv", "CSV"};
  FormatOption markdown_{"--markdown", "Markdown"};
  std::string csv_text_;
  std::string markdown_text_;
};

/// Names a file that was written, on standard error.
void name_written(std::string_view path);

/// --dtype, the type of written tensors; what --cache-type understands of other programs' names
/// (fp16, Float32) becomes our own.
void add_float_type(CLI::App& app, std::string& type);
/// "f32", "bf16" or "f16". Throws Error.
TensorType parse_float_type(std::string_view name);

}  // namespace ballast::cli
