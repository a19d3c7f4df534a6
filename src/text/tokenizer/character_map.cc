#include "text/tokenizer/character_map.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "base/fail.h"

namespace ballast {
namespace {

constexpr int kDeepest = 256;    // bytes of a text to replace; published maps have up to 18
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
      const bool is_leaf = (unit >> 8 & 1) != 0;
      require(next < size_ && (!is_leaf || (u32_at(units_, next) & 0x7fffffffu) < texts_.size()),
              ErrorCode::bad_file, "{}: precompiled_charsmap: a replacement lies beyond its end",
              source_);
      // A node that only ends a text has no children to be read.
      most = std::max(most, static_cast<int>(is_leaf) + walk(child, next, depth + 1));
    }
    require(most <= kMostLeaves, ErrorCode::bad_file,
            "{}: precompiled_charsmap: over {} texts to replace begin alike", source_, kMostLeaves);
    leaves_[node] = static_cast<std::int16_t>(most);
    return most;
  }

  std::string_view units_, texts_;
  const std::string& source_;
  std::size_t size_;
  std::vector<std::int16_t> leaves_;  ///< of each unit: most matches on a way down from it
};

/// A protocol buffer: calls `field(number, content)` for every field of bytes; false at damage.
template <typename Field>
bool read_fields(std::string_view bytes, Field&& field) {
  std::size_t at = 0;
  const auto integer = [&]() -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  };
  while (at < bytes.size()) {
    const auto key = integer();
    if (!key) return false;
    std::optional<std::uint64_t> size;
    switch (*key & 7) {
      case 0:
        if (!integer()) return false;
        continue;
      case 1:
        size = 8;
        break;
      case 2:
        size = integer();
        break;
      case 5:
        size = 4;
        break;
      default:
        return false;
    }
    if (!size || *size > bytes.size() - at) return false;
    if ((*key & 7) == 2) field(*key >> 3, bytes.substr(at, *size));
    at += *size;
  }
  return true;
}

}  // namespace

void check_character_map(std::string_view map, const std::string& source) {
  if (map.empty()) return;
  const std::size_t size = map.size() < sizeof(std::uint32_t) ? 0 : u32_at(map, 0);
  require(size >= sizeof(std::uint32_t) && size % sizeof(std::uint32_t) == 0 &&
              size < map.size() - sizeof(std::uint32_t) && map.back() == '\0',
          ErrorCode::bad_file,
          "{}: precompiled_charsmap: {} bytes are no compiled rules; write the tokenizer again",
          source, map.size());
  map.remove_prefix(sizeof(std::uint32_t));
  Trie(map.substr(0, size), map.substr(size), source).check();
}

void check_character_maps(std::string_view model, const std::string& source) {
  // ModelProto: normalizer_spec = 3, denormalizer_spec = 5; NormalizerSpec: the map = 2.
  bool whole = true;
  whole &= read_fields(model, [&](std::uint64_t number, std::string_view spec) {
    if (number != 3 && number != 5) return;
    whole &= read_fields(spec, [&](std::uint64_t field, std::string_view map) {
      if (field == 2) check_character_map(map, source);
    });
  });
  require(whole, ErrorCode::bad_file, "{}: not a SentencePiece model (no protocol buffer)", source);
}

}  // namespace ballast
