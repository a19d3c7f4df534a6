// Parsing expressions of chat templates.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace ballast::jinja {

/// A place in a template, and the expressions that may stand there.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Lexeme> lexemes) : lexemes_(std::move(lexemes)) {}

 protected:
  const Lexeme& peek(std::size_t ahead = 0) const;
  Lexeme take();
  bool accept_op(std::string_view op);
  bool accept_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name();
  [[noreturn]] void unexpected(std::string_view expected) const;

  /// Bounds the recursion of the parser.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }

   private:
    ExpressionParser& parser_;
  };

  ExpressionPtr parse_expression();
  /// "a, b" is a tuple. `conditional`: whether "a if b else c" may stand in it.
  ExpressionPtr parse_tuple(bool conditional = true);
  /// Filters, tests and calls behind an input.
  ExpressionPtr parse_filters(ExpressionPtr input);
  /// The first filter stands without its '|'.
  ExpressionPtr parse_filter_of(ExpressionPtr input);
  ExpressionPtr make(Expression::Kind kind, std::string name,
                     std::initializer_list<ExpressionPtr*> children) const;

  /// The names that have been seen as variables and mean something special in macros.
  struct SpecialNames {
    bool caller = false, varargs = false, kwargs = false;
  } special_;

 private:
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list(std::string_view closing);
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr object);
  ExpressionPtr parse_index(ExpressionPtr object);
  ExpressionPtr parse_test(ExpressionPtr input);
  void parse_arguments(Expression& call);
  template <typename Operand>
  ExpressionPtr parse_binary(std::initializer_list<std::string_view> operators,
                             const Operand& operand);
  void deepen(Expression& parent, const ExpressionPtr& child) const;

  std::vector<Lexeme> lexemes_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace ballast::jinja
