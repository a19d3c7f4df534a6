// The library of a server: sections that become contexts when they are asked.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/question_form.h"
#include "library/evidence.h"
#include "library/library.h"
#include "library/reading.h"
#include "report/json.h"
#include "serve/scheduling/job.h"
#include "serve/texts/contexts.h"

namespace ballast::serve {

/// A section that a question may be about.
struct Candidate {
  FoundSection found;
  std::shared_ptr<const Context> context;
};

/// What a section answered.
struct Tried {
  std::string text;
  AnswerEvidence evidence;

  /// The same as an answer from these sections.
  AnswerEvidence of(const std::vector<FoundSection>& sections, std::string_view question) const;
};

/// The documents of a folder, as they are when a question comes. Any thread may call.
class ServedLibrary {
 public:
  /// Contexts of its sections are lent to `contexts` when they are asked for by id, "lib_KEY".
  ServedLibrary(std::filesystem::path folder, const Model& model, const Tokenizer& tokenizer,
                Contexts& contexts);

  Library& library() { return library_; }
  /// What cannot be used: a line each.
  std::vector<std::string> refused();
  /// The sections to ask, at most `most`, the best found first; damaged ones are left out. Throws
  /// ApiError where there is no memory for the first.
  std::vector<Candidate> find(std::string_view question, std::size_t most);
  Json about(const LibraryDocument& document) const;
  /// What each document is: id, name, tokens, sections, those read, bytes, when it was added.
  Json list();
  /// The same of one, with its text; null: there is none of this id.
  Json document(const std::string& id);
  /// A page of a document whose file is a PDF and as it was, as PNG; empty where it is not.
  std::string page(const std::string& id, std::size_t page);
  /// Takes in a text. Its sections are read by the jobs of reading(), whose caches keep() saves.
  /// Throws Error if it cannot be written.
  std::shared_ptr<const LibraryDocument> add(std::string name, std::string text);
  /// What reads a section.
  Job reading(const LibraryDocument& document, const LibrarySection& section) const;
  void keep(const LibrarySection& section, const Job& job, const Cache& cache) const;
  /// Whether there was one of this id. Throws Error if its files stay.
  bool remove(const std::string& id);
  static std::string id_of(const LibrarySection& section) { return "lib_" + section.key; }

 private:
  /// Lends the context of this id, if it is that of a section. Throws Error if its file is damaged
  /// or of another model.
  void lend(const std::string& id);

  Library library_;
  const Tokenizer& tokenizer_;
  const Model& model_;
  Contexts& contexts_;
  SectionStorage storage_;
};

/// The job with which a section is tried: a short answer, without chance, that says what it looks
/// up.
Job trial_of(const Job& job, std::shared_ptr<const Context> context);
/// Adds what a trial says. Returns whether it is over.
bool add_to(Tried& tried, const Event& event);

}  // namespace ballast::serve
