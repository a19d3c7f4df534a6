// ballast library: documents that are read once, in sections, and asked together.
#include "library/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "ballast/engine/context_file.h"
#include "base/fail.h"
#include "base/partial_files.h"
#include "cli/answering.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_options.h"
#include "hub/local.h"
#include "library/asking.h"
#include "library/reading.h"
#include "library/update.h"
#include "report/citations.h"
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

  fs::path place() const {
    return folder.empty() ? hub::store().parent_path() / "library" : fs::path(folder);
  }
  void note(const std::string& text) const {
    if (!quiet) tell("note: " + text);
  }
};

/// What is there, with a note for each damaged document.
std::shared_ptr<const LibraryContent> content_of(Library& library, const Options& o) {
  std::shared_ptr<const LibraryContent> out = library.content();
  for (const std::string& one : out->damaged) {
    o.note(fmt::format("{}; it is left out: remove the file, and add the document again", one));
  }
  return out;
}

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
    {
      const LibraryLock lock = locked();
      before_ = content_of(library_, o_);
      model_ = std::make_shared<const TextModel>(o_.model);
      require_model(library_, *before_, model_->model);
      storage_.emplace(model_->model, o_.cache, o_.pack);
      pass();
    }
    if (!o_.watch) return finish();
    o_.note(fmt::format("{} folders and files are watched; Ctrl+C ends it", o_.files.size()));
    while (true) {
      std::this_thread::sleep_for(kPause);
      const LibraryLock lock = locked();
      pass();
    }
  }

 private:
  static constexpr auto kPause = std::chrono::seconds(2);

  LibraryLock locked() const {
    return LibraryLock(library_.folder(), [&] {
      o_.note(fmt::format("{}: another process adds documents; waiting for it",
                          library_.folder().string()));
    });
  }

  /// Takes in what is new and reads what is not read.
  void pass() {
    const Tokenizer& tokenizer = model_->tokenizer;
    UpdateOptions options;
    options.tokens = [&](std::string_view text) {
      return encode_more(tokenizer, text, false).size();
    };
    options.model = model_name(model_->model);
    options.fingerprint = fmt::format("{:016x}", fingerprint(model_->model));
    LibraryUpdate found;
    {
      Progress progress("looking at files");
      options.progress = [&](std::size_t done, std::size_t all) {
        if (!o_.quiet) progress.update(static_cast<double>(done) / static_cast<double>(all));
      };
      found = update(library_, o_.files, options);
    }
    tell_of(found);
    read(found.ids);
  }

  void tell_of(const LibraryUpdate& found) {
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
    for (const std::string& name : found.changed) changed_.push_back(name);
  }

  void read(const std::vector<std::string>& first) {
    const std::shared_ptr<const LibraryContent> now = library_.content();
    const std::vector<UnreadSection> unread = unread_sections(library_, *now, first);
    if (unread.empty()) return;
    std::size_t all = 0, done = 0;
    for (const UnreadSection& one : unread) all += tokens_of(one);
    set_resumable_file(library_.folder().string());
    Progress progress(unread.size() == 1
                          ? "reading"
                          : fmt::format("reading {} sections of {} tokens",
                                        format_count(unread.size()), format_count(all)));
    for (std::size_t i = 0; i < unread.size(); ++i) {
      read_section(model_, *storage_, library_, unread[i], [&](std::size_t here) {
        if (!o_.quiet) progress.update(static_cast<double>(done + here) / static_cast<double>(all));
        return true;
      });
      done += tokens_of(unread[i]);
      const LibraryDocument& document = *unread[i].document;
      const bool last = i + 1 == unread.size() || unread[i + 1].document != unread[i].document;
      if (!last) continue;
      if (o_.json.text()) {
        print(line_of(library_, document));
        flush_output();
      }
      added_.push_back({{"name", document.name},
                        {"tokens", document.tokens()},
                        {"sections", document.sections.size()},
                        {"bytes", library_.bytes(document)}});
    }
    set_resumable_file("");
  }

  static std::size_t tokens_of(const UnreadSection& one) {
    return one.document->sections[one.section].tokens + 1;
  }

  void finish() {
    o_.json.write({{"folder", library_.folder().string()},
                   {"added", added_},
                   {"changed", changed_},
                   {"removed", removed_}});
  }

  Options& o_;
  Library library_;
  std::shared_ptr<const LibraryContent> before_;
  std::shared_ptr<const TextModel> model_;
  std::optional<SectionStorage> storage_;
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
  for (const auto& document : content_of(library, o)->documents) {
    const std::size_t sections = document->sections.size();
    const auto read = static_cast<std::size_t>(std::ranges::count_if(
        document->sections, [&](const LibrarySection& one) { return library.is_read(one); }));
    const std::size_t bytes = library.bytes(*document);
    table.add(
        {document->name, format_count(document->tokens()),
         read < sections ? fmt::format("{} of {} read", read, sections) : format_count(sections),
         format_bytes(static_cast<double>(bytes))});
    Json files = Json::array();
    for (const LibrarySource& source : document->sources) files.push_back(source.path);
    all.push_back({{"name", document->name},
                   {"tokens", document->tokens()},
                   {"sections", sections},
                   {"sections_read", read},
                   {"bytes", bytes},
                   {"added", document->added},
                   {"files", std::move(files)}});
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
  std::vector<std::string> ids;
  const std::shared_ptr<const LibraryContent> have = content_of(library, o);
  for (const std::string& name : o.files) {
    const auto found =
        std::ranges::find(have->documents, name, [](const auto& one) { return one->name; });
    require(found != have->documents.end(), "{}: no document '{}'; ballast library list names them",
            o.place().string(), name);
    ids.push_back((*found)->id());
  }
  const LibraryLock lock(library.folder(), {});
  library.remove(ids);
  if (o.quiet) return;
  for (const std::string& name : o.files) print(fmt::format("{}: removed\n", name));
}

Json to_json(const AskedSection& asked, const Library& library) {
  const FoundSection& found = asked.found;
  const AnswerEvidence& e = asked.evidence;
  return {{"name", found.document->name},
          {"section", found.section},
          {"title", found.part().title},
          {"cache", library.cache_of(found.part()).string()},
          {"score", e.score},
          {"passage", found.passage},
          {"answer", asked.answer},
          {"certainty", e.certainty},
          {"least", e.least},
          {"question", e.question},
          {"missing", e.missing},
          {"near", e.near},
          {"looked_up", e.looked_up}};
}

Json to_json(const std::string& question, const LibraryAnswer& answer, const Library& library) {
  Json asked = Json::array();
  for (const AskedSection& one : answer.asked) asked.push_back(to_json(one, library));
  return {{"question", question},
          {"answer", answer.text},
          {"supported", answer.supported},
          {"from", answer.sections},
          {"citations", ballast::to_json(answer.citations)},
          {"documents", std::move(asked)}};
}

/// The questions: that of the command line, or the lines of a file.
std::vector<std::string> questions_of(const Options& o) {
  if (o.questions.empty()) return {o.question};
  std::vector<std::string> out;
  const std::string text = read_text(o.questions, o.quiet);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  require(!out.empty(), "{}: no questions", o.questions);
  return out;
}

void show(const LibraryAnswer& answer) {
  if (answer.supported) {
    print(to_text(answer.citations));
    return;
  }
  print("Not in the library.\n");
  if (answer.asked.empty()) return;
  print("The sections that have words of the question:\n");
  for (const AskedSection& one : answer.asked) {
    const std::vector<Citation>& all = one.citations;
    if (!all.empty()) print(to_text({all.front()}));
  }
}

void ask(Options& o) {
  o.json.open();
  require(o.question.empty() != o.questions.empty(), "a QUESTION is needed, or --questions FILE");
  const std::vector<std::string> questions = questions_of(o);
  Library library(o.place());
  const std::shared_ptr<const LibraryContent> have = content_of(library, o);
  require(!have->documents.empty(), "{}: no documents; ballast library add brings some",
          o.place().string());
  const auto model = std::make_shared<const TextModel>(o.model);
  require_model(library, *have, model->model);
  LibraryAsker asker(library, model);
  const AskOptions options{o.generate.parse(0), o.sections};
  const bool text = o.json.text();
  Json all = Json::array();
  for (const std::string& question : questions) {
    if (text && questions.size() > 1) {
      print(fmt::format("{}> {}\n", all.empty() ? "" : "\n", question));
    }
    AnswerOutput output;
    const LibraryAnswer answer = asker.ask(question, options, [&](std::string_view piece) {
      if (text) output.add(piece);
    });
    if (text && answer.supported) output.finish();
    for (const std::string& one : answer.left_out) o.note(one);
    if (text) show(answer);
    flush_output();
    all.push_back(to_json(question, answer, library));
  }
  o.json.write(o.questions.empty() ? all[0] : Json{{"answers", all}});
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
