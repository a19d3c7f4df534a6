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
    if (tag.text == "generation") {  // marks the model's own words, for training
      Statement statement = make(Kind::scope, tag);
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
    do {
      statement.targets.push_back(expect_name());
    } while (accept_op(","));
    if (!accept_name("in")) unexpected("in");
    statement.value = parse_or();
    statement.conditions.push_back(accept_name("if") ? parse_expression() : nullptr);
    require(!peek().is_name("recursive"), ErrorCode::unsupported,
            "line {}: recursive loops are not supported", tag.line);
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

  Statement parse_set(const Lexeme& tag) {
    Statement statement = make(Kind::set, tag);
    statement.targets.push_back(expect_name());
    if (accept_op(".")) {
      statement.kind = Kind::set_member;
      statement.targets.push_back(expect_name());
    } else {
      while (accept_op(",")) statement.targets.push_back(expect_name());
    }
    if (accept_op("=")) {
      statement.value = parse_tuple();
      expect_close();
    } else {
      require(statement.kind == Kind::set && statement.targets.size() == 1,
              "line {}: a 'set' block sets one name", tag.line);
      statement.branches.push_back(parse_body("endset"));
    }
    return statement;
  }

  Statement parse_macro(const Lexeme& tag) {
    Statement statement = make(Kind::macro, tag);
    statement.name = expect_name();
    expect_op("(");
    for (bool first = true; !accept_op(")"); first = false) {
      if (!first) expect_op(",");
      Parameter parameter{expect_name(), nullptr};
      if (accept_op("=")) parameter.otherwise = parse_expression();
      statement.parameters.push_back(std::move(parameter));
    }
    const int loops = std::exchange(loops_, 0);
    statement.branches.push_back(parse_body("endmacro"));
    loops_ = loops;
    return statement;
  }

  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Block parse(std::string_view source) { return Parser(source).run(); }

}  // namespace ballast::jinja
