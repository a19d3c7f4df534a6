// The one reader of JSON from outside: files, lines of files, requests.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "ballast/error.h"
#include "formats/json.h"

namespace ballast {

/// Nesting beyond this is refused: some work on a document is recursive.
inline constexpr std::size_t kDeepestJson = 64;
inline constexpr std::size_t kMostJson = std::size_t{256} << 20;
/// A text of small values takes up to forty times its bytes as a document. What would take over
/// four times and 64 MiB is refused.
inline constexpr std::size_t kJsonMemoryPerByte = 4, kJsonMemory = std::size_t{64} << 20;

/// Of an object that keeps the order of its fields: it compares each new one with all before.
inline constexpr std::size_t kMostFields = 1024;

/// What a text may cost.
struct JsonLimits {
  std::size_t bytes = kMostJson;
  std::size_t values = static_cast<std::size_t>(-1);  ///< in arrays and objects, themselves too
  std::size_t fields = static_cast<std::size_t>(-1);  ///< of one object
  bool memory = true;  ///< refuse what would take too much as a document
};

/// Sees each element of a list and each field of an object as soon as it is whole, and may take it:
/// it is left out of the document then. `path` has the key of each level from the root on, "" in a
/// list.
using TakeJson = std::function<bool(std::span<const std::string> path, const SortedJson& value)>;

/// The same as parse_json_text() for a text most of which `take` takes: the limit of memory holds
/// for the others.
SortedJson parse_json_parts(std::string_view text, std::string_view source, const TakeJson& take);

/// Throws Error that begins with `source` if the text exceeds the limits, is nested deeper than
/// kDeepestJson or would take too much memory, before any of it is parsed.
void check_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

/// Parses a whole text within the limits of check_json(). Throws Error that begins with `source`
/// and says at which byte, from 1, the text is not JSON; nothing of the text is in the message.
/// `Value`: SortedJson, or Json to keep the order of keys, of which an object has kMostFields.
template <typename Value = SortedJson>
Value parse_json_text(std::string_view text, std::string_view source, JsonLimits limits = {});

extern template SortedJson parse_json_text(std::string_view, std::string_view, JsonLimits);
extern template Json parse_json_text(std::string_view, std::string_view, JsonLimits);

/// Parses what the program wrote itself, or check_json() passed. Never throws for a text that is
/// not JSON: the value is discarded then (is_discarded()).
Json parse_own_json(std::string_view text);

}  // namespace ballast
