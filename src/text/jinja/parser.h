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
    list,         ///< children; tuples too
    dict,         ///< children: key, value, key, value
    unary,        ///< name: "not", "-", "+"
    binary,       ///< name: an operator, "and", "or", "in", "not in"
    conditional,  ///< children: condition, then, else (or null)
    attribute,    ///< children: object; name
    item,         ///< children: object, index
    slice,        ///< children: object, first, last, step (or null)
    call,         ///< children: function, arguments
    filter,       ///< children: input, arguments; name
    test          ///< children: input, arguments; name
  };
  Kind kind = Kind::literal;
  int line = 0;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> named;  ///< keyword arguments
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  ///< null: undefined when it is not given
};

struct Statement {
  enum class Kind {
    text,        ///< name: the text
    print,       ///< value
    if_,         ///< branches: one for each condition; the last may have none
    for_,        ///< targets, value (a list), condition (or null); branches: body, else
    set,         ///< targets, value; without a value: what branches[0] writes
    set_member,  ///< targets: namespace, member; value
    macro,       ///< name, parameters, branches[0]
    scope,       ///< branches[0]
    break_,
    continue_
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string name;
  std::vector<std::string> targets;
  ExpressionPtr value;
  std::vector<ExpressionPtr> conditions;  ///< of if_ (the last may be null) and for_
  std::vector<Block> branches;
  std::vector<Parameter> parameters;
};

/// Throws Error that names the line and what is not supported.
Block parse(std::string_view source);

}  // namespace ballast::jinja
