#include "text/jinja/expressions.h"

#include <algorithm>

#include "base/fail.h"
#include "base/parse_double.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

using Kind = Expression::Kind;

// Trees are walked by recursion, so their depth is bounded: real templates stay below 40.
constexpr int kDeepestTree = 300;
constexpr int kDeepestNesting = 60;

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  require(++parser_.nesting_ <= kDeepestNesting, "line {}: expressions nested more than {} deep",
          parser_.peek().line, kDeepestNesting);
}

const Lexeme& ExpressionParser::peek(std::size_t ahead) const {
  return lexemes_[std::min(at_ + ahead, lexemes_.size() - 1)];
}

Lexeme ExpressionParser::take() {
  Lexeme taken = peek();
  if (at_ + 1 < lexemes_.size()) ++at_;
  return taken;
}

bool ExpressionParser::accept_op(std::string_view op) {
  const bool found = peek().is_op(op);
  if (found) take();
  return found;
}

bool ExpressionParser::accept_name(std::string_view name) {
  const bool found = peek().is_name(name);
  if (found) take();
  return found;
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!accept_op(op)) unexpected(op);
}

std::string ExpressionParser::expect_name() {
  if (peek().kind != Lexeme::Kind::name) unexpected("a name");
  return take().text;
}

void ExpressionParser::unexpected(std::string_view expected) const {
  const Lexeme& found = peek();
  std::string what = found.text.substr(0, 60);
  if (what.empty()) what = "an opening tag";
  if (found.kind == Lexeme::Kind::end) what = "the end of the template";
  if (found.kind == Lexeme::Kind::close) what = "the end of the tag";
  fail("line {}: expected {}, found {}", found.line, expected, what);
}

void ExpressionParser::deepen(Expression& parent, const ExpressionPtr& child) const {
  if (!child) return;
  parent.depth = std::max(parent.depth, child->depth + 1);
  require(parent.depth <= kDeepestTree, "line {}: an expression of more than {} levels",
          parent.line, kDeepestTree);
}

ExpressionPtr ExpressionParser::make(Kind kind, std::string name,
                                     std::initializer_list<ExpressionPtr*> children) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = peek().line;
  expression->name = std::move(name);
  for (ExpressionPtr* child : children) {
    deepen(*expression, *child);
    expression->children.push_back(std::move(*child));
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_tuple(bool conditional) {
  const auto parse_item = [&] { return conditional ? parse_expression() : parse_or(); };
  ExpressionPtr first = parse_item();
  if (!peek().is_op(",")) return first;
  ExpressionPtr tuple = make(Kind::tuple, "", {&first});
  while (accept_op(",")) {
    if (peek().kind == Lexeme::Kind::close || peek().is_op(")")) break;
    ExpressionPtr item = parse_item();
    deepen(*tuple, item);
    tuple->children.push_back(std::move(item));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_expression() {
  const Nesting nesting(*this);
  ExpressionPtr result = parse_or();
  while (accept_name("if")) {
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = accept_name("else") ? parse_expression() : nullptr;
    result = make(Kind::conditional, "", {&condition, &result, &otherwise});
  }
  return result;
}

template <typename Operand>
ExpressionPtr ExpressionParser::parse_binary(std::initializer_list<std::string_view> operators,
                                             const Operand& operand) {
  ExpressionPtr left = operand();
  while (true) {
    const auto found = std::find_if(operators.begin(), operators.end(), [&](std::string_view op) {
      return peek().is_op(op) || peek().is_name(op);
    });
    if (found == operators.end()) return left;
    take();
    ExpressionPtr right = operand();
    left = make(Kind::binary, std::string(*found), {&left, &right});
  }
}

ExpressionPtr ExpressionParser::parse_or() {
  return parse_binary({"or"}, [&] { return parse_and(); });
}

ExpressionPtr ExpressionParser::parse_and() {
  return parse_binary({"and"}, [&] { return parse_not(); });
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!accept_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  ExpressionPtr operand = parse_not();
  return make(Kind::unary, "not", {&operand});
}

ExpressionPtr ExpressionParser::parse_comparison() {
  ExpressionPtr first = parse_sum();
  ExpressionPtr chain;
  while (true) {
    std::string op;
    for (std::string_view candidate : {"==", "!=", "<", "<=", ">", ">="}) {
      if (peek().is_op(candidate)) op = candidate;
    }
    if (peek().is_name("in")) op = "in";
    if (peek().is_name("not") && peek(1).is_name("in")) op = "not in";
    if (op.empty()) return chain ? std::move(chain) : std::move(first);
    take();
    if (op == "not in") take();
    if (!chain) chain = make(Kind::comparison, "", {&first});
    ExpressionPtr operand = parse_sum();
    deepen(*chain, operand);
    chain->children.push_back(std::move(operand));
    chain->operators.push_back(std::move(op));
  }
}

ExpressionPtr ExpressionParser::parse_sum() {
  return parse_binary({"+", "-"}, [&] { return parse_concatenation(); });
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  return parse_binary({"~"}, [&] { return parse_product(); });
}

ExpressionPtr ExpressionParser::parse_product() {
  return parse_binary({"*", "/", "//", "%"}, [&] { return parse_power(); });
}

ExpressionPtr ExpressionParser::parse_power() {
  return parse_binary({"**"}, [&] { return parse_unary(true); });
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr result;
  if (peek().is_op("-") || peek().is_op("+")) {
    const Nesting nesting(*this);
    const std::string op = take().text;
    ExpressionPtr operand = parse_unary(false);
    result = make(Kind::unary, op, {&operand});
  } else {
    result = parse_primary();
  }
  result = parse_postfix(std::move(result));
  return with_filters ? parse_filters(std::move(result)) : std::move(result);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Lexeme lexeme = take();
  ExpressionPtr result = make(Kind::literal, "", {});
  result->line = lexeme.line;
  switch (lexeme.kind) {
    case Lexeme::Kind::integer: {
      const std::optional<Value> value = parse_integer(lexeme.text, 0);
      require(value && value->integer(), "line {}: the integer {} is {}", lexeme.line,
              lexeme.text.substr(0, 60), value ? "too large" : "malformed");
      result->value = *value;
      return result;
    }
    case Lexeme::Kind::real: {
      double value = 0;
      const char* end = lexeme.text.data() + lexeme.text.size();
      const auto [stop, error] = parse_double(lexeme.text.data(), end, value);
      require(error == std::errc() && stop == end, "line {}: the number {} is out of range",
              lexeme.line, lexeme.text.substr(0, 60));
      result->value = value;
      return result;
    }
    case Lexeme::Kind::string: {
      std::string text = lexeme.text;
      while (peek().kind == Lexeme::Kind::string) text += take().text;
      result->value = std::move(text);
      return result;
    }
    case Lexeme::Kind::name: {
      const std::string& name = lexeme.text;
      if (name == "true" || name == "True") {
        result->value = true;
      } else if (name == "false" || name == "False") {
        result->value = false;
      } else if (name == "none" || name == "None") {
        result->value = None{};
      } else {
        result->kind = Kind::variable;
        result->name = name;
        if (name == "caller") special_.caller = true;
        if (name == "varargs") special_.varargs = true;
        if (name == "kwargs") special_.kwargs = true;
      }
      return result;
    }
    case Lexeme::Kind::op:
      if (lexeme.text == "[") return parse_list("]");
      if (lexeme.text == "{") return parse_dict();
      if (lexeme.text == "(") {
        if (accept_op(")")) return make(Kind::tuple, "", {});
        const Nesting nesting(*this);
        ExpressionPtr inner = parse_tuple();
        expect_op(")");
        return inner;
      }
      [[fallthrough]];
    default:
      fail("line {}: expected a value, found {}", lexeme.line,
           lexeme.text.empty() ? "the end of the tag" : lexeme.text.substr(0, 60));
  }
}

ExpressionPtr ExpressionParser::parse_list(std::string_view closing) {
  ExpressionPtr list = make(Kind::list, "", {});
  while (!accept_op(closing)) {
    if (!list->children.empty()) expect_op(",");
    if (accept_op(closing)) break;
    ExpressionPtr item = parse_expression();
    deepen(*list, item);
    list->children.push_back(std::move(item));
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  ExpressionPtr dict = make(Kind::dict, "", {});
  while (!accept_op("}")) {
    if (!dict->children.empty()) expect_op(",");
    if (accept_op("}")) break;
    ExpressionPtr key = parse_expression();
    expect_op(":");
    ExpressionPtr value = parse_expression();
    deepen(*dict, key);
    deepen(*dict, value);
    dict->children.push_back(std::move(key));
    dict->children.push_back(std::move(value));
  }
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr object) {
  while (true) {
    if (accept_op(".")) {
      if (peek().kind == Lexeme::Kind::integer) {
        ExpressionPtr index = parse_primary();
        object = make(Kind::item, "", {&object, &index});
      } else {
        const std::string name = expect_name();
        object = make(Kind::attribute, name, {&object});
      }
    } else if (accept_op("[")) {
      object = parse_index(std::move(object));
    } else if (accept_op("(")) {
      object = make(Kind::call, "", {&object});
      parse_arguments(*object);
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::parse_index(ExpressionPtr object) {
  ExpressionPtr parts[3];
  int colons = 0;
  while (!peek().is_op("]")) {
    if (accept_op(":")) {
      if (++colons > 2) unexpected("]");
    } else if (parts[colons]) {
      unexpected("]");
    } else {
      parts[colons] = parse_expression();
    }
  }
  expect_op("]");
  if (colons > 0) return make(Kind::slice, "", {&object, &parts[0], &parts[1], &parts[2]});
  if (!parts[0]) unexpected("an index");
  return make(Kind::item, "", {&object, &parts[0]});
}

// Behind "(", up to ")".
void ExpressionParser::parse_arguments(Expression& call) {
  for (bool first = true; !accept_op(")"); first = false) {
    if (!first) expect_op(",");
    if (accept_op(")")) return;
    if (accept_op("*")) {
      ExpressionPtr list = parse_expression();
      ExpressionPtr spread = make(Kind::spread, "", {&list});
      deepen(call, spread);
      call.children.push_back(std::move(spread));
    } else if (accept_op("**")) {
      ExpressionPtr value = parse_expression();
      deepen(call, value);
      call.named.emplace_back("", std::move(value));
    } else if (peek().kind == Lexeme::Kind::name && peek(1).is_op("=")) {
      std::string name = take().text;
      take();
      ExpressionPtr value = parse_expression();
      deepen(call, value);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      ExpressionPtr value = parse_expression();
      deepen(call, value);
      call.children.push_back(std::move(value));
    }
  }
}

ExpressionPtr ExpressionParser::parse_filter_of(ExpressionPtr input) {
  const std::string name = expect_name();
  input = make(Kind::filter, name, {&input});
  if (accept_op("(")) parse_arguments(*input);
  return input;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input) {
  while (true) {
    if (accept_op("|")) {
      input = parse_filter_of(std::move(input));
    } else if (accept_name("is")) {
      input = parse_test(std::move(input));
    } else if (accept_op("(")) {
      input = make(Kind::call, "", {&input});
      parse_arguments(*input);
    } else {
      return input;
    }
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const bool negated = accept_name("not");
  const std::string name = expect_name();
  ExpressionPtr test = make(Kind::test, name, {&input});
  if (accept_op("(")) {
    parse_arguments(*test);
  } else {
    const Lexeme& next = peek();
    const bool is_value = next.kind == Lexeme::Kind::string || next.kind == Lexeme::Kind::integer ||
                          next.kind == Lexeme::Kind::real || next.is_op("[") || next.is_op("{");
    const bool is_variable = next.kind == Lexeme::Kind::name && !next.is_name("else") &&
                             !next.is_name("or") && !next.is_name("and") && !next.is_name("is") &&
                             !next.is_name("if") && !next.is_name("in") && !next.is_name("not");
    if (is_value || is_variable) {
      const Nesting nesting(*this);
      ExpressionPtr argument = parse_postfix(parse_primary());
      deepen(*test, argument);
      test->children.push_back(std::move(argument));
    }
  }
  return negated ? make(Kind::unary, "not", {&test}) : std::move(test);
}

}  // namespace ballast::jinja
