// Questions on texts, asked of a model with many methods at equal memory: what most of the papers'
// experiments are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/generate.h"
#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"
#include "eval/data/kv_source.h"
#include "eval/results/result_log.h"
#include "report/json.h"
#include "report/result.h"

namespace ballast {

/// One question, with what is needed to score the answer.
struct Sample {
  std::string id;                    ///< unique in the experiment
  Json group = Json::object();       ///< what results are grouped by: {"task": "qasper"}
  std::string context;               ///< may be empty
  std::string question;              ///< follows the context; the answer follows it
  std::vector<std::string> choices;  ///< continuations to be compared; empty: text is generated
  Json expected;                     ///< for the scorer
  std::size_t max_tokens = 32;       ///< of the answer
  std::vector<std::string> stop;
  bool raw = false;           ///< no chat template around it, whatever the model
  bool whole_length = false;  ///< the answer goes on after the model's end, to max_tokens
};

/// A method as it is compared with others: in one memory, with one seed.
struct Variant {
  std::string method;      ///< as given, without memory
  double rate = 0;         ///< entries kept, of those read; 0: not given so
  std::size_t budget = 0;  ///< entries kept; 0: not given so
  double share = 0;        ///< bytes kept, of an exact cache's; 0: not given so
  std::uint64_t seed = 0;
  Policy policy;  ///< with rate or budget set; by share: set for each length
  StorageType key_type = StorageType::bf16;
  StorageType value_type = StorageType::bf16;

  /// Where it keeps everything, memory is not its own.
  bool exact() const { return policy.info().window_policy == WindowPolicy::all; }
  std::string name() const;  ///< "balancekv 0.25"
};

/// How much each method may keep: at most one of the lists.
struct Memory {
  std::vector<double> rates = {};
  std::vector<std::size_t> budgets = {};
  std::vector<double> shares = {};
};

/// Every method at every memory and seed; exact once. Throws Error on method strings that set their
/// memory themselves where `memory` does too, and on those that do not where it is empty.
std::vector<Variant> make_variants(const std::vector<std::string>& methods, const Memory& memory,
                                   std::size_t seeds, std::uint64_t first_seed,
                                   StorageType key_type, StorageType value_type);

struct AskOptions {
  Protocol protocol = Protocol::prefill;
  Positions positions = Positions::absolute;
  /// The context is summarised before the question is read; otherwise question and context are
  /// one prompt, summarised at its end.
  bool question_later = false;
  bool raw = false;  ///< no chat template around any
  /// Where a prompt and its answer exceed this: its middle is left out (as LongBench does) or, with
  /// `refuse_long`, an Error names the sample. 0: the model's positions.
  std::size_t longest = 0;
  bool refuse_long = false;
};

/// What became of one sample with one variant.
struct Answered {
  std::string text;
  std::vector<double> choices;  ///< log-probability of each, summed over its tokens
  std::size_t tokens = 0;       ///< read before the answer
  bool cut = false;             ///< whether its middle was left out
  std::size_t entries = 0;      ///< kept when the text has been summarised, per KV head
  std::size_t bytes = 0;        ///< of the cache then, without the room for what follows
  std::size_t exact_bytes = 0;  ///< of an exact bf16 cache then
  /// Of attention, to the queries of the prompt's last 32 tokens, from what is kept once the text
  /// is summarised: ‖Z − Z_exact‖_F / ‖Z_exact‖_F, mean over KV heads and layers. NaN: it has no
  /// value, or was not measured (in stream).
  double attention_error = std::numeric_limits<double>::quiet_NaN();
  std::size_t made = 0;         ///< tokens of the answer
  double read_seconds = 0;      ///< to read the prompt; shared by all methods in prefill
  double compress_seconds = 0;  ///< to summarise it
  double answer_seconds = 0;    ///< to make the answer
  std::string failure;          ///< why there is no answer (it counts as wrong); empty: there is

  Json to_json() const;
  static Answered from_json(const Json& json);
};

/// Asks a model. In prefill the text is read once for all variants of the same storage.
class PromptRunner {
 public:
  /// All must outlive it.
  PromptRunner(Engine& engine, const Tokenizer& tokenizer, const AskOptions& options);
  ~PromptRunner();

  /// An answer a variant. Throws Error naming the sample.
  std::vector<Answered> ask(const Sample& sample, const std::vector<Variant>& variants,
                            const Advance& advance = {});

 private:
  struct Work;
  Policy fit_share(const Variant& variant);
  Engine& engine_;
  const Tokenizer& tokenizer_;
  AskOptions options_;
  std::unique_ptr<Work> work_;
};

/// 0 to 1, or whatever the metric says.
using Scorer = std::function<double(const Sample&, const Answered&)>;

/// All samples with all variants, [sample][variant]; those in the log are taken from it.
std::vector<std::vector<Answered>> ask_all(PromptRunner& asker, const std::vector<Sample>& samples,
                                           const std::vector<Variant>& variants, ResultLog& log,
                                           const Advance& advance = {});

/// Rows of a result: a group and a method in one memory each, in the order of the samples, then of
/// the variants: the group's columns, method, rate or budget or share, samples, score and its
/// standard error over samples (seeds averaged first; what has no answer counts 0), failures (of
/// these, where there are any), entries, cache_bytes, exact_bytes, ratio,
/// attention_error, read_seconds, compress_seconds, seconds_per_token. `overall`: another group of
/// all, its columns saying "all"; scores are then the mean of the groups' means, as benchmarks
/// average tasks.
std::vector<Json> score_rows(const std::vector<Sample>& samples,
                             const std::vector<Variant>& variants,
                             const std::vector<std::vector<Answered>>& answers,
                             const Scorer& scorer, bool overall = false);

/// The columns of these rows; those of the group come first.
std::vector<ResultColumn> score_columns(const std::vector<ResultColumn>& group,
                                        const Memory& memory, std::string_view score_title,
                                        Unit score_unit);

/// A fingerprint of the samples, for ResultLog's identity.
std::string fingerprint(const std::vector<Sample>& samples);

}  // namespace ballast
