#include "ballast/engine/tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "base/fail.h"
#include "base/interruption.h"
#include "base/keyed_hash.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/check_sizes.h"
#include "text/tokenizer/nfc.h"
#include "text/tokenizer/piece_index.h"
#include "text/tokenizer/pretokenizers.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/splitter.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer/word_encoder.h"

namespace ballast {
namespace {

using Kind = Vocabulary::Kind;
using SpacePrefix = Vocabulary::SpacePrefix;

constexpr std::string_view kSpace = "\u2581";
constexpr std::size_t kLongestText = std::size_t{1} << 30;
constexpr std::size_t kLongestCachedWord = 64;
constexpr std::size_t kLongestWord = std::size_t{1} << 20;  // where tokens are limited; bytes

// Usual names of the end-of-turn token.
constexpr std::array<std::string_view, 9> kEnds = {
    "<|im_end|>", "<|eot_id|>",    "<|eom_id|>", "<end_of_turn>",        "<|end|>",
    "<|eot|>",    "<|endoftext|>", "<EOT>",      "<｜end▁of▁sentence｜>"};

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(from, begin)) != std::string_view::npos;) {
    out += text.substr(begin, at - begin);
    out += to;
    begin = at + from.size();
  }
  out += text.substr(begin);
  return out;
}

// The value of "<0x0A>", which the WordEncoder has checked.
char byte_of(std::string_view piece) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  return static_cast<char>(digit(piece[3]) * 16 + digit(piece[4]));
}

// The bytes of each piece in text.
std::vector<std::string> make_texts(const Vocabulary& vocabulary) {
  std::vector<std::string> texts;
  texts.reserve(vocabulary.pieces.size());
  for (std::size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    const std::string& piece = vocabulary.pieces[i];
    const TokenType type = vocabulary.types[i];
    if (type == TokenType::byte && piece.size() == 6) {
      texts.emplace_back(1, byte_of(piece));
    } else if (type != TokenType::normal && type != TokenType::unused) {
      texts.push_back(piece);
    } else if (vocabulary.kind == Kind::byte_bpe) {
      texts.push_back(from_byte_alphabet(piece).value_or(piece));
    } else {
      texts.push_back(replace_all(piece, kSpace, " "));
    }
  }
  return texts;
}

void check(Vocabulary& vocabulary) {
  const std::size_t size = vocabulary.pieces.size();
  const std::string& source = vocabulary.source;
  require(size > 0, "{}: the vocabulary is empty", source);
  check_pieces(size, source);
  const bool merges = vocabulary.kind == Kind::byte_bpe ||
                      (vocabulary.kind == Kind::sentencepiece && !vocabulary.merges.empty());
  const std::size_t most = merges ? kLongestPiece : kLongestScoredPiece;
  for (std::size_t i = 0; i < size; ++i) check_piece(vocabulary.pieces[i], i, most, source);
  if (vocabulary.types.empty()) vocabulary.types.assign(size, TokenType::normal);
  require(vocabulary.types.size() == size, "{}: {} token types for {} pieces; expected one each",
          source, vocabulary.types.size(), size);
  require(vocabulary.scores.empty() || vocabulary.scores.size() == size,
          "{}: {} scores for {} pieces; expected one each", source, vocabulary.scores.size(), size);
  for (std::size_t i = 0; i < vocabulary.scores.size(); ++i) {
    require(!std::isnan(vocabulary.scores[i]), "{}: the score of piece {} is not a number", source,
            i);
  }
  const std::pair<const char*, Token> ids[] = {{"bos", vocabulary.bos},
                                               {"eos", vocabulary.eos},
                                               {"eot", vocabulary.eot},
                                               {"unk", vocabulary.unk},
                                               {"pad", vocabulary.pad}};
  for (const Token id : vocabulary.ends) {
    require(id >= 0 && id < static_cast<Token>(size),
            "{}: an end token is {}; expected an id below {}", source, id, size);
  }
  for (const auto& [name, id] : ids) {
    require(id >= kNoToken && id < static_cast<Token>(size),
            "{}: the {} token is {}; expected an id below {}", source, name, id, size);
  }
  // Some files declare the unknown token a control token.
  if (vocabulary.unk != kNoToken && vocabulary.unk != vocabulary.bos &&
      vocabulary.unk != vocabulary.eos) {
    vocabulary.types[vocabulary.unk] = TokenType::unknown;
  }
  require(!vocabulary.add_bos || vocabulary.bos != kNoToken,
          "{}: asks for a bos token in front of text but names none", source);
  require(!vocabulary.add_eos || vocabulary.eos != kNoToken,
          "{}: asks for an eos token behind text but names none", source);
}

Splitter make_splitter(Vocabulary& vocabulary) {
  if (vocabulary.splits.empty() && vocabulary.kind == Kind::byte_bpe) {
    PreTokenizer pre = find_pre_tokenizer(vocabulary.pre, vocabulary.source);
    vocabulary.splits = std::move(pre.splits);
    vocabulary.ignore_merges |= pre.ignore_merges;
  }
  return Splitter(vocabulary.splits, vocabulary.source);
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(Vocabulary given);

  void encode_text(std::string_view text, bool first, std::size_t most,
                   const Splitter::Deadline& deadline, std::vector<Token>& out) const;
  void check_size(std::size_t tokens, std::size_t most) const;
  std::string normalize(std::string_view text, bool first) const;
  void split(std::string_view text, const Splitter::Deadline& deadline,
             const std::function<void(std::string_view)>& word) const;
  void append_text(Token token, const DecodeOptions& options, bool& at_start,
                   std::string& out) const;

  Vocabulary vocabulary;
  std::vector<std::string> texts;
  SpecialTokens special;
  Splitter splitter;
  std::optional<WordEncoder> words;
  std::optional<SentencePieceModel> library;
  std::optional<PieceIndex> ids;
  std::vector<Token> ends;
};

Tokenizer::Impl::Impl(Vocabulary given)
    : vocabulary((check(given), std::move(given))),
      texts(make_texts(vocabulary)),
      special(vocabulary),
      splitter(make_splitter(vocabulary)) {
  if (vocabulary.kind == Kind::library) {
    library.emplace(vocabulary.sentencepiece_model, vocabulary.source);
  } else {
    words.emplace(vocabulary, texts);
  }
  vocabulary.merges = {};
  ids.emplace(vocabulary.pieces, [](std::size_t) { return true; });
  ends = {vocabulary.eos, vocabulary.eot};
  ends.insert(ends.end(), vocabulary.ends.begin(), vocabulary.ends.end());
  for (std::string_view name : kEnds) {
    const Token found = ids->find(name);
    if (found != kNoToken && vocabulary.types[found] != TokenType::normal) ends.push_back(found);
  }
  // Where answers have several messages, <|end|> ends one of them.
  const Token whole = ids->find("<|return|>"), call = ids->find("<|call|>");
  if (whole == kNoToken || call == kNoToken) return;
  std::erase(ends, ids->find("<|end|>"));
  ends.insert(ends.end(), {whole, call});
}

std::string Tokenizer::Impl::normalize(std::string_view text, bool first) const {
  std::string out = vocabulary.nfc ? to_nfc(text) : std::string(text);
  const bool prefix = vocabulary.space_prefix == SpacePrefix::always ||
                      (vocabulary.space_prefix == SpacePrefix::first && first);
  if (prefix && !(vocabulary.prefix_unless_space && out.starts_with(' '))) out.insert(0, 1, ' ');
  if (vocabulary.kind == Kind::sentencepiece) out = replace_all(out, " ", kSpace);
  return out;
}

void Tokenizer::Impl::split(std::string_view text, const Splitter::Deadline& deadline,
                            const std::function<void(std::string_view)>& word) const {
  const bool cut_at_spaces = vocabulary.kind == Kind::sentencepiece && words->spaces_begin_pieces();
  splitter.split(text, deadline, [&](std::string_view part) {
    // No merge crosses these places, so splitting there keeps words short without changing ids.
    std::size_t begin = 0;
    while (cut_at_spaces) {
      std::size_t i = begin;
      while (part.substr(i, kSpace.size()) == kSpace) i += kSpace.size();
      const std::size_t end = part.find(kSpace, i);
      if (end == std::string_view::npos) break;
      word(part.substr(begin, end - begin));
      begin = end;
    }
    word(part.substr(begin));
  });
}

void Tokenizer::Impl::check_size(std::size_t tokens, std::size_t most) const {
  Interruption::check();
  require(tokens <= most, ErrorCode::over_limit, "the text has more than {} tokens; shorten it",
          most);
}

void Tokenizer::Impl::encode_text(std::string_view text, bool first, std::size_t most,
                                  const Splitter::Deadline& deadline,
                                  std::vector<Token>& out) const {
  if (library) {
    return library->encode(text, out, SentencePieceModel::kPart,
                           [&] { check_size(out.size(), most); });
  }
  const std::string normal = normalize(text, first);
  // Words repeat: their ids are copied from the first occurrence.
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>, KeyedHash> seen;
  split(normal, deadline, [&](std::string_view word) {
    const bool cached = word.size() <= kLongestCachedWord;
    if (cached) {
      if (const auto found = seen.find(word); found != seen.end()) {
        const auto [begin, count] = found->second;
        for (std::size_t i = begin; i < begin + count; ++i) out.push_back(Token{out[i]});
        return check_size(out.size(), most);
      }
    }
    const std::size_t begin = out.size();
    words->encode(word, out, WordEncoder::kPart, [&](std::size_t bytes) {
      deadline.check_word(bytes);
      check_size(out.size(), most);
    });
    check_size(out.size(), most);
    if (cached) seen.emplace(word, std::pair(begin, out.size() - begin));
  });
}

void Tokenizer::Impl::append_text(Token token, const DecodeOptions& options, bool& at_start,
                                  std::string& out) const {
  require(token >= 0 && static_cast<std::size_t>(token) < texts.size(),
          "{}: token {} is outside the vocabulary of {}", vocabulary.source, token, texts.size());
  const TokenType type = vocabulary.types[token];
  if (type == TokenType::control || type == TokenType::unknown) {
    if (options.special) {
      out += texts[token];
    } else if (type == TokenType::unknown) {
      out += kReplacementUtf8;
      at_start = false;
    }
    return;
  }
  std::string_view text = texts[token];
  if (at_start && vocabulary.space_prefix != SpacePrefix::never && text.starts_with(' ')) {
    text.remove_prefix(1);
  }
  at_start = false;
  out += text;
}

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : impl_(std::make_shared<const Impl>(std::move(vocabulary))) {}

Tokenizer Tokenizer::limited(std::size_t most) const {
  Tokenizer out = *this;
  out.most_ = most;
  return out;
}

std::size_t Tokenizer::size() const { return impl_->texts.size(); }

const Vocabulary& Tokenizer::vocabulary() const { return impl_->vocabulary; }

std::vector<Token> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Impl& impl = *impl_;
  require(text.size() <= kLongestText, "{}: a text of {} bytes; at most {} can be encoded at once",
          impl.vocabulary.source, text.size(), kLongestText);
  // One for all stretches between special tokens.
  const bool limited = most_ != static_cast<std::size_t>(-1);
  const Splitter::Deadline deadline(text.size(), limited ? kLongestWord : text.size());
  std::vector<Token> out;
  if (options.add_special && impl.vocabulary.add_bos) out.push_back(impl.vocabulary.bos);
  impl.special.split(text, options.parse_special, [&](SpecialTokens::Part part) {
    if (part.token != kNoToken) {
      out.push_back(part.token);
      impl.check_size(out.size(), most_);
    } else {
      impl.encode_text(part.text, part.text.data() == text.data(), most_, deadline, out);
    }
  });
  impl.check_size(out.size(), most_);
  if (options.add_special && impl.vocabulary.add_eos) out.push_back(impl.vocabulary.eos);
  return out;
}

std::string Tokenizer::decode(std::span<const Token> tokens, const DecodeOptions& options) const {
  std::string out;
  bool at_start = options.text_start;
  for (Token token : tokens) impl_->append_text(token, options, at_start, out);
  return out;
}

Token Tokenizer::find(std::string_view piece) const { return impl_->ids->find(piece); }

bool Tokenizer::is_special(Token token) const {
  if (token < 0 || static_cast<std::size_t>(token) >= size()) return false;
  const TokenType type = impl_->vocabulary.types[token];
  return type == TokenType::control || type == TokenType::unknown;
}

bool Tokenizer::is_end(Token token) const {
  const auto& ends = impl_->ends;
  return token != kNoToken && std::find(ends.begin(), ends.end(), token) != ends.end();
}

TokenStream::TokenStream(Tokenizer tokenizer, const DecodeOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {}

std::string TokenStream::push(Token token) {
  tokenizer_.impl_->append_text(token, options_, options_.text_start, pending_);
  std::size_t whole = 0;
  while (whole < pending_.size()) {
    const Utf8Char c = next_utf8(pending_, whole);
    if (c.state == Utf8Char::State::unfinished) break;
    whole += c.length;
  }
  std::string out = to_valid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return out;
}

std::string TokenStream::flush() {
  std::string out = to_valid_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace ballast
