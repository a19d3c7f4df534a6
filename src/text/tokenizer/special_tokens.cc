#include "text/tokenizer/special_tokens.h"

#include <algorithm>

#include "base/fail.h"

namespace ballast {
namespace {

// Longer than any special token in use. Bounds the work at each byte of the text.
constexpr std::size_t kLongest = 1024;

std::uint64_t edge(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : nodes_(1) {
  const auto listed = [](const std::vector<Token>& list, Token token) {
    return std::find(list.begin(), list.end(), token) != list.end();
  };
  for (std::size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const bool control = type == TokenType::control || type == TokenType::unknown;
    const std::string& piece = vocabulary.pieces[i];
    if ((!control && type != TokenType::user_defined) || piece.empty()) continue;
    require(piece.size() <= kLongest, ErrorCode::unsupported,
            "{}: special token {} has {} bytes; at most {} are supported", vocabulary.source, i,
            piece.size(), kLongest);
    const auto token = static_cast<Token>(i);
    add(piece, {token, control, listed(vocabulary.strip_left, token),
                listed(vocabulary.strip_right, token)});
  }
}

void SpecialTokens::add(std::string_view piece, const Node& node) {
  std::uint32_t at = 0;
  for (char byte : piece) {
    const auto [entry, is_new] =
        children_.try_emplace(edge(at, byte), static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.emplace_back();
    at = entry->second;
  }
  nodes_[at] = node;
}

std::uint32_t SpecialTokens::child(std::uint32_t node, char byte) const {
  const auto found = children_.find(edge(node, byte));
  return found == children_.end() ? 0 : found->second;
}

std::pair<const SpecialTokens::Node*, std::size_t> SpecialTokens::find(std::string_view text,
                                                                       std::size_t begin,
                                                                       bool control) const {
  std::pair<const Node*, std::size_t> best{nullptr, 0};
  std::uint32_t at = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    at = child(at, text[i]);
    if (at == 0) break;
    const Node& node = nodes_[at];
    if (node.token != kNoToken && (control || !node.control)) best = {&node, i + 1 - begin};
  }
  return best;
}

void SpecialTokens::split(std::string_view text, bool control,
                          const std::function<void(Part)>& part) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto [node, length] = find(text, i, control);
    if (length == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (node->strip_left && end > begin && is_space(text[end - 1])) --end;
    if (end > begin) part({text.substr(begin, end - begin)});
    part({text.substr(i, length), node->token});
    begin = i + length;
    while (node->strip_right && begin < text.size() && is_space(text[begin])) ++begin;
    i = begin;
  }
  if (begin < text.size()) part({text.substr(begin)});
}

}  // namespace ballast
