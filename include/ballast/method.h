// Cache methods by name: what they are, what they can be told, and how they are written.
//
//   method string:  name  |  name:key=value,key=value…      balancekv:rate=0.25,block=256
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/matrix.h"
#include "ballast/memory_size.h"

namespace ballast {

class SharedState;
class Summary;
struct SummarySetup;
class Policy;

/// When tokens leave the exact part of the cache.
/// prefill: the prompt is read with exact attention and its middle summarised once, at its end.
/// stream: whenever the window overflows, so that memory is bounded during the prompt too.
enum class Protocol : std::uint8_t { prefill, stream };

std::string_view to_string(Protocol protocol);
/// Throws Error that lists the known names.
Protocol parse_protocol(std::string_view name);

/// One key that a method string may set.
struct Parameter {
  enum class Kind : std::uint8_t {
    integer,
    real,
    choice,
    memory,  ///< see MemorySize
    text,    ///< checked by the method
  };
  std::string_view name;
  Kind kind = Kind::integer;
  std::string_view standard;      ///< the default as text; empty: not set
  double low = 0;                 ///< smallest value allowed (numbers)
  double high = 0;                ///< largest value allowed (numbers)
  std::string_view choices = {};  ///< "a|b|c" (choices)
  std::string_view help;
};

/// How a method divides its budget between window and summary when `window` is not given.
enum class WindowPolicy : std::uint8_t {
  fixed,  ///< the window's default length
  half,   ///< half of what the sink leaves (H2O)
  rest,   ///< all that the sink leaves: nothing is summarised (StreamingLLM, local)
  all,    ///< everything: exact
};

/// What a replay pass of the text (Scoring::replay) makes of the attention p that an entry gets
/// from a query; the largest or the sum over the queries of all query heads that share the entry.
enum class ReplayScore : std::uint8_t {
  none,   ///< no replay pass
  max,    ///< max p · |W_O^T v| / |x|: the most that it writes into the residual stream x
  plain,  ///< max p (KVzip)
  rms,    ///< root of the mean of p² (Attention Matching)
  mean,   ///< mean of p
  given,  ///< no replay pass: scores come with the tokens (Scoring::note_scores)
};

/// none, max, plain, rms, mean, given.
std::string_view to_string(ReplayScore score);

/// What a cache shows of one query: see Needs::recent_score.
struct QueryView {
  std::span<const float> attention;  ///< to every entry of the head, in the order of its segments
  std::span<const float> answer;     ///< value_dim elements
  ConstMatrix values;                ///< entries × value_dim
};

/// What a method needs to know of queries and scores. The cache remembers nothing else.
struct Needs {
  /// What each entry received from every query that could see it, summed: Block::attention_sum and
  /// Summary::observe().
  bool attention_sums = false;
  /// The queries of the last `observe` tokens, and what they look at: Observed.
  bool recent_queries = false;
  /// The method's own score of the entries from one of these queries, added to `sums`, an element
  /// an entry: it takes the place of their attention. Null: the attention itself.
  void (*recent_score)(const QueryView& seen, std::span<double> sums) = nullptr;
  /// Values are fitted to these queries, which takes long.
  bool fits_values = false;
  /// Mean and covariance of all queries before rotation: Observed::query_moments().
  bool query_moments = false;
  /// What the model's output projection makes of values: Observed::value_norms().
  bool value_norms = false;
  /// One decision for all heads of a layer: attention is summed over the heads too (SpAtten).
  bool whole_layer = false;
  /// Scores of a replay pass, before the prompt ends.
  ReplayScore replay = ReplayScore::none;
  /// Whether that takes a replay pass.
  bool reads_again() const { return replay != ReplayScore::none && replay != ReplayScore::given; }
  /// A chunk that is read again scores its own entries alone, from a softmax over the first tokens,
  /// them and itself (KVzip's code). Else every chunk scores all entries.
  bool replay_own = false;
  /// Questions that are known before the prompt ends score entries, too: Scoring::replay_question.
  bool question = false;
  /// Whether the queries of all tokens are wanted as they are read.
  bool all_queries() const { return attention_sums || recent_queries || query_moments; }
};

/// A method: its name, its keys, its defaults, and what makes its summaries. Adding one:
/// docs/extending.md.
struct MethodInfo {
  std::string_view name;              ///< lower-case letters, digits and '-', a letter first
  std::string_view title;             ///< one line
  std::string_view paper;             ///< where it is described
  std::vector<Parameter> parameters;  ///< beside those that every method has
  std::size_t sink = 0;               ///< default number of first tokens kept exactly
  WindowPolicy window_policy = WindowPolicy::fixed;
  std::size_t window = 32;      ///< default number of last tokens kept exactly
  std::size_t step = 1;         ///< default tokens that leave the window at a time (stream)
  bool keeps_generated = true;  ///< prefill: generated tokens stay exact by default
  bool pyramid = false;         ///< layers share a pyramid of budgets by default
  bool merges = false;          ///< two summaries unite
  /// One budget, bytes=, for the entries of all layers and heads (see Block::tiers).
  bool global_budget = false;
  /// With recent_queries the method has an integer parameter `observe` with a default.
  Needs needs;
  /// Where that depends on the parameters; null: `needs`.
  Needs (*needs_of)(const Policy& policy) = nullptr;
  /// Makes the summary of one head; null when nothing is summarised.
  std::unique_ptr<Summary> (*make)(const SummarySetup& setup) = nullptr;
  /// Makes what the heads and layers of one sequence share; null: nothing.
  std::unique_ptr<SharedState> (*make_shared)(const Policy& policy) = nullptr;
};

/// All methods: the library's own in the order in which tables show them, then the registered
/// ones in the order in which they came. The span stays valid; it has no methods registered later.
std::span<const MethodInfo* const> methods();
/// Adds a method, which Policy::parse then knows. Register it before a cache of it is loaded. The
/// description is copied, but its texts are views: they must live as long as the process, as
/// literals do. May be called from any thread. Throws Error when the name is taken or not a name,
/// when `make` is null, or when a parameter has a bad name, range or default.
void register_method(const MethodInfo& info);
/// Keys that every method has.
std::span<const Parameter> common_parameters();
/// Throws Error that lists the known names.
const MethodInfo& find_method(std::string_view name);

/// How many entries each part of one head's cache may hold.
struct Budget {
  std::size_t sink = 0;
  std::size_t summary = 0;
  std::size_t window = 0;
  /// While the window slides it holds up to this many tokens more: those that leave it at a time.
  /// 0 when it does not slide.
  std::size_t step = 0;
  std::size_t total() const { return sink + summary + window + step; }
};

/// A method with its parameters: what a method string means. Immutable; cheap to copy. Values are
/// parsed once, by parse() and with(); the other calls look them up and allocate nothing, except
/// to_string().
class Policy {
 public:
  /// exact.
  Policy();
  /// Throws Error on an unknown method or key (listing the known ones), a value that is not a
  /// number, out of range or given twice, rate with budget, and a text of over 1,000 bytes.
  static Policy parse(std::string_view text);

  const MethodInfo& info() const { return *info_; }
  /// The method string with only what was set, keys in the order of the tables.
  std::string to_string() const;

  // Each of these throws Error when the method has no such key; the others also when it has no
  // value or one of another kind.
  bool has(std::string_view key) const;     ///< set in the string or by default
  double real(std::string_view key) const;  ///< of an integer key too
  std::int64_t integer(std::string_view key) const;
  std::string_view choice(std::string_view key) const;
  std::string_view text(std::string_view key) const;  ///< valid as long as this policy
  MemorySize memory(std::string_view key) const;
  /// A copy with one key set; the same errors as parse.
  Policy with(std::string_view key, std::string_view value) const;

  /// The budget of a head of `layer` (of `layers`) when `tokens` tokens are to be covered: the
  /// prompt in prefill, all that will be read in stream. exact: everything in the window.
  /// Throws Error when the budget is smaller than sink + window (+ step), when stream is given a
  /// rate without a length (tokens = 0), and when neither rate nor budget is set.
  Budget budget(std::size_t tokens, Protocol protocol, int layer = 0, int layers = 1) const;

  /// Whether the string says how much to keep: rate, budget or bytes.
  bool has_memory() const;
  bool keeps_generated() const;
  /// What the method needs, with these parameters.
  Needs needs() const;
  /// Last tokens whose queries count (Needs::recent_queries), else 0.
  std::size_t observed() const;

 private:
  struct Option;

  explicit Policy(const MethodInfo& info);
  const Option& option(std::string_view key) const;
  template <typename T>
  const T& value(std::string_view key, const char* kind) const;

  const MethodInfo* info_ = nullptr;
  /// Every key with its value, in the order of to_string(); copies share it.
  std::shared_ptr<const std::vector<Option>> options_;
};

}  // namespace ballast
