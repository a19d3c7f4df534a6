#include "text/tokenizer/character_map.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/fail.h"
#include "text/tokenizer/wire_format.h"

namespace ballast {
namespace {

constexpr int kDeepest = 256;  // bytes of a text to replace; published maps have up to 18
constexpr std::size_t kLongestText = 256;  // bytes of a replacement; published maps have up to 33
constexpr std::uint32_t kLeaf = 1u << 8;   // in a unit: a text ends behind its byte
constexpr int kMostLeaves = 32;  // matches that the library has room for at one place of a text

std::uint32_t u32_at(std::string_view bytes, std::size_t i) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
  return value;
}

/// Walks over all nodes that a text can reach. A node's children lie in one block of 256 units, at
/// its base with the next byte as an exclusive or; the library reads any of them to compare labels.
class Trie {
 public:
  Trie(std::string_view units, std::string_view texts, const std::string& source)
      : units_(units),
        texts_(texts),
        source_(source),
        size_(units.size() / sizeof(std::uint32_t)),
        leaves_(size_, kUnknown) {}

  void check() { walk(0, offset(u32_at(units_, 0)), 0); }

  /// See keeps_words_apart(). The trie was checked.
  bool keeps_words_apart() {
    visited_.assign(size_, 0);
    return visit(0, offset(u32_at(units_, 0)), nothing, false);
  }

  /// See add_rule_bytes(). The trie was checked.
  void add_bytes(RuleBytes& found) {
    visited_.assign(size_, 0);
    collect(0, offset(u32_at(units_, 0)), 256, found);
  }

 private:
  static constexpr std::int16_t kUnknown = -1, kOpen = -2;

  static std::size_t offset(std::uint32_t unit) {
    return static_cast<std::size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6);
  }

  /// Most matches on a way down from the children at `base` of the node.
  int walk(std::size_t node, std::size_t base, int depth) {
    require(depth < kDeepest && leaves_[node] != kOpen, ErrorCode::bad_file,
            "{}: precompiled_charsmap: its trie goes round or deeper than {}", source_, kDeepest);
    if (leaves_[node] != kUnknown) return leaves_[node];
    require((base | 0xff) < size_, ErrorCode::bad_file,
            "{}: precompiled_charsmap: a node leads to unit {} of {}", source_, base | 0xff, size_);
    leaves_[node] = kOpen;
    int most = 0;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::size_t child = base ^ byte;
      const std::uint32_t unit = u32_at(units_, child);
      if ((unit & (1u << 31 | 0xffu)) != byte) continue;
      const std::size_t next = child ^ offset(unit);
      const bool is_leaf = (unit & kLeaf) != 0;
      require(next < size_ && (!is_leaf || (u32_at(units_, next) & 0x7fffffffu) < texts_.size()),
              ErrorCode::bad_file, "{}: precompiled_charsmap: a replacement lies beyond its end",
              source_);
      if (is_leaf) {
        const std::string_view text =
            texts_.substr(u32_at(units_, next) & 0x7fffffffu, kLongestText + 1);
        require(std::min(text.find('\0'), text.size()) <= kLongestText, ErrorCode::bad_file,
                "{}: precompiled_charsmap: a replacement has over {} bytes", source_, kLongestText);
      }
      // A node that only ends a text has no children to be read.
      most = std::max(most, static_cast<int>(is_leaf) + walk(child, next, depth + 1));
    }
    require(most <= kMostLeaves, ErrorCode::bad_file,
            "{}: precompiled_charsmap: over {} texts to replace begin alike", source_, kMostLeaves);
    leaves_[node] = static_cast<std::int16_t>(most);
    return most;
  }

  enum Before : std::uint8_t { nothing, a_word, the_first_space, another };

  /// Every text to replace below the node. `before`: what stands before the next byte; `word`: a
  /// letter or a digit is on the way.
  bool visit(std::size_t node, std::size_t base, Before before, bool word) {
    const auto bit = static_cast<std::uint8_t>(1u << (2 * before + (word ? 1 : 0)));
    if ((visited_[node] & bit) != 0) return true;
    visited_[node] |= bit;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::size_t child = base ^ byte;
      const std::uint32_t unit = u32_at(units_, child);
      if ((unit & (1u << 31 | 0xffu)) != byte) continue;
      const bool is_leaf = (unit & kLeaf) != 0;
      const bool in_word = is_word(static_cast<char>(byte));
      if (byte == ' ' && (before == a_word || (before == nothing && is_leaf))) return false;
      if (in_word && before == the_first_space) return false;
      const std::size_t next = child ^ offset(unit);
      if ((word || in_word) && is_leaf) {
        std::string_view text = texts_.substr(u32_at(units_, next) & 0x7fffffffu);
        text = text.substr(0, text.find('\0'));
        if (text.empty() || text.find_first_of(" \xe2") != std::string_view::npos) return false;
      }
      const Before now = in_word                            ? a_word
                         : byte == ' ' && before == nothing ? the_first_space
                                                            : another;
      if (!visit(child, next, now, word || in_word)) return false;
    }
    return true;
  }

  /// Bytes on the ways below the node, to which `last` leads (256: none does). The byte that leads
  /// to a unit is part of it, so that once is enough.
  void collect(std::size_t node, std::size_t base, std::size_t last, RuleBytes& found) {
    if (visited_[node] != 0) return;
    visited_[node] = 1;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::size_t child = base ^ byte;
      const std::uint32_t unit = u32_at(units_, child);
      if ((unit & (1u << 31 | 0xffu)) != byte) continue;
      found.bytes.set(byte);
      if (last < 256) found.pairs.set(256 * last + byte);
      // A text that ends within a character: whatever goes on from there is not left alone.
      for (std::size_t next = 0; byte >= 0xc0 && (unit & kLeaf) != 0 && next < 256; ++next)
        found.pairs.set(256 * byte + next);
      collect(child, child ^ offset(unit), byte, found);
    }
  }

  std::string_view units_, texts_;
  const std::string& source_;
  std::size_t size_;
  std::vector<std::int16_t> leaves_;   ///< of each unit: most matches on a way down from it
  std::vector<std::uint8_t> visited_;  ///< of each unit: bits of visit()
};

Trie read_trie(std::string_view map, const std::string& source) {
  const std::size_t size = map.size() < sizeof(std::uint32_t) ? 0 : u32_at(map, 0);
  require(size >= sizeof(std::uint32_t) && size % sizeof(std::uint32_t) == 0 &&
              size < map.size() - sizeof(std::uint32_t) && map.back() == '\0',
          ErrorCode::bad_file,
          "{}: precompiled_charsmap: {} bytes are no compiled rules; write the tokenizer again",
          source, map.size());
  map.remove_prefix(sizeof(std::uint32_t));
  return {map.substr(0, size), map.substr(size), source};
}

}  // namespace

void check_character_map(std::string_view map, const std::string& source) {
  if (!map.empty()) read_trie(map, source).check();
}

bool keeps_words_apart(std::string_view map) {
  return map.empty() || read_trie(map, "").keeps_words_apart();
}

void add_rule_bytes(std::string_view map, RuleBytes& found) {
  if (!map.empty()) read_trie(map, "").add_bytes(found);
}

void check_character_maps(std::string_view model, const std::string& source) {
  // ModelProto: normalizer_spec = 3, denormalizer_spec = 5; NormalizerSpec: the map = 2.
  bool whole = true;
  whole &= read_fields(model, [&](const WireField& spec) {
    if (spec.number != 3 && spec.number != 5) return;
    whole &= read_fields(spec.bytes, [&](const WireField& field) {
      if (field.number == 2) check_character_map(field.bytes, source);
    });
  });
  require(whole, ErrorCode::bad_file, "{}: not a SentencePiece model (no protocol buffer)", source);
}

}  // namespace ballast
