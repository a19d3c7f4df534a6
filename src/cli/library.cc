// ballast library: documents that are read once, in sections, and asked together.
#include "library/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/fail.h"
#include "base/partial_files.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/library_asking.h"
#include "cli/model_options.h"
#include "library/library_json.h"
#include "library/reading.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
  std::string model;
  std::string cache;
  std::string pack;
  std::vector<std::string> files;
  bool watch = false;
  std::string question;
  std::string questions;
  std::size_t sections = 3;
  GenerateFlags generate;
  bool quiet = false;
  JsonOption json;

  fs::path place() const { return folder.empty() ? user_library() : fs::path(folder); }
  void note(const std::string& text) const {
    if (!quiet) tell("note: " + text);
  }
};

/// "lease.pdf: 12,300 tokens in 6 sections, 8.2 MiB".
std::string line_of(const Library& library, const LibraryDocument& document) {
  const std::size_t sections = document.sections.size();
  return fmt::format("{}: {} tokens in {}{}\n", document.name, format_count(document.tokens()),
                     sections > 1 ? fmt::format("{} sections, ", format_count(sections)) : "",
                     format_bytes(static_cast<double>(library.bytes(document))));
}

/// ballast library add.
class Adding {
 public:
  explicit Adding(Options& o) : o_(o), library_(o.place()) {}

  void run() {
    o_.json.open();
    const auto model = std::make_shared<const TextModel>(o_.model);
    const SectionStorage storage(model->model, o_.cache, o_.pack);
    pass(model, storage);
    if (o_.watch) {
      o_.note(fmt::format("{} folders and files are watched; Ctrl+C ends it", o_.files.size()));
    }
    while (o_.watch) {
      std::this_thread::sleep_for(kPause);
      pass(model, storage);
    }
    o_.json.write({{"folder", library_.folder().string()},
                   {"added", added_},
                   {"changed", changed_},
                   {"removed", removed_}});
  }

 private:
  static constexpr auto kPause = std::chrono::seconds(2);

  /// Takes in what is new and reads what is not read.
  void pass(const std::shared_ptr<const TextModel>& model, const SectionStorage& storage) {
    std::optional<Progress> shown;
    const auto show = [&](std::size_t done, std::size_t all) {
      if (!o_.quiet) shown->update(static_cast<double>(done) / static_cast<double>(all));
    };
    AddingProgress progress;
    progress.waits = [&] {
      o_.note(fmt::format("{}: another process adds documents; waiting for it",
                          library_.folder().string()));
    };
    progress.files = [&](std::size_t done, std::size_t all) {
      if (!shown) shown.emplace("looking at files");
      show(done, all);
    };
    progress.found = [&](const LibraryUpdate& found) {
      shown.reset();
      tell_of(found);
    };
    progress.tokens = [&](std::size_t done, std::size_t all, std::size_t sections) {
      if (!shown) {
        set_resumable_file(library_.folder().string());
        shown.emplace(sections == 1 ? "reading"
                                    : fmt::format("reading {} sections of {} tokens",
                                                  format_count(sections), format_count(all)));
      }
      show(done, all);
      return true;
    };
    progress.read = [&](const LibraryDocument& document) {
      if (o_.json.text()) {
        print(line_of(library_, document));
        flush_output();
      }
      added_.push_back({{"name", document.name},
                        {"tokens", document.tokens()},
                        {"sections", document.sections.size()},
                        {"bytes", library_.bytes(document)}});
    };
    add_documents(library_, model, storage, o_.files, progress);
    set_resumable_file("");
  }

  void tell_of(const LibraryUpdate& found) {
    if (first_) content_of(library_, o_.quiet);
    for (const std::string& one : found.notes) o_.note(one);
    for (const std::string& one : found.same) o_.note(one + ", which is there already");
    const std::size_t left_out = found.left_out.size();
    if (left_out > 0 && first_) {
      o_.note(fmt::format("{} of {} files left out, which are no texts: {}{}", left_out,
                          found.files, found.left_out.front(), left_out > 1 ? ", …" : ""));
    }
    first_ = false;
    for (const std::string& name : found.removed) {
      if (o_.json.text()) print(fmt::format("{}: gone, and taken out\n", name));
      removed_.push_back(name);
    }
    flush_output();
    for (const std::string& name : found.changed) changed_.push_back(name);
  }

  Options& o_;
  Library library_;
  bool first_ = true;
  Json added_ = Json::array(), changed_ = Json::array(), removed_ = Json::array();
};

void add(Options& o) { Adding(o).run(); }

void list(Options& o) {
  o.json.open();
  Library library(o.place());
  Table table({{"document"},
               {"tokens", Align::right},
               {"sections", Align::right},
               {"cache", Align::right}});
  Json all = Json::array();
  for (const auto& document : content_of(library, o.quiet)->documents) {
    all.push_back(to_json(*document, library));
    const std::size_t sections = document->sections.size();
    const std::size_t read = all.back()["sections_read"];
    table.add(
        {document->name, format_count(document->tokens()),
         read < sections ? fmt::format("{} of {} read", read, sections) : format_count(sections),
         format_bytes(static_cast<double>(library.bytes(*document)))});
  }
  if (o.json.text()) {
    print(table.rows() == 0 ? fmt::format("{}: no documents; ballast library add brings some\n",
                                          o.place().string())
                            : table.to_string());
  }
  o.json.write({{"folder", o.place().string()}, {"documents", all}});
}

void remove(Options& o) {
  Library library(o.place());
  library.remove_named(o.files);
  if (o.quiet) return;
  for (const std::string& name : o.files) print(fmt::format("{}: removed\n", name));
}

void ask(Options& o) {
  require(o.question.empty() != o.questions.empty(), "a QUESTION is needed, or --questions FILE");
  ask_library({.folder = o.place(),
               .model = o.model,
               .questions = o.questions.empty() ? std::vector{o.question}
                                                : questions_in(o.questions, o.quiet),
               .list = !o.questions.empty(),
               .ask = {o.generate.parse(0), o.sections},
               .quiet = o.quiet},
              o.json);
}

/// A subcommand with the options that all have.
std::pair<CLI::App*, Options*> command(CLI::App& library, std::function<void()>& task,
                                       const char* name, const char* help, void (*work)(Options&)) {
  auto options = std::make_shared<Options>();
  CLI::App* app = library.add_subcommand(name, help);
  app->add_option("--library", options->folder, "The library's folder  [default: the user's]")
      ->type_name("DIR");
  app->add_flag("-q,--quiet", options->quiet, "Show no progress and no notes");
  options->json.add_to(*app);
  app->callback([options, work, &task] { task = [options, work] { work(*options); }; });
  return {app, options.get()};
}

void add_adding(CLI::App& library, std::function<void()>& task) {
  const auto [app, o] = command(library, task, "add", "Read documents and keep their caches", &add);
  add_model_option(*app, o->model);
  app->add_option("FILE", o->files,
                  "Texts, PDF, web pages, e-mails, office files and folders of them; each file is "
                  "a document")
      ->required();
  app->add_option("--cache", o->cache,
                  "How much of each cache is kept: see run --cache  [default: all of it, packed; "
                  "1/8 where the model has no basis]")
      ->type_name("SIZE");
  app->add_option(
         "--pack", o->pack,
         "Packs whole caches to 1/16, 1/32, 1/64 of their bytes; off: none  [default: 1/32 "
         "where the model has a basis, see ballast calibrate]")
      ->type_name("SIZE");
  app->add_flag("--watch", o->watch,
                "Go on: every two seconds take in what is new, has changed or is gone");
  app->footer(
      "The same command again takes in what is new in a folder, and takes out what is gone from "
      "it. It goes on where it was interrupted.\n\nExample:\n  ballast library add -m model.gguf "
      "papers/");
}

void add_asking(CLI::App& library, std::function<void()>& task) {
  const auto [app, o] = command(library, task, "ask",
                                "Answer from the sections that have the question's words", &ask);
  add_model_option(*app, o->model);
  app->add_option("QUESTION", o->question, "What is asked")->type_name("");
  app->add_option("--questions", o->questions, "A file with a question a line")->type_name("FILE");
  app->add_option("--sections,--documents", o->sections, "Sections at most that are asked")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 64));
  o->generate.add_to(*app);
  app->footer(
      "Each section is asked alone; the best supported answer is taken. Below it stand the "
      "sentences that it rests on.\n\nExample:\n  ballast library ask -m model.gguf \"When does "
      "the lease end?\"");
}

}  // namespace

void add_library(CLI::App& parent, std::function<void()>& task) {
  CLI::App* library = parent.add_subcommand(
      "library", "Documents that are read once, in sections, and asked together");
  library->require_subcommand(1);
  add_adding(*library, task);
  add_asking(*library, task);
  command(*library, task, "list", "The documents of a library", &list)
      .first->footer("Example:\n  ballast library list");
  const auto [app, o] =
      command(*library, task, "remove", "Take documents out of a library", &remove);
  app->add_option("NAME", o->files, "As list names them")->required();
  app->footer("Example:\n  ballast library remove lease.pdf");
  library->footer(
      "Example:\n  ballast library add papers/\n  ballast library ask \"When does the lease "
      "end?\"");
}

}  // namespace ballast::cli
