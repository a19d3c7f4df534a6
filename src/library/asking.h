// Asking a library: each section that may answer is asked alone, the best supported answer is
// taken.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/lookup.h"
#include "ballast/engine/session.h"
#include "library/evidence.h"
#include "library/library.h"

namespace ballast {

/// A section that was asked alone.
struct AskedSection {
  FoundSection found;
  AnswerEvidence evidence;
  std::string answer;               ///< its beginning
  std::vector<Citation> citations;  ///< their places are in the document
};

struct LibraryAnswer {
  bool supported = false;  ///< false: it is not in the library
  std::string text;
  std::vector<AskedSection> asked;    ///< the best found first
  std::vector<std::size_t> sections;  ///< of `asked`, that the answer is from: one, or two joined
  std::vector<Citation> citations;    ///< what it rests on
  std::vector<std::string> left_out;  ///< a message for each damaged cache
};

struct AskOptions {
  GenerateOptions generate;
  std::size_t sections = 3;  ///< asked at most
};

/// Asks one library; keeps the sections last asked loaded. One call at a time.
class LibraryAsker {
 public:
  LibraryAsker(Library& library, std::shared_ptr<const TextModel> model);

  /// The sections with the question's words, and the one that answered last, are asked alone, in
  /// few tokens and without chance, as long as another may have the best supported answer, which is
  /// taken; two are joined where none is supported. `on_text` receives the answer in pieces, once
  /// it is chosen; false ends it. Throws Error if no section can be loaded.
  LibraryAnswer ask(std::string_view question, const AskOptions& options,
                    const std::function<bool(std::string_view)>& on_text = {});

 private:
  struct Loaded {
    std::string key;
    Session session;
  };
  /// A session of a section, which stays as it is.
  const Session& load(const LibrarySection& section);
  std::vector<FoundSection> candidates(std::string_view question, std::size_t most);
  /// What a session answered.
  struct Attempt {
    Session session;  ///< behind the answer
    Generated answer;
    AnswerEvidence evidence;
    std::vector<float> attention;  ///< see Lookup
  };
  /// `watched`: what the answer looks up is noted, which a joined cache does not tell.
  Attempt attempt(Session session, std::string_view question, const GenerateOptions& options,
                  bool watched) const;
  /// The two best joined; nothing where that is not supported either.
  std::optional<Attempt> attempt_joined(std::string_view question, const GenerateOptions& options,
                                        LibraryAnswer& out);
  /// Goes on with the answer that was chosen, or draws it.
  void finish(Attempt& chosen, std::string_view question, const AskOptions& options,
              LibraryAnswer& out, const std::function<bool(std::string_view)>& on_text);

  Library& library_;
  std::shared_ptr<const TextModel> model_;
  std::vector<LookupHead> heads_;
  std::list<Loaded> loaded_;  ///< the one used last first
  std::optional<FoundSection> last_;
};

}  // namespace ballast
