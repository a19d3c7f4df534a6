#include "text/jinja/parser.h"

#include "base/fail.h"
#include "text/jinja/expressions.h"
#include "text/jinja/lexer.h"

namespace ballast::jinja {
namespace {

using Kind = Statement::Kind;

constexpr int kDeepestBlocks = 60;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(cut_into_lexemes(source)) {}

  Block run() {
    Block block = parse_block({});
    if (peek().kind != Lexeme::Kind::end) unexpected("the end of the template");
    return block;
  }

 private:
  // Up to a tag whose name is in `ends`; its name is still to be taken.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    Block block;
    while (peek().kind != Lexeme::Kind::end) {
      const Lexeme lexeme = take();
      if (lexeme.kind == Lexeme::Kind::text) {
        block.push_back(make(Kind::text, lexeme));
        block.back().name = lexeme.text;
      } else if (lexeme.kind == Lexeme::Kind::print) {
        block.push_back(make(Kind::print, lexeme));
        block.back().value = parse_tuple();
        expect_close();
      } else {
        for (std::string_view end : ends) {
          if (peek().is_name(end)) return block;
        }
        block.push_back(parse_statement());
      }
    }
    if (ends.size() > 0) unexpected(*(ends.end() - 1));
    return block;
  }

  // The body of a statement, with its end tag.
  Block parse_body(std::string_view end) {
    expect_close();
    Block body = parse_block({end});
    take();
    expect_close();
    return body;
  }

  static Statement make(Kind kind, const Lexeme& lexeme) {
    Statement statement;
    statement.kind = kind;
    statement.line = lexeme.line;
    return statement;
  }

  void expect_close() {
    if (peek().kind != Lexeme::Kind::close) unexpected("the end of the tag");
    take();
  }

  Statement parse_statement() {
    require(++depth_ <= kDeepestBlocks, "line {}: blocks nested more than {} deep", peek().line,
            kDeepestBlocks);
    const Lexeme tag = peek();
    expect_name();
    Statement statement = parse_tag(tag);
    --depth_;
    return statement;
  }

  Statement parse_tag(const Lexeme& tag) {
    if (tag.text == "if") return parse_if(tag);
    if (tag.text == "for") return parse_for(tag);
    if (tag.text == "set") return parse_set(tag);
    if (tag.text == "macro") return parse_macro(tag);
    if (tag.text == "with") return parse_with(tag);
    if (tag.text == "call") return parse_call(tag);
    if (tag.text == "filter") return parse_filter_block(tag);
    if (tag.text == "generation") {  // marks the model's own words, for training
      Statement statement = make(Kind::with, tag);
      statement.branches.push_back(parse_body("endgeneration"));
      return statement;
    }
    if (tag.text == "break" || tag.text == "continue") {
      require(loops_ > 0, "line {}: '{}' outside a loop", tag.line, tag.text);
      expect_close();
      return make(tag.text == "break" ? Kind::break_ : Kind::continue_, tag);
    }
    fail(ErrorCode::unsupported, "line {}: the tag '{}' is not supported", tag.line,
         tag.text.substr(0, 60));
  }

  Statement parse_if(const Lexeme& tag) {
    Statement statement = make(Kind::if_, tag);
    statement.conditions.push_back(parse_tuple());
    while (true) {
      expect_close();
      statement.branches.push_back(parse_block({"elif", "else", "endif"}));
      const std::string next = take().text;
      if (next == "endif") break;
      const bool has_else = !statement.conditions.back();
      require(!has_else, "line {}: '{}' after 'else'", peek().line, next);
      statement.conditions.push_back(next == "elif" ? parse_tuple() : nullptr);
    }
    expect_close();
    return statement;
  }

  Statement parse_for(const Lexeme& tag) {
    Statement statement = make(Kind::for_, tag);
    statement.targets.push_back(parse_target());
    if (!accept_name("in")) unexpected("in");
    statement.value = parse_tuple(false);
    statement.conditions.push_back(accept_name("if") ? parse_expression() : nullptr);
    statement.recursive = accept_name("recursive");
    expect_close();
    ++loops_;
    statement.branches.push_back(parse_block({"else", "endfor"}));
    --loops_;
    if (accept_name("else")) {
      statement.branches.push_back(parse_body("endfor"));
    } else {
      take();
      expect_close();
    }
    return statement;
  }

  // "a", "a, b" or "(a, b), c".
  Target parse_target() {
    const auto parse_item = [&] {
      if (!accept_op("(")) return Target{expect_name(), {}};
      const Nesting nesting(*this);
      Target inner = parse_target();
      expect_op(")");
      return inner;
    };
    Target first = parse_item();
    if (!peek().is_op(",")) return first;
    Target tuple{"", {}};
    tuple.parts.push_back(std::move(first));
    while (accept_op(",")) {
      if (peek().is_op("=") || peek().is_op(")") || peek().is_name("in")) break;
      tuple.parts.push_back(parse_item());
    }
    return tuple;
  }

  Statement parse_set(const Lexeme& tag) {
    Statement statement = make(Kind::set, tag);
    statement.targets.push_back(parse_target());
    const bool is_name = !statement.targets[0].name.empty();
    if (is_name && accept_op(".")) {
      statement.kind = Kind::set_member;
      statement.targets.push_back({expect_name(), {}});
    }
    if (accept_op("=")) {
      statement.value = parse_tuple();
      expect_close();
    } else {
      require(statement.kind == Kind::set && is_name, "line {}: a 'set' block sets one name",
              tag.line);
      if (accept_op("|")) statement.value = parse_filters(parse_filter_of(written()));
      statement.branches.push_back(parse_body("endset"));
    }
    return statement;
  }

  ExpressionPtr written() const {
    return ExpressionParser::make(Expression::Kind::written, "", {});
  }

  Statement parse_filter_block(const Lexeme& tag) {
    Statement statement = make(Kind::print, tag);
    statement.value = parse_filters(parse_filter_of(written()));
    statement.branches.push_back(parse_body("endfilter"));
    return statement;
  }

  Statement parse_with(const Lexeme& tag) {
    Statement statement = make(Kind::with, tag);
    while (peek().kind != Lexeme::Kind::close) {
      if (!statement.targets.empty()) expect_op(",");
      statement.targets.push_back(parse_target());
      expect_op("=");
      statement.values.push_back(parse_expression());
    }
    statement.branches.push_back(parse_body("endwith"));
    return statement;
  }

  Statement parse_call(const Lexeme& tag) {
    Statement statement = make(Kind::call, tag);
    statement.name = "caller";
    if (accept_op("(")) parse_parameters(statement);
    statement.value = parse_expression();
    require(statement.value->kind == Expression::Kind::call, "line {}: 'call' needs a call",
            tag.line);
    parse_macro_body(statement, "endcall");
    return statement;
  }

  Statement parse_macro(const Lexeme& tag) {
    Statement statement = make(Kind::macro, tag);
    statement.name = expect_name();
    expect_op("(");
    parse_parameters(statement);
    parse_macro_body(statement, "endmacro");
    return statement;
  }

  // Behind "(", up to ")".
  void parse_parameters(Statement& statement) {
    for (bool first = true; !accept_op(")"); first = false) {
      if (!first) expect_op(",");
      Parameter parameter{expect_name(), nullptr};
      if (accept_op("=")) parameter.otherwise = parse_expression();
      statement.parameters.push_back(std::move(parameter));
    }
  }

  void parse_macro_body(Statement& statement, std::string_view end) {
    const SpecialNames outer = std::exchange(special_, {});
    const int loops = std::exchange(loops_, 0);
    statement.branches.push_back(parse_body(end));
    loops_ = loops;
    statement.uses_caller = special_.caller;
    statement.uses_varargs = special_.varargs;
    statement.uses_kwargs = special_.kwargs;
    special_ = {outer.caller || special_.caller, outer.varargs || special_.varargs,
                outer.kwargs || special_.kwargs};
  }

  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Block parse(std::string_view source) { return Parser(source).run(); }

}  // namespace ballast::jinja
