// The pre-tokenizers of GGUF files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ballast {

struct PreTokenizer {
  std::vector<std::string> splits;  ///< regular expressions for Splitter
  bool ignore_merges = false;       ///< a word that is a piece stays whole
  bool add_bos = false;             ///< unless the file says otherwise
};

/// The pre-tokenizer of a value of tokenizer.ggml.pre. Throws Error that names `source` and lists
/// the known ones.
PreTokenizer find_pre_tokenizer(std::string_view name, const std::string& source);

/// The expression of GPT-2, which "ByteLevel" means in tokenizer.json.
const std::string& gpt2_split();

}  // namespace ballast
