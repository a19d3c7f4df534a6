// The benchmarks' scores, by their official definitions. Scores are fractions, 0 to 1.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// ---- LongBench (Bai et al. 2023) ----------------------------------------------------------------

/// An answer as question answering compares it: lower case, without ASCII punctuation and the
/// articles a, an, the, one space between words.
std::string normalize_answer(std::string_view text);

/// F1 of the words that two normalised answers have in common, each word as often as it occurs in
/// both.
double qa_f1(std::string_view prediction, std::string_view truth);

/// 1 over the number of classes named in the prediction, if `truth` is one of them. A class that is
/// part of the name of the true one is not counted, except (a quirk of the official loop, kept)
/// when it follows another such class.
double classification_score(std::string_view prediction, std::string_view truth,
                            std::span<const std::string> classes);

/// Fraction of the numbers in the prediction that are the one in "Paragraph 12". Throws Error if
/// `truth` has no such number.
double retrieval_score(std::string_view prediction, std::string_view truth);

/// Fraction of the numbers in the prediction that are `truth`, digit by digit.
double count_score(std::string_view prediction, std::string_view truth);

/// Similarity (see text_ratio) of the truth and the first line of the prediction that looks like
/// code: no backtick, no '#', no "//".
double code_similarity(std::string_view prediction, std::string_view truth);

/// fuzzywuzzy's ratio on Python's difflib: 2·matching / total characters, matching blocks found by
/// Ratcliff and Obershelp's method, with difflib's neglect of frequent characters in texts of 200
/// and more; rounded to hundredths. 0 if one text is empty, 1 if both are.
double text_ratio(std::string_view a, std::string_view b);

// ---- LongEval (Li et al. 2023), RULER (Hsieh et al. 2024)
// ------------------------------------------

/// The last number in an answer, which is the one that LongEval's script takes; without leading
/// zeros.
std::optional<std::string> last_number(std::string_view answer);

/// Whether the last number is the expected one.
bool line_is_right(std::string_view answer, std::string_view expected);

/// Fraction of the references that appear in the prediction, upper and lower case alike.
double string_match_all(std::string_view prediction, std::span<const std::string> references);
/// 1 if any of them does.
double string_match_part(std::string_view prediction, std::span<const std::string> references);

/// Whether the first JSON object in the answer has the name and the arguments of `expected`,
/// {"name": …, "arguments": …}.
bool call_is_right(std::string_view answer, std::string_view expected);

// ---- multiple choice as in lm-evaluation-harness ------------------------------------------------

/// The likeliest continuation: the first of the largest numbers.
std::size_t best_choice(std::span<const double> log_likelihoods);
/// The same with each log-likelihood divided by the characters of its choice (acc_norm).
std::size_t best_choice_by_length(std::span<const double> log_likelihoods,
                                  std::span<const std::string> choices);

// ---- diversity ---------------------------------------------------------------------------------

/// Mean BLEU-4 of each text against all others (Zhu et al. 2018, Texygen): clipped precisions of 1
/// to 4 words, a zero count replaced by 0.1 (method 1 of Chen and Cherry 2014), brevity penalty
/// against the closest length. Words are runs of letters and digits; other characters stand alone.
/// Needs two texts or more (Error).
double self_bleu(std::span<const std::string> texts);

}  // namespace ballast
