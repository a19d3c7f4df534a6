// Records of keys and values, with several questions on each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "experiments/data/samples.h"
#include "experiments/tasks/too_short.h"

namespace ballast {

/// A JSON object of fields in the wording of lab/training/finding.py (`records`), of at most
/// `tokens` tokens with the question and a value, and `questions` questions, each on another field.
/// Keys are of one kind and values of one kind, as `seed` selects: numbers of 4 to 8 digits, 8
/// hexadecimal digits, a word, or two with a hyphen. Words are drawn from Draws, which is no source
/// of the training data. `later`: the question comes alone, behind the context. `chat`: in a turn
/// of the chat template, where no beginning of the answer is given. group: length. expected: the
/// value. Throws TooShort if the tokens do not hold a field a question.
std::vector<Sample> records_samples(const Tokenizer& tokenizer, std::size_t tokens,
                                    std::size_t questions, std::uint64_t seed, bool chat,
                                    bool later);

/// 1 if the answer is the value, within quotes or not.
double score_record(const Sample& sample, const Answered& answer);

}  // namespace ballast
