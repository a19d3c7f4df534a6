// Calls of functions in what a model writes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ballast::serve {

struct ToolCall {
  std::string name;
  std::string arguments;  ///< JSON
};

/// Takes calls out of an answer that comes in pieces. Two forms are calls: JSON between <tool_call>
/// and </tool_call> (Hermes, Qwen), and an answer that is one JSON object (Llama 3). The object has
/// "name", which is one of the functions that the model was given, and "arguments" or "parameters".
/// Everything else is text.
class ToolCallReader {
 public:
  explicit ToolCallReader(std::vector<std::string> functions) : functions_(std::move(functions)) {}

  /// The text that is certain not to be of a call. Appends to `calls` those that are whole.
  std::string push(std::string_view piece, std::vector<ToolCall>& calls);
  /// The same at the end of the answer.
  std::string finish(std::vector<ToolCall>& calls);

 private:
  bool add_call(std::string_view json, std::vector<ToolCall>& calls) const;

  std::vector<std::string> functions_;
  std::string held_;        ///< what may become a call, and spaces before it
  std::size_t spaces_ = 0;  ///< of held_: as many spaces begin it
  std::size_t open_ = 0;    ///< of held_: no tag that closes a call begins before
  bool begun_ = false;      ///< the answer is more than one JSON object
  bool called_ = false;
};

}  // namespace ballast::serve
