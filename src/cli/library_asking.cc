#include "cli/library_asking.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fail.h"
#include "cli/answering.h"
#include "cli/line_editor.h"
#include "hub/local.h"
#include "library/library_json.h"
#include "library/reading.h"
#include "report/citations.h"

namespace ballast::cli {

std::filesystem::path user_library() { return hub::store().parent_path() / "library"; }

std::shared_ptr<const LibraryContent> content_of(Library& library, bool quiet) {
  std::shared_ptr<const LibraryContent> out = library.content();
  for (const std::string& one : out->damaged) {
    if (quiet) break;
    tell(fmt::format("note: {}; it is left out: remove the file, and add the document again", one));
  }
  return out;
}

namespace {

/// A library with the model that has read it.
class Asking {
 public:
  explicit Asking(const LibraryQuestions& o) : o_(o), library_(o.folder) {
    const std::shared_ptr<const LibraryContent> have = content_of(library_, o.quiet);
    require(!have->documents.empty(), "{}: no documents; ballast library add brings some",
            o.folder.string());
    const auto read = [this](const auto& document) {
      return std::ranges::any_of(document->sections,
                                 [this](const auto& one) { return library_.is_read(one); });
    };
    require(std::ranges::any_of(have->documents, read),
            "{}: nothing of it is read yet; ballast library add goes on with it",
            o.folder.string());
    model_ = std::make_shared<const TextModel>(o.model);
    require_model(library_, *have, model_->model);
    asker_.emplace(library_, model_);
  }

  /// Answers a question, on standard output if `show`.
  Json ask(const std::string& question, bool show) {
    AnswerOutput output;
    const LibraryAnswer answer = asker_->ask(question, o_.ask, [&](std::string_view piece) {
      if (show) output.add(piece);
      return true;
    });
    if (show && answer.supported) output.finish();
    for (const std::string& one : answer.left_out) {
      if (!o_.quiet) tell("note: " + one);
    }
    if (show) print_places(answer);
    flush_output();
    return to_json(question, answer, library_);
  }

 private:
  static void print_places(const LibraryAnswer& answer) {
    if (answer.supported) return print(to_text(answer.citations));
    print("Not in the library.\n");
    if (answer.asked.empty()) return;
    print("The sections that have words of the question:\n");
    for (const AskedSection& one : answer.asked) {
      if (!one.citations.empty()) print(to_text({one.citations.front()}));
    }
  }

  const LibraryQuestions& o_;
  Library library_;
  std::shared_ptr<const TextModel> model_;
  std::optional<LibraryAsker> asker_;
};

}  // namespace

std::vector<std::string> questions_in(const std::string& file, bool quiet) {
  std::vector<std::string> out;
  const std::string text = read_text(file, quiet);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t\r") != std::string::npos) out.push_back(std::move(line));
    begin = end + 1;
  }
  require(!out.empty(), "{}: no questions", file);
  return out;
}

void ask_library(const LibraryQuestions& o, JsonOption& json) {
  json.open();
  Asking asking(o);
  Json all = Json::array();
  for (const std::string& question : o.questions) {
    if (json.text() && o.questions.size() > 1) {
      print(fmt::format("{}> {}\n", all.empty() ? "" : "\n", question));
    }
    all.push_back(asking.ask(question, json.text()));
  }
  json.write(o.list ? Json{{"answers", all}} : all[0]);
}

void chat_with_library(const LibraryQuestions& o) {
  Asking asking(o);
  LineEditor editor;
  if (editor.interactive() && !o.quiet) {
    print(fmt::format("{}: ask; /quit, Ctrl-D or Ctrl-C ends.\n", o.folder.string()));
  }
  while (const std::optional<std::string> line = editor.read("> ")) {
    if (*line == "/quit" || *line == "/exit") return;
    if (line->find_first_not_of(" \t\r\n") != std::string::npos) asking.ask(*line, true);
  }
  if (editor.interactive()) print("\n");
}

void add_library_option(CLI::App& app, std::string& folder,
                        std::initializer_list<const char*> others) {
  CLI::Option* option = app.add_option("--library", folder,
                                       "Answer from the documents that `ballast library add` "
                                       "has read into this folder")
                            ->type_name("DIR");
  const std::vector<std::string> names(others.begin(), others.end());
  app.parse_complete_callback([&app, option, names] {
    for (const CLI::Option* one : app.get_options()) {
      if (option->count() == 0 || one->count() == 0) continue;
      const std::string name = one->get_name();
      require(one->get_group() != "Cache" && std::ranges::count(names, name) == 0,
              "--library and {} exclude each other", name);
    }
  });
}

}  // namespace ballast::cli
