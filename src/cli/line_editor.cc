#include "cli/line_editor.h"

#include <fmt/format.h>
#include <histedit.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/fail.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "cli/command.h"
#include "formats/utf8_text.h"
#include "report/units.h"
#include "text/tokenizer/utf8.h"

namespace ballast::cli {
namespace {

constexpr std::string_view kPasteBegins = "\033[200~";
constexpr std::string_view kPasteEnds = "\033[201~";
constexpr std::string_view kBracketed = "\033[?2004h";
constexpr std::string_view kNotBracketed = "\033[?2004l";

/// Tells the terminal something; print() would show it.
void control(std::string_view sequence) {
  std::fwrite(sequence.data(), 1, sequence.size(), stdout);
}
constexpr std::size_t kLongPaste = 200;  ///< characters

/// Ctrl-C while a line is typed: libedit has given the terminal its state back.
std::optional<SignalHandler> typing;
void on_typing_interrupted(int) {
  write_now(Stream::out, kNotBracketed);
  typing->pass_on();
}

}  // namespace

struct LineEditor::State {
  EditLine* el = nullptr;
  History* history = nullptr;
  const char* prompt = "";
  std::vector<std::pair<std::string, std::string>> pastes;  ///< how each stands in lines, its text

  ~State() {
    if (history != nullptr) ::history_end(history);
    if (el != nullptr) ::el_end(el);
  }

  static State& of(EditLine* el) {
    void* state = nullptr;
    ::el_get(el, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }
  static char* prompt_of(EditLine* el) { return const_cast<char*>(of(el).prompt); }
  static unsigned char paste(EditLine* el, int first);
  static unsigned char interrupt(EditLine* el, int first);
  static unsigned char suspend(EditLine* el, int first);
  bool cleared = false;  ///< the line that comes back was thrown away
};

/// Ctrl-C throws a typed line away and ends the program on an empty one, as shells do.
unsigned char LineEditor::State::interrupt(EditLine* el, int /*first*/) {
  const LineInfo* line = ::el_line(el);
  if (line->lastchar == line->buffer) {
    ::el_set(el, EL_PREP_TERM, 0);
    std::raise(SIGINT);
    return CC_EOF;  // where the parent process ignores it
  }
  control("^C\n");
  of(el).cleared = true;
  return CC_NEWLINE;
}

unsigned char LineEditor::State::suspend(EditLine* /*el*/, int /*first*/) {
  control(kNotBracketed);  // the shell knows nothing of it
  flush_output();
  std::raise(SIGTSTP);
  control(kBracketed);
  flush_output();
  return CC_REDISPLAY;
}

unsigned char LineEditor::State::paste(EditLine* el, int /*first*/) {
  std::string text;
  while (!text.ends_with(kPasteEnds)) {
    wchar_t c = 0;
    if (::el_wgetc(el, &c) != 1) return CC_EOF;
    append_utf8(text, c == L'\r' ? U'\n' : static_cast<char32_t>(c));
  }
  text.resize(text.size() - kPasteEnds.size());
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1;
  const auto characters = static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  if (lines > 1 || characters > kLongPaste) {
    State& state = of(el);
    const std::string name =
        fmt::format("[paste {}: {} line{}, {} characters]", state.pastes.size() + 1,
                    format_count(lines), lines == 1 ? "" : "s", format_count(characters));
    state.pastes.emplace_back(name, std::move(text));
    text = name;
  }
  return ::el_insertstr(el, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

LineEditor::LineEditor() {
  if (!is_terminal(Stream::in) || !is_terminal(Stream::out)) return;
  // libedit decodes what is typed by the locale; texts are UTF-8.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  state_ = std::make_unique<State>();
  State& s = *state_;
  s.el = ::el_init("ballast", stdin, stdout, stderr);
  s.history = ::history_init();
  require(s.el != nullptr && s.history != nullptr, ErrorCode::out_of_memory,
          "no memory for line editing");
  HistEvent event;
  ::history(s.history, &event, H_SETSIZE, 1000);
  ::history(s.history, &event, H_SETUNIQUE, 1);
  ::el_set(s.el, EL_CLIENTDATA, &s);
  ::el_set(s.el, EL_PROMPT, &State::prompt_of);
  ::el_set(s.el, EL_EDITOR, "emacs");
  ::el_set(s.el, EL_SIGNAL, 1);
  ::el_set(s.el, EL_HIST, ::history, s.history);
  ::el_set(s.el, EL_ADDFN, "ballast-paste", "Insert pasted text", &State::paste);
  ::el_set(s.el, EL_BIND, kPasteBegins.data(), "ballast-paste", nullptr);
  ::el_set(s.el, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  // While a line is typed Ctrl-C is a key, so that it can see the line; then Ctrl-Z is one, too.
  ::el_set(s.el, EL_SETTY, "-d", "-isig", nullptr);
  ::el_set(s.el, EL_ADDFN, "ballast-interrupt", "Throw the line away", &State::interrupt);
  ::el_set(s.el, EL_BIND, "^C", "ballast-interrupt", nullptr);
  ::el_set(s.el, EL_ADDFN, "ballast-suspend", "Stop the program", &State::suspend);
  ::el_set(s.el, EL_BIND, "^Z", "ballast-suspend", nullptr);
  ::el_source(s.el, nullptr);  // ~/.editrc
}

LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read(const char* prompt) {
  if (!interactive()) {
    char* text = nullptr;
    std::size_t room = 0;
    errno = 0;
    const ssize_t size = ::getline(&text, &room, stdin);
    const std::unique_ptr<char, void (*)(void*)> owner(text, std::free);
    if (size < 0) {
      require(std::ferror(stdin) == 0, ErrorCode::io, "cannot read standard input: {}",
              std::strerror(errno));
      return std::nullopt;
    }
    std::string line(text, static_cast<std::size_t>(size));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    // The first line has a file's mark, if any; later ones may begin as other kinds of files do.
    if (lines_++ > 0 && line.starts_with("%PDF-")) return line;
    const std::string name = fmt::format("standard input, line {}", lines_);
    const std::size_t zero = line.find('\0');  // UTF-16 has other line ends
    require(zero == std::string::npos, ErrorCode::unsupported, "{}: not a text: byte {} is zero",
            name, zero);
    return as_utf8(std::move(line), name);
  }
  State& s = *state_;
  s.prompt = prompt;
  // el_gets() may draw the prompt first; the terminal would drop keys typed in between.
  ::el_set(s.el, EL_PREP_TERM, 1);
  control(kBracketed);
  flush_output();
  typing.emplace(SIGINT, on_typing_interrupted);
  int count = 0;
  const char* typed = nullptr;
  do {
    s.cleared = false;
    typed = ::el_gets(s.el, &count);
  } while (s.cleared);
  typing.reset();
  control(kNotBracketed);
  flush_output();
  if (typed == nullptr || count <= 0) return std::nullopt;
  std::string line(typed, static_cast<std::size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  if (line.find_first_not_of(' ') != std::string::npos) {
    HistEvent event;
    ::history(s.history, &event, H_ENTER, line.c_str());
  }
  for (const auto& [name, text] : s.pastes) {
    if (const std::size_t at = line.find(name); at != std::string::npos) {
      line.replace(at, name.size(), text);
    }
  }
  return line;
}

}  // namespace ballast::cli
