// Hugging Face's tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "ballast/engine/tokenizer.h"
#include "formats/json_fwd.h"

namespace ballast {

/// Throws Error that names `source` and the part that is damaged or not supported. Supported:
/// models BPE (byte-level, or over characters with spaces written as U+2581) and Unigram, with the
/// normalizers, pre-tokenizers and post-processors that language models use with them.
Vocabulary parse_tokenizer_json(std::string_view text, const std::string& source);

/// GPT-2's own form: vocab.json, whose name is `source`, and merges.txt, a merge a line.
Vocabulary parse_vocab_and_merges(std::string_view vocab, std::string_view merges,
                                  const std::string& source);

/// Adds one token, an object of "added_tokens".
void add_token(Vocabulary& vocabulary, Token id, const SortedJson& token);

/// Parses JSON; throws Error that names `source` and the place.
SortedJson parse_json(std::string_view text, const std::string& source);

}  // namespace ballast
