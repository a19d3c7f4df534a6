// A model with a text that it reads and continues: the door to the engine.
//
//   auto model = std::make_shared<const ballast::TextModel>("model.gguf");
//   ballast::Session document(model, {.policy = model->model.policy_for("1/8")});
//   document.read_context(text);
//   std::cout << document.ask("Who wrote the letter?").text;
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ballast/engine/generate.h"
#include "ballast/engine/model.h"
#include "ballast/engine/question_form.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

struct GaugeReading;  // ballast/engine/gauge.h
class Guard;          // ballast/engine/guard.h
struct Guarded;

/// A model with the tokenizer that its files hold. Never changes.
struct TextModel {
  /// Throws Error if either cannot be read or they do not fit together.
  explicit TextModel(const std::filesystem::path& path);

  Model model;
  Tokenizer tokenizer;
};

/// One text: its sequence, the engine that moves it, the logits of its last token, and how it is
/// asked about. One call at a time; sessions in several threads run in parallel.
class Session {
 public:
  /// An empty text. Throws Error as Sequence does, and with the figures where there is no memory
  /// for the tokens expected.
  Session(std::shared_ptr<const TextModel> model, const CacheOptions& options);
  /// Goes on from a cache whose prompt has ended. `text`: see Sequence.
  Session(std::shared_ptr<const TextModel> model, Cache cache,
          std::shared_ptr<ThreadPool> pool = nullptr, std::vector<Token> text = {});
  /// Goes on from a file that save() wrote. `options`: of the cache, for a file that was packed;
  /// null: those it was saved with.
  static Session load(std::shared_ptr<const TextModel> model, const std::filesystem::path& path,
                      std::shared_ptr<ThreadPool> pool = nullptr,
                      const CacheOptions* options = nullptr);

  /// Goes on behind several documents, each of which a session of the same model has read alone, at
  /// least one: see join_documents(). What the chat template puts before a document is left out of
  /// all but the first; without a template 4 tokens are, on which attention rests where it has
  /// nothing to look at. Throws Error if they differ in model or form. `again`: the share of the
  /// later documents' tokens that are read again, 0 to 1, so that they know the documents before
  /// theirs: those whose values in the second layer change most, as CacheBlend (arXiv 2405.16444)
  /// chooses. With 1 all are read behind the first document, as if together. `progress` is told the
  /// fraction done. Throws Error where the tokens of a document are not known, and below 1 where
  /// entries of its method stand for several tokens.
  static Session join(std::vector<Session> documents, double again = 0,
                      const std::function<void(double done)>& progress = {});

  const TextModel& model() const { return *model_; }
  const Cache& cache() const { return sequence_.cache(); }
  Cache& cache() { return sequence_.cache(); }
  /// Tokens read; those of an answer count once they are read.
  std::size_t tokens() const { return sequence_.tokens(); }
  /// All tokens read; empty where some are not known, of a cache whose text was not given.
  std::span<const Token> text() const {
    return sequence_.text().size() == tokens() ? sequence_.text() : std::span<const Token>();
  }
  /// Tokens given to read() or made by an answer that have not been read.
  std::size_t unread() const { return unread_.size(); }
  /// See Sequence::positions_after; `more` tokens after the unread ones.
  std::size_t positions_after(std::size_t more) const {
    return sequence_.positions_after(unread_.size() + more);
  }
  /// Of the last token read; empty before the first, and after loading.
  std::span<const float> logits() const { return logits_; }
  bool prompt_finished() const { return sequence_.prompt_finished(); }

  /// The texts before and after a question; both empty at first. Set it before the text is read:
  /// it decides the words of replay passes.
  const QuestionForm& form() const { return form_; }
  void set_form(QuestionForm form);

  /// Reads a document, in the model's chat template where it has one, and ends the prompt: ask()
  /// can follow. `system`: what the model is told first; empty: nothing.
  void read_context(std::string_view text, std::string_view system = {});
  /// Answers a question about what was read, on a copy: the session stays as it is. `on_text`
  /// receives each piece of the answer and returns false to end it.
  Generated ask(std::string_view question, GenerateOptions options = {},
                const std::function<bool(std::string_view)>& on_text = {}) const;

  /// Reads what is unread, then these tokens; the prompt goes on. Returns false if
  /// `options.progress` stopped it: the rest stays unread, and the next call goes on with it.
  bool read(std::span<const Token> tokens, PrefillOptions options = {});
  /// Makes `tokens`, at least one, the whole text. What it has in common with the text read stays
  /// in the cache if the cache can go back there (see Cache::truncate); otherwise, and if the text
  /// is not known, all is read anew. Returns as read() does.
  bool sync(std::span<const Token> tokens, PrefillOptions options = {});
  /// As read(), and -ln of the probability that the text before gave to each token, in nats. There
  /// must be text before. One number a token.
  std::vector<float> score(std::span<const Token> tokens, PrefillOptions options = {});
  /// Ends the prompt, once: the method summarises it, after a replay pass where it wants one.
  /// Returns false, with the prompt not ended, if `options.progress` stopped it.
  bool finish_prompt(const ReplayOptions& options = {});
  /// The same, and `gauge`: what the cache costs; none where that cannot be measured.
  bool finish_prompt(const ReplayOptions& options, std::optional<GaugeReading>& gauge);
  /// The same for a text that was read with Guard::reading(): its cache becomes the smallest that
  /// the guard lets pass.
  bool finish_prompt(const ReplayOptions& options, const Guard& guard, Guarded& out);
  /// Makes the cache of a conversation small where it is, without reading its text again: `bytes`
  /// are divided by score among all that it holds; the method's first (sink=) and last tokens
  /// (window=) are never dropped. The text goes on at its positions. Wants protocol stream and a
  /// method with one budget, which holds for what follows: calibrated; replay reads the tokens
  /// since the last division again. Nothing changes where the exact cache takes no more than
  /// `bytes`. Returns false, with nothing changed, if `options.progress` stopped the reading.
  /// Throws Error for other caches that take more, and if `bytes` do not hold the tokens that are
  /// never dropped.
  bool compact(std::size_t bytes, const ReplayOptions& options = {});
  /// A copy that goes on by itself, on the same pool. It shares what was read as Cache::clone()
  /// says.
  Session clone() const;
  /// Throws Error unless the prompt has ended or the cache is a stream's. `pack`: "1/16" or another
  /// preset of the model's basis packs the cache (see ballast/pack.h), which must have every token;
  /// "off": the file goes on to the bit.
  void save(const std::filesystem::path& path, std::string_view pack = "off") const;

  /// Begins an answer; ends the prompt first if that has not been done. Nothing else may be done
  /// with the session until take_in().
  Generation generate(const GenerateOptions& options);
  /// The session goes on after the answer, which ends here if it has not ended.
  void take_in(Generation& generation);

 private:
  Session(std::shared_ptr<const TextModel> model, Sequence sequence,
          std::shared_ptr<ThreadPool> pool);
  void require_prompt() const;
  /// After the prompt.
  void give_back_scratch();

  std::shared_ptr<const TextModel> model_;
  std::shared_ptr<ThreadPool> pool_;
  Engine engine_;
  Sequence sequence_;
  QuestionForm form_;
  std::vector<float> logits_;
  std::vector<Token> unread_;
};

}  // namespace ballast
