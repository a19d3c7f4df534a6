// ballast library: documents that are read once, each alone, and asked together.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "ballast/engine/context_file.h"
#include "ballast/engine/packing.h"
#include "base/fail.h"
#include "base/fnv.h"
#include "cli/answering.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/help.h"
#include "cli/model_options.h"
#include "documents/passages.h"
#include "hub/local.h"
#include "report/table.h"
#include "report/units.h"
#include "serve/library.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;
using Entry = serve::LibraryDocument;

struct Options {
  std::string folder;
  std::string model;
  std::string cache;
  std::string pack;
  std::vector<std::string> files;
  std::string question;
  std::size_t documents = 3;
  GenerateFlags generate;
  bool quiet = false;
  JsonOption json;

  fs::path place() const {
    return folder.empty() ? hub::store().parent_path() / "library" : fs::path(folder);
  }
};

/// The documents that are there, with a note for each damaged one.
std::vector<Entry> documents_of(const Options& o) {
  serve::Library all = serve::read_library(o.place());
  if (!o.quiet) {
    for (const std::string& one : all.damaged) {
      tell(fmt::format("note: {}; it is left out: remove the file, and add the document again",
                       one));
    }
  }
  return std::move(all.documents);
}

/// Caches are of one model, so a library is.
void require_model(const Options& o, const std::vector<Entry>& have, const Model& model) {
  const std::string ours = fmt::format("{:016x}", fingerprint(model));
  for (const Entry& entry : have) {
    require(entry.fingerprint.empty() || entry.fingerprint == ours,
            "{}: the library's documents were read with the model '{}', and this one is '{}'; take "
            "that model, or another folder: --library",
            o.place().string(), entry.model, model_name(model));
  }
}

/// Makes the folder. Throws Error where nothing can be written there, before anything is read.
void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  require(!error, ErrorCode::io, "{}: cannot write into the folder: {}; name another: --library",
          folder.string(), error.message());
}

/// Reads a document and keeps it.
Entry add_one(const Options& o, const std::shared_ptr<const TextModel>& model,
              const PackPreset& pack, const Documents& document) {
  CacheOptions options;
  if (pack.step == 0) options.policy = model->model.policy_for(o.cache.empty() ? "1/8" : o.cache);
  options.key_type = options.value_type = StorageType::bf16;
  const QuestionForm form = model->tokenizer.vocabulary().chat_template.empty()
                                ? QuestionForm::raw(document.text)
                                : QuestionForm::from_template(model->tokenizer, "", document.text);
  const std::vector<Token> tokens = form.begin(model->tokenizer);
  options.expected_tokens = tokens.size();
  Session session(model, options);
  session.set_form(form);
  double seconds = 0;
  read_tokens(session, tokens, o.quiet, seconds);
  finish_prompt(session, o.quiet);
  Fnv hash;
  hash.add(std::as_bytes(std::span(document.text)));
  Entry entry{.file = o.place() / fmt::format("{:016x}.json", hash.value()),
              .name = document.what,
              .text = document.text,
              .model = model_name(model->model),
              .fingerprint = fmt::format("{:016x}", fingerprint(model->model)),
              .tokens = tokens.size(),
              .bytes = session.cache().bytes().used()};
  session.save(entry.cache(), pack.step == 0 ? "off" : fmt::format("1/{}", pack.divisor));
  if (pack.step > 0) entry.bytes = fs::file_size(entry.cache());
  // Last, so that a document that is listed has its cache.
  write_file(entry.file, to_text(Json{{"name", entry.name},
                                      {"text", entry.text},
                                      {"model", entry.model},
                                      {"fingerprint", entry.fingerprint},
                                      {"tokens", entry.tokens},
                                      {"bytes", entry.bytes}}));
  return entry;
}

void add(Options& o) {
  o.json.open();
  make_folder(o.place());
  std::vector<Entry> have = documents_of(o);
  const auto model = std::make_shared<const TextModel>(o.model);
  require_model(o, have, model->model);
  // Without --cache every token is kept, where the model has a basis to pack with.
  PackPreset pack;
  if (o.pack.empty() && o.cache.empty()) pack = default_pack_preset(model->model);
  if (!o.pack.empty() && o.pack != "off") {
    require(o.cache.empty(), "--pack {} keeps every token: leave out --cache", o.pack);
    pack = pack_preset(model->model, o.pack);
  }
  Json added = Json::array();
  for (const std::string& path : o.files) {
    for (const Documents& document : read_each(path, o.quiet)) {
      const auto same = std::ranges::find(have, document.text, &Entry::text);
      if (same != have.end()) {
        if (!o.quiet) tell(fmt::format("note: {} is there already", same->name));
        continue;
      }
      const Entry entry = add_one(o, model, pack, document);
      have.push_back(entry);
      if (o.json.text()) {
        print(fmt::format("{}: {} tokens in {}\n", entry.name, format_count(entry.tokens),
                          format_bytes(static_cast<double>(entry.bytes))));
        flush_output();
      }
      added.push_back({{"name", entry.name}, {"tokens", entry.tokens}, {"bytes", entry.bytes}});
    }
  }
  o.json.write({{"folder", o.place().string()}, {"added", added}});
}

void list(Options& o) {
  o.json.open();
  Table table({{"document"}, {"tokens", Align::right}, {"cache", Align::right}});
  Json all = Json::array();
  for (const Entry& entry : documents_of(o)) {
    table.add(
        {entry.name, format_count(entry.tokens), format_bytes(static_cast<double>(entry.bytes))});
    all.push_back({{"name", entry.name}, {"tokens", entry.tokens}, {"bytes", entry.bytes}});
  }
  if (o.json.text()) {
    print(table.rows() == 0 ? fmt::format("{}: no documents; ballast library add brings some\n",
                                          o.place().string())
                            : table.to_string());
  }
  o.json.write({{"folder", o.place().string()}, {"documents", all}});
}

void remove(Options& o) {
  const std::vector<Entry> have = documents_of(o);
  for (const std::string& name : o.files) {
    const auto entry = std::ranges::find(have, name, &Entry::name);
    require(entry != have.end(), "{}: no document '{}'; ballast library list names them",
            o.place().string(), name);
    for (const fs::path& file : {entry->file, entry->cache()}) {
      std::error_code error;
      fs::remove(file, error);
      require(!error, ErrorCode::io, "{}: cannot be removed: {}", file.string(), error.message());
    }
    if (!o.quiet) print(fmt::format("{}: removed\n", name));
  }
}

void ask(Options& o) {
  o.json.open();
  const std::vector<Entry> have = documents_of(o);
  require(!have.empty(), "{}: no documents; ballast library add brings some", o.place().string());
  const auto model = std::make_shared<const TextModel>(o.model);
  require_model(o, have, model->model);
  std::vector<Found> found;
  std::vector<Session> sessions;
  std::string damaged;
  for (Found& one : serve::find_documents(have, o.question, have.size())) {
    if (found.size() == o.documents) break;
    try {
      sessions.push_back(Session::load(model, have[one.text].cache()));
      found.push_back(std::move(one));
    } catch (const Error& error) {
      if (damaged.empty()) damaged = error.what();
      if (!o.quiet)
        tell(fmt::format("note: {} is left out: {}", have[one.text].name, error.what()));
    }
  }
  require(!found.empty(), ErrorCode::bad_file, "{}", damaged);
  std::ranges::reverse(sessions);  // the best one last: next to the question
  Session session =
      sessions.size() == 1 ? std::move(sessions[0]) : Session::join(std::move(sessions));
  session.read(session.form().question(model->tokenizer, o.question));
  GenerateOptions options = o.generate.parse(0);
  options.text_start = session.form().chat;
  const bool show = o.json.text();
  AnswerOutput output;
  const Answered answer = generate_answer(session, options, true, [&](std::string_view text) {
    if (show) output.add(text);
    return true;
  });
  if (show) output.finish();
  tell_if_repeats(answer);
  Json documents = Json::array();
  for (const Found& one : found) {
    documents.push_back(
        {{"name", have[one.text].name}, {"score", one.score}, {"passage", one.passage}});
  }
  if (show) {
    print("\n");
    for (const Found& one : found) {
      const std::string passage = one.passage.substr(0, one.passage.find('\n', 60));
      Place place = place_of(have[one.text].text, one.begin);
      place.document = have[one.text].name;
      print(fmt::format("{}: {}\n", to_string(place), passage));
    }
  }
  o.json.write({{"question", o.question}, {"answer", answer.made.text}, {"documents", documents}});
}

}  // namespace

void add_library(CLI::App& parent, std::function<void()>& task) {
  CLI::App* library = parent.add_subcommand(
      "library", "Documents that are read once, each alone, and asked together");
  library->require_subcommand(1);
  const auto command = [&](const char* name, const char* help, void (*work)(Options&)) {
    auto options = std::make_shared<Options>();
    CLI::App* app = library->add_subcommand(name, help);
    app->add_option("--library", options->folder, "The library's folder  [default: the user's]")
        ->type_name("DIR");
    app->add_flag("-q,--quiet", options->quiet, "Show no progress and no notes");
    options->json.add_to(*app);
    app->callback([options, work, &task] { task = [options, work] { work(*options); }; });
    return std::pair(app, options.get());
  };
  {
    const auto [app, o] = command("add", "Read documents and keep their compressed caches", &add);
    add_model_option(*app, o->model);
    app->add_option(
           "FILE", o->files,
           "Texts, PDF, web pages, Word files and folders of them; each file is a document")
        ->required();
    app->add_option("--cache", o->cache,
                    "How much of each cache is kept: see run --cache  [default: all of it, packed; "
                    "1/8 where the model has no basis]")
        ->type_name("SIZE");
    app->add_option(
           "--pack", o->pack,
           "Packs whole caches to 1/16, 1/32, 1/64 of their bytes; off: none  [default: 1/16 "
           "where the model has a basis, see ballast calibrate]")
        ->type_name("SIZE");
    app->footer("Example:\n  ballast library add -m model.gguf *.pdf");
  }
  {
    const auto [app, o] =
        command("ask", "Answer from the documents that have the question's words", &ask);
    add_model_option(*app, o->model);
    app->add_option("QUESTION", o->question, "What is asked")->required()->type_name("");
    app->add_option("--documents", o->documents, "Documents at most that the model looks at")
        ->type_name("N")
        ->capture_default_str()
        ->transform(whole_number(1, 64));
    o->generate.add_to(*app);
    app->footer(
        "Below the answer stand the documents and the passage of each that has the rarest words of "
        "the question.\n\nExample:\n  ballast library ask -m model.gguf \"When does the lease "
        "end?\"");
  }
  command("list", "The documents of a library", &list)
      .first->footer("Example:\n  ballast library list");
  const auto [app, o] = command("remove", "Take documents out of a library", &remove);
  app->add_option("NAME", o->files, "As list names them")->required();
  app->footer("Example:\n  ballast library remove lease.pdf");
  library->footer(
      "Example:\n  ballast library add lease.pdf\n  ballast library ask \"When does the lease "
      "end?\"");
}

}  // namespace ballast::cli
