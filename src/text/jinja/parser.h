// Chat templates as trees.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ballast::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    literal,      ///< value
    variable,     ///< name
    list,         ///< children
    tuple,        ///< children
    dict,         ///< children: key, value, key, value
    unary,        ///< name: "not", "-", "+"
    binary,       ///< name: an operator, "and", "or", "in", "not in"
    comparison,   ///< children; operators between them, as in a < b < c
    conditional,  ///< children: condition, then, else (or null)
    attribute,    ///< children: object; name
    item,         ///< children: object, index
    slice,        ///< children: object, first, last, step (or null)
    call,         ///< children: function, arguments
    filter,       ///< children: input, arguments; name
    test,         ///< children: input, arguments; name
    spread,       ///< children: a list of arguments, as in f(*list)
    written       ///< the text of the block that the filters of `set` and `filter` are applied to
  };
  Kind kind = Kind::literal;
  int line = 0;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExpressionPtr>> named;  ///< f(name=value); "" of f(**dict)
};

struct Statement;
using Block = std::vector<Statement>;

/// What `set`, `for` and `with` assign to: a name or, if it is empty, a tuple of targets.
struct Target {
  std::string name;
  std::vector<Target> parts;
};

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  ///< null: undefined when it is not given
};

struct Statement {
  enum class Kind {
    text,        ///< name: the text
    print,       ///< value; a `filter` block has branches[0], whose text is filtered
    if_,         ///< branches: one for each condition; the last may have none
    for_,        ///< targets[0], value (a list), condition (or null); branches: body, else
    set,         ///< targets[0]; value, or branches[0] and the filters of its text, or null
    set_member,  ///< targets: namespace, member; value
    macro,       ///< name, parameters, branches[0]
    call,        ///< value: the call that is given the macro of parameters and branches[0]
    with,        ///< targets, values, branches[0]
    break_,
    continue_
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string name;
  std::vector<Target> targets;
  ExpressionPtr value;
  std::vector<ExpressionPtr> values;
  std::vector<ExpressionPtr> conditions;  ///< of if_ (the last may be null) and for_
  std::vector<Block> branches;
  std::vector<Parameter> parameters;
  bool recursive = false;  ///< of for_
  /// Whether a macro refers to the variables that Jinja gives it then.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

/// Throws Error that names the line and what is not supported.
Block parse(std::string_view source);

}  // namespace ballast::jinja
