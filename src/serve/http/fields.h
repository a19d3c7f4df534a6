// JSON that clients send: parsed within limits, and read field by field so that none is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "report/json.h"

namespace ballast::serve {

/// An object. Throws ApiError on a syntax error, on another type, and beyond the limits of
/// formats/json_text.h or a million values.
Json parse_object(std::string_view text);

/// The fields of an object. Each call throws ApiError that names the field, its value and what was
/// expected. null counts as not given.
class Fields {
 public:
  /// `where` precedes names of fields: "messages[2]."; empty at the top.
  explicit Fields(const Json& object, std::string where = "");

  /// The value, or nullptr.
  const Json* find(const char* name);
  std::optional<std::string> text(const char* name);
  // What must be there: any value, a text, a list, an object.
  const Json& value(const char* name);
  std::string needed(const char* name);
  const Json& list(const char* name);
  Fields inside(const char* name);
  /// One of these texts; `standard` where it is not given, which may be none of them.
  std::string one_of(const char* name, std::initializer_list<const char*> known,
                     const std::string& standard);
  bool flag(const char* name, bool standard);
  double number(const char* name, double low, double high, double standard);
  std::optional<std::uint64_t> count(const char* name, std::uint64_t low, std::uint64_t high);
  /// A field that is not supported unless it has this value, which changes nothing.
  void only(const char* name, const Json& harmless);
  /// Fields that never change an answer.
  void ignore(std::initializer_list<const char*> names);
  /// Refuses every field that no call has named.
  void end() const;

  std::string full(const std::string& name) const { return where_ + name; }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

/// Refuses a value that others support; `known`: what is supported here.
[[noreturn]] void unsupported(const std::string& place, const Json& value,
                              const std::string& known);

/// A line of JSON; bytes that are not UTF-8 are replaced.
std::string line(const Json& json);
/// A value for a message, in at most 60 characters.
std::string shown(const Json& value);
/// A part of a text for a message, as it stands, in at most 80 bytes; control characters escaped.
std::string shown_text(std::string_view text);

}  // namespace ballast::serve
