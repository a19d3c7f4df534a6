// The forms in which models write calls of functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/json.h"

namespace ballast {

struct ToolCall {
  std::string name;
  std::string arguments;  ///< JSON, as the model wrote it where it wrote JSON
  std::string id = {};    ///< where the model wrote one
};

/// A function that a model may call.
struct Function {
  std::string name;
  Json parameters = {};  ///< a schema; null: not known
};

/// Reads calls that are whole; see ToolCallReader for the forms. Each function appends to `calls`
/// if the text is of its form and names functions that the model was given, and says whether it is.
class CallForms {
 public:
  explicit CallForms(std::vector<Function> functions) : functions_(std::move(functions)) {}

  const std::vector<Function>& functions() const { return functions_; }
  /// Null: the model was not given it.
  const Function* find(std::string_view name) const;

  /// Adds the calls in `text`, which a model wrote within <tool_call> tags. False: it has none.
  bool add_call(std::string_view text, std::vector<ToolCall>& calls) const;
  /// <function=NAME> to </function>.
  bool add_xml(std::string_view xml, std::vector<ToolCall>& calls) const;
  /// Calls behind a mark, or at the beginning of the answer; `rest`: what follows them.
  bool add_marked(std::string_view text, std::vector<ToolCall>& calls,
                  std::string_view& rest) const;
  /// Whether an answer that begins so may be a call without <tool_call>.
  bool may_be_bare(std::string_view text) const;

 private:
  bool add_json(std::string_view json, std::vector<ToolCall>& calls) const;
  bool add_array(std::string_view json, std::vector<ToolCall>& calls) const;
  bool add_pairs(std::string_view text, std::vector<ToolCall>& calls) const;
  /// Calls that are written like code; takes them from `text`.
  bool add_code(std::string_view& text, std::vector<ToolCall>& calls) const;
  bool may_be_code(std::string_view text) const;

  std::vector<Function> functions_;
};

}  // namespace ballast
