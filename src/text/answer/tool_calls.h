// Calls of functions in what a model writes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answer/call_forms.h"
#include "text/answer/call_tags.h"

namespace ballast {

/// Takes calls out of an answer that comes in pieces. Between <tool_call> and </tool_call> these
/// are calls: JSON (Hermes, Qwen), <function=NAME> with <parameter=NAME> (Qwen3-Coder, without
/// <tool_call> too), and NAME with <arg_key> and <arg_value> (GLM). Behind a mark such as
/// [TOOL_CALLS], or where the answer begins so without one, these are: a JSON object (Llama 3), an
/// array of them (Mistral), [NAME(KEY=VALUE, ...)] (Llama 3.2, LFM2), NAME{...}, NAME[ARGS]{...} or
/// NAME[CALL_ID]ID[ARGS]{...} (later Mistral), and call:NAME{...} (Gemma). JSON has "name", which
/// is one of the functions that the model was given, and "arguments" or "parameters": an object, a
/// text, null, or nothing. A closing tag within a string of the JSON closes nothing. Everything
/// else is text.
class ToolCallReader {
 public:
  /// Marks that some vocabularies have as tokens that are not shown.
  static constexpr std::string_view kMarks[] = {
      "<tool_call>",  "</tool_call>",          "[TOOL_CALLS]",        "[CALL_ID]",
      "[ARGS]",       "<|tool_call_start|>",   "<|tool_call_end|>",   "<|tool_call>",
      "<tool_call|>", "<start_function_call>", "<end_function_call>", "<escape>",
      "<|\"|>"};

  explicit ToolCallReader(std::vector<Function> functions) : forms_(std::move(functions)) {}

  /// The text that is certain not to be of a call. Appends to `calls` those that are whole.
  std::string push(std::string_view piece, std::vector<ToolCall>& calls);
  /// The same at the end of the answer.
  std::string finish(std::vector<ToolCall>& calls);

 private:
  /// Where the call in `text`, which follows an opening tag, is closed. `depth` is of JSON that may
  /// go on to the end of the answer.
  struct Body : calls::JsonEnd {
    enum class Kind { unknown, json, xml, other } kind = Kind::unknown;
    std::size_t first = std::string::npos;  ///< the first closing tag, in a string or not
  };
  struct Reading;
  enum class Closed { yes, not_yet, never };
  /// `closed`: its place, if yes.
  static Closed find_close(std::string_view text, Body& body, std::size_t& closed);
  /// The same of <function=NAME>, which `text` begins with; `closed`: the place behind its end.
  Closed find_function_end(std::string_view text, Body& body, std::size_t& closed) const;
  /// Whether the JSON that `text` begins with has ended, and other text follows it.
  static bool goes_on(std::string_view text, Body& body);
  std::string read(std::vector<ToolCall>& calls, bool ends);
  /// Takes or lets through what the text begins with. False: the rest is held until more has come.
  bool step(Reading& r, std::vector<ToolCall>& calls, bool ends);
  bool take_function(Reading& r, std::vector<ToolCall>& calls, bool ends);
  bool take_marked(Reading& r, std::vector<ToolCall>& calls, bool ends);
  bool take_tagged(Reading& r, std::vector<ToolCall>& calls, bool ends);
  void let_through(Reading& r, std::size_t count);

  CallForms forms_;
  std::string held_;        ///< what may become a call, and spaces before it
  std::size_t spaces_ = 0;  ///< of held_: as many spaces begin it
  Body body_;               ///< of the call that held_ begins with
  bool begun_ = false;      ///< the answer is more than JSON
  bool called_ = false, said_ = false;
  bool bare_ = false;  ///< the last thing was a call without <tool_call>
};

}  // namespace ballast
