#include "text/tokenizer/special_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <string>

#include "base/fail.h"
#include "base/interruption.h"
#include "text/tokenizer/utf8.h"

namespace ballast {
namespace {

constexpr std::size_t kWindow = std::size_t{1} << 14;  // bytes that are searched at once

/// Bytes of the whitespace character that begins at `at`; 0: another, or none.
std::size_t space_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  const Utf8Char c = next_utf8(text, at);
  const bool space =
      c.state == Utf8Char::State::valid && u_isUWhiteSpace(static_cast<UChar32>(c.code));
  return space ? c.length : 0;
}

/// Bytes of the whitespace character that ends text[begin, end); 0: another, or none.
std::size_t space_before(std::string_view text, std::size_t begin, std::size_t end) {
  constexpr std::size_t kLongest = 3;  // none lies beyond U+FFFF
  for (std::size_t length = 1; length <= kLongest && begin + length <= end; ++length) {
    if (space_at(text, end - length) == length) return length;
  }
  return 0;
}

std::vector<bool> set_of(const std::vector<Token>& list, std::size_t size) {
  std::vector<bool> set(size);
  for (const Token token : list) {
    if (token >= 0 && static_cast<std::size_t>(token) < size) set[token] = true;
  }
  return set;
}

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) {
  const std::size_t size = vocabulary.pieces.size();
  const std::vector<bool> left = set_of(vocabulary.strip_left, size);
  const std::vector<bool> right = set_of(vocabulary.strip_right, size);
  for (std::size_t i = 0; i < size; ++i) {
    const TokenType type = vocabulary.types[i];
    const bool control = type == TokenType::control || type == TokenType::unknown;
    const std::string& piece = vocabulary.pieces[i];
    if ((!control && type != TokenType::user_defined) || piece.empty()) continue;
    has_user_defined_ |= !control;
    longest_ = std::max(longest_, piece.size());
    tokens_.push_back({static_cast<Token>(i), static_cast<std::uint32_t>(piece.size()), control,
                       left[i], right[i]});
  }
  if (tokens_.empty()) return;
  build(vocabulary.pieces, vocabulary.source);
  link();
}

// Level by level: a node is a range of the tokens that end with its way.
void SpecialTokens::build(const std::vector<std::string>& pieces, std::string_view source) {
  struct Range {
    Index begin, end;
  };
  std::vector<Index> order(tokens_.size()), sorted(tokens_.size());
  for (Index i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<Range> level = {{0, static_cast<Index>(order.size())}}, below;
  bytes_ = {0};
  for (std::size_t depth = 0; !level.empty(); ++depth, level.swap(below)) {
    below.clear();
    // 256 stands for a token that is its whole way.
    const auto byte_of = [&](Index token) -> std::size_t {
      const std::string& piece = pieces[tokens_[token].token];
      return piece.size() == depth ? 256
                                   : static_cast<unsigned char>(piece[piece.size() - 1 - depth]);
    };
    for (const Range range : level) {
      children_.push_back(static_cast<Index>(bytes_.size()));
      any_.push_back(kNone);
      const auto add_child = [&](std::size_t byte, Range part) {
        require(bytes_.size() < kMostNodes, ErrorCode::unsupported,
                "{}: the special tokens have over {} different endings; no more are supported",
                source, kMostNodes);
        bytes_.push_back(static_cast<unsigned char>(byte));
        below.push_back(part);
      };
      const std::size_t first = byte_of(order[range.begin]);
      if (std::all_of(order.begin() + range.begin, order.begin() + range.end,
                      [&](Index token) { return byte_of(token) == first; })) {  // most of them
        if (first < 256) {
          add_child(first, range);
        } else {
          any_.back() = order[range.end - 1];
        }
        continue;
      }
      std::array<Index, 258> ends{};
      for (Index i = range.begin; i < range.end; ++i) ++ends[byte_of(order[i]) + 1];
      for (std::size_t byte = 0; byte < 257; ++byte) ends[byte + 1] += ends[byte];
      std::array<Index, 258> at = ends;
      for (Index i = range.begin; i < range.end; ++i) {
        sorted[range.begin + at[byte_of(order[i])]++] = order[i];
      }
      std::copy(sorted.begin() + range.begin, sorted.begin() + range.end,
                order.begin() + range.begin);
      for (std::size_t byte = 0; byte < 256; ++byte) {
        if (ends[byte] == ends[byte + 1]) continue;
        add_child(byte, {range.begin + ends[byte], range.begin + ends[byte + 1]});
      }
      // Of tokens that are spelled alike the last counts.
      if (ends[256] < ends[257]) any_.back() = order[range.end - 1];
    }
  }
  children_.push_back(static_cast<Index>(bytes_.size()));
}

void SpecialTokens::link() {
  for (Index node = children_[0]; node < children_[1]; ++node) roots_[bytes_[node]] = node;
  shorter_.resize(bytes_.size());
  user_defined_.assign(bytes_.size(), kNone);
  for (Index parent = 0; parent < bytes_.size(); ++parent) {
    for (Index node = children_[parent]; node < children_[parent + 1]; ++node) {
      shorter_[node] = parent == 0 ? 0 : next(shorter_[parent], bytes_[node]);
      const bool own = any_[node] != kNone;
      user_defined_[node] =
          own && !tokens_[any_[node]].control ? any_[node] : user_defined_[shorter_[node]];
      if (!own) any_[node] = any_[shorter_[node]];
    }
  }
}

/// 0 if there is none.
SpecialTokens::Index SpecialTokens::child(Index node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  const auto begin = bytes_.begin() + children_[node], end = bytes_.begin() + children_[node + 1];
  const auto found = std::lower_bound(begin, end, byte);
  return found == end || *found != byte ? 0 : static_cast<Index>(found - bytes_.begin());
}

SpecialTokens::Index SpecialTokens::next(Index node, unsigned char byte) const {
  while (true) {
    const Index found = child(node, byte);
    if (found != 0 || node == 0) return found;
    node = shorter_[node];
  }
}

void SpecialTokens::find(std::string_view text, std::size_t begin, bool control,
                         std::vector<Index>& found) const {
  const std::vector<Index>& token = control ? any_ : user_defined_;
  const std::size_t end = begin + found.size();
  Index node = 0;
  // No token that begins before `end` reaches further.
  for (std::size_t at = std::min(text.size(), end + longest_); at-- > begin;) {
    node = next(node, static_cast<unsigned char>(text[at]));
    if (at < end) found[at - begin] = token[node];
  }
}

void SpecialTokens::split(std::string_view text, bool control,
                          const std::function<void(Part)>& part) const {
  if (control ? tokens_.empty() : !has_user_defined_) {
    if (!text.empty()) part({text});
    return;
  }
  std::vector<Index> found;  // at each byte of text from `searched` on
  std::size_t begin = 0, searched = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (i >= searched + found.size()) {
      Interruption::check();
      searched = i;
      found.resize(std::min(kWindow, text.size() - i));
      find(text, i, control, found);
    }
    const Index index = found[i - searched];
    if (index == kNone) {
      ++i;
      continue;
    }
    const Special& special = tokens_[index];
    std::size_t end = i;
    while (const std::size_t space = special.strip_left ? space_before(text, begin, end) : 0) {
      end -= space;
    }
    if (end > begin) part({text.substr(begin, end - begin)});
    part({text.substr(i, special.length), special.token});
    begin = i + special.length;
    while (const std::size_t space = special.strip_right ? space_at(text, begin) : 0) {
      begin += space;
    }
    i = begin;
  }
  if (begin < text.size()) part({text.substr(begin)});
}

}  // namespace ballast
