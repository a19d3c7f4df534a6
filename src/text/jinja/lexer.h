// Chat templates, cut into tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ballast::jinja {

struct Lexeme {
  enum class Kind {
    text,   ///< to be written as it is
    print,  ///< {{
    block,  ///< {%
    close,  ///< }} or %}
    name,
    string,
    integer,
    real,
    op,  ///< one of the operators and brackets
    end
  };
  Kind kind = Kind::end;
  std::string text;
  int line = 0;

  bool is_op(std::string_view op) const { return kind == Kind::op && text == op; }
  bool is_name(std::string_view name) const { return kind == Kind::name && text == name; }
};

/// With Hugging Face's settings: a line end after a block is dropped, and so is the space before a
/// block that begins a line. The last lexeme is of kind end. Throws Error that names the line.
std::vector<Lexeme> cut_into_lexemes(std::string_view source);

}  // namespace ballast::jinja
