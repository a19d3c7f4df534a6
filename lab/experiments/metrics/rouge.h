// ROUGE, in the two forms that the benchmarks use.
#pragma once

#include <string>
#include <string_view>

namespace ballast {

/// F of ROUGE-1, ROUGE-2 and ROUGE-L.
struct RougeScores {
  double rouge_1 = 0;
  double rouge_2 = 0;
  double rouge_l = 0;
};

/// As the Python package `rouge` computes it (LongBench, H2O's summarisation script): words are cut
/// at blanks, case and punctuation count, sentences end at full stops, each n-gram counts once
/// however often it occurs, and ROUGE-L counts the different words of the union of the longest
/// common subsequences of all pairs of sentences. All 0 where the package refuses: a text of
/// nothing but full stops. Throws Error on sentences of more than some 16,000 words.
RougeScores rouge_of_sets(std::string_view prediction, std::string_view truth);

/// As Google's `rouge_score` computes it (HELM): words are runs of ASCII letters and digits in
/// lower case, n-grams count as often as they occur in both, ROUGE-L is the longest common
/// subsequence of the whole texts. `stem`: words of more than three letters are stemmed, as HELM
/// does. Throws Error on texts of more than some 16,000 words.
RougeScores rouge_of_counts(std::string_view prediction, std::string_view truth, bool stem);

/// Porter's stem of a word in lower-case ASCII, with the changes that NLTK makes by default.
std::string porter_stem(std::string_view word);

}  // namespace ballast
