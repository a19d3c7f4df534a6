// The tags that models write before and after a call of a tool, and functions that find them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ballast::calls {

inline constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>",
                                  kSpace = " \t\r\n";
inline constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>",
                                  kParameter = "<parameter=", kParameterEnd = "</parameter>";

/// Before and behind calls of other forms.
inline constexpr std::string_view kMarkOpen[] = {"<|tool_call_start|>", "<|tool_call>",
                                                 "<start_function_call>", "[TOOL_CALLS]"};
inline constexpr std::string_view kMarkClose[] = {"<|tool_call_end|>", "<tool_call|>",
                                                  "<end_function_call>"};

/// Characters before the spaces at the end of text[0, end).
std::size_t without_spaces(std::string_view text, std::size_t end);
std::string_view trimmed(std::string_view text);
/// The text without the few blanks that it begins with: many are no part of a call.
std::string_view without_blanks(std::string_view text);
/// Removes the few marks that a text begins with; whether there was one.
bool take_marks(std::string_view& text, std::span<const std::string_view> marks);
/// Whether an answer may be an object, or an array of objects.
bool may_be_json(std::string_view text);

/// The end of an object or array that a text begins with, which may come in pieces.
struct JsonEnd {
  std::size_t at = 0;  ///< bytes looked at; then the place behind the end
  bool in_string = false, escaped = false;
  int depth = 0;

  /// Whether it has ended. `text`: as before, or more of it.
  bool find(std::string_view text);
};

}  // namespace ballast::calls
