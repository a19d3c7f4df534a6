// Text to token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ballast {

class Gguf;

using Token = std::int32_t;

/// "There is no such token."
inline constexpr Token kNoToken = -1;

/// Larger vocabularies are refused.
inline constexpr std::size_t kMostPieces = std::size_t{1} << 20;

/// Vocabularies with a longer piece are refused. In bytes as the file spells it: byte-level BPE
/// spells a space, and each byte of other scripts, in two.
inline constexpr std::size_t kLongestPiece = 4096;
/// The same of vocabularies that SentencePiece's library runs, or whose `scores` say what joins.
inline constexpr std::size_t kLongestScoredPiece = 1024;

/// What a piece of the vocabulary is; the numbers are those of GGUF files.
enum class TokenType : std::uint8_t {
  normal = 1,
  unknown = 2,       ///< stands for what the vocabulary cannot write
  control = 3,       ///< a mark such as <s> or <|im_end|>, found in text only when asked
  user_defined = 4,  ///< always found whole in text, before anything else
  unused = 5,
  byte = 6  ///< "<0x0A>": one byte of a character that has no piece
};

/// What joins first: pairs of pieces, best first. All lie in one text, so that a million of them
/// takes little more than its letters.
class Merges {
 public:
  /// Throws Error (over_limit) if all pieces together exceed 4 GiB.
  void add(std::string_view left, std::string_view right);
  std::size_t size() const { return ends_.size() / 2; }
  bool empty() const { return ends_.empty(); }
  /// Left and right piece of merge `rank` < size(); views that the next add() ends.
  std::pair<std::string_view, std::string_view> operator[](std::size_t rank) const;

 private:
  std::string text_;
  std::vector<std::uint32_t> ends_;  ///< of each piece in text_: left, right, left, ...
};

/// Everything that a Tokenizer needs, as a file gives it: a plain record that the readers of GGUF
/// files and of Hugging Face folders fill.
struct Vocabulary {
  enum class Kind : std::uint8_t {
    byte_bpe,       ///< pieces spell bytes in GPT-2's alphabet, `merges` say what joins first
    sentencepiece,  ///< pieces write a space as U+2581; the best `scores` join first, or `merges`
    library         ///< a SentencePiece .model, in `sentencepiece_model`, run by its own library
  };
  /// Where a space is put before text, as SentencePiece models want it.
  enum class SpacePrefix : std::uint8_t {
    never,
    first,  ///< before the text
    always  ///< before the text, and after each special token in it
  };

  std::string source;  ///< file name, for messages
  Kind kind = Kind::byte_bpe;
  std::vector<std::string> pieces;
  std::vector<float> scores;     ///< one a piece; kind sentencepiece without merges
  std::vector<TokenType> types;  ///< one a piece; empty: all normal
  Merges merges;
  bool ignore_merges = false;       ///< a word that is a piece stays whole (Llama 3)
  std::string pre;                  ///< pre-tokeniser, by the name that GGUF files give it
  std::vector<std::string> splits;  ///< pre-tokeniser, by its regular expressions; if any, `pre`
                                    ///< is not looked at
  bool nfc = false;                 ///< bring text to Unicode normal form C first
  SpacePrefix space_prefix = SpacePrefix::never;
  bool prefix_unless_space = false;  ///< no prefix for text that begins with a space
  std::vector<Token> strip_left;     ///< special tokens that swallow the whitespace before them
  std::vector<Token> strip_right;    ///< and after them
  Token bos = kNoToken;              ///< begins a text
  Token eos = kNoToken;              ///< ends a text
  Token eot = kNoToken;              ///< ends a turn of a conversation
  Token unk = kNoToken;
  Token pad = kNoToken;
  std::vector<Token> ends;  ///< further tokens that end a text or a turn
  bool add_bos = false;
  bool add_eos = false;
  std::string chat_template;  ///< Jinja text; empty: the model has none
  std::string tool_template;  ///< the one for conversations with functions; empty: the same
  std::string sentencepiece_model;
};

/// The vocabulary of a GGUF file, with tensors or without.
Vocabulary read_vocabulary(const Gguf& file);

/// The vocabulary of a GGUF file, of a Hugging Face folder (tokenizer.json, or tokenizer.model, or
/// vocab.json with merges.txt; tokenizer_config.json and chat_template.jinja beside it are read
/// too) or of one such file. Throws Error that names the file and the part of it that is damaged or
/// not supported.
Vocabulary read_vocabulary(const std::filesystem::path& path);

struct EncodeOptions {
  bool add_special = true;     ///< bos in front and eos behind, as the vocabulary asks
  bool parse_special = false;  ///< "<|im_end|>" in the text means that token
};

struct DecodeOptions {
  bool special = false;    ///< write control tokens too
  bool text_start = true;  ///< the first token begins a text: drop the space put before it
};

/// Immutable, cheap to copy, safe to use from many threads.
class Tokenizer {
 public:
  /// Throws Error if the parts of the vocabulary do not fit together.
  explicit Tokenizer(Vocabulary vocabulary);

  /// The same, but encode() throws Error (over_limit) for a text of more than `most` tokens, soon
  /// after that many: what a stranger may send.
  Tokenizer limited(std::size_t most) const;

  std::size_t size() const;
  /// The vocabulary without its merges, which are held in another form.
  const Vocabulary& vocabulary() const;

  /// Ids of `text`, of at most 1 GiB. Time grows as n log n at worst. Bytes that are not UTF-8 come
  /// back from decode() as they were, except where the vocabulary has no way to write them (then
  /// U+FFFD, or the unknown token, stands for them).
  std::vector<Token> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// The bytes that the tokens stand for. Throws Error for an id outside the vocabulary.
  std::string decode(std::span<const Token> tokens, const DecodeOptions& options = {}) const;

  /// The id of exactly this piece as the vocabulary writes it, or kNoToken.
  Token find(std::string_view piece) const;

  /// Control tokens and the unknown token.
  bool is_special(Token token) const;
  /// Generation stops at this token: the end of the text or of a turn.
  bool is_end(Token token) const;

 private:
  friend class TokenStream;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
  std::size_t most_ = static_cast<std::size_t>(-1);
};

/// Text of tokens that arrive one by one. What comes out is always valid UTF-8 and never ends
/// within a character; bytes that are not UTF-8 come out as U+FFFD.
class TokenStream {
 public:
  explicit TokenStream(Tokenizer tokenizer, const DecodeOptions& options = {});

  /// The text that this token completes, perhaps none.
  std::string push(Token token);
  /// What is left at the end: U+FFFD for a character that was never finished.
  std::string flush();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::string pending_;
};

/// The text with each maximal part that is not UTF-8 replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace ballast
