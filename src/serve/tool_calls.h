// Calls of functions in what a model writes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/json.h"

namespace ballast::serve {

struct ToolCall {
  std::string name;
  std::string arguments;  ///< JSON, as the model wrote it where it wrote JSON
};

/// A function that a model may call.
struct Function {
  std::string name;
  Json parameters = {};  ///< a schema; null: not known
};

/// Takes calls out of an answer that comes in pieces. Between <tool_call> and </tool_call> these
/// are calls: JSON (Hermes, Qwen), <function=NAME> with <parameter=NAME> (Qwen3-Coder), and NAME
/// with <arg_key> and <arg_value> (GLM). So is an answer that is one JSON object (Llama 3) or an
/// array of them (Mistral), or that begins with [NAME(KEY=VALUE, ...)] (Llama 3.2, LFM2), NAME{...}
/// (later Mistral) or call:NAME{...} (Gemma). JSON has "name", which is one of the functions that
/// the model was given, and "arguments" or "parameters": an object, a text, null, or nothing. A
/// closing tag within a string of the JSON closes nothing. Everything else is text.
class ToolCallReader {
 public:
  explicit ToolCallReader(std::vector<Function> functions) : functions_(std::move(functions)) {}

  /// The text that is certain not to be of a call. Appends to `calls` those that are whole.
  std::string push(std::string_view piece, std::vector<ToolCall>& calls);
  /// The same at the end of the answer.
  std::string finish(std::vector<ToolCall>& calls);

 private:
  /// Where the call in `text`, which follows an opening tag, is closed.
  struct Body {
    enum class Kind { unknown, json, xml, other } kind = Kind::unknown;
    std::size_t at = 0;                     ///< bytes looked at
    std::size_t first = std::string::npos;  ///< the first closing tag, in a string or not
    bool in_string = false, escaped = false;
  };
  enum class Closed { yes, not_yet, never };
  /// `closed`: its place, if yes.
  static Closed find_close(std::string_view text, Body& body, std::size_t& closed);
  std::string read(std::vector<ToolCall>& calls, bool ends);
  bool add_call(std::string_view text, std::vector<ToolCall>& calls) const;
  bool add_json(std::string_view json, std::vector<ToolCall>& calls) const;
  /// Calls that are written like code; `rest`: what follows them.
  bool add_code(std::string_view text, std::vector<ToolCall>& calls, std::string_view& rest) const;
  /// Whether an answer that begins so may be a call without <tool_call>.
  bool may_be_bare(std::string_view text) const;
  bool may_be_code(std::string_view text) const;
  bool add_array(std::string_view json, std::vector<ToolCall>& calls) const;
  bool add_pairs(std::string_view text, std::vector<ToolCall>& calls) const;
  bool add_xml(std::string_view xml, std::vector<ToolCall>& calls) const;
  const Function* find(std::string_view name) const;

  std::vector<Function> functions_;
  std::string held_;        ///< what may become a call, and spaces before it
  std::size_t spaces_ = 0;  ///< of held_: as many spaces begin it
  Body body_;               ///< of the call that held_ begins with
  bool begun_ = false;      ///< the answer is more than JSON
  bool called_ = false;
};

}  // namespace ballast::serve
