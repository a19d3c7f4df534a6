#include "text/jinja/interpreter.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <unordered_map>

#include "base/fail.h"
#include "base/keyed_hash.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

// Trees are walked and macros called by recursion; this bounds the stack.
constexpr int kDeepestRecursion = 1000;
constexpr std::int64_t kLongestRange = 100'000;

// An error whose message already names the line.
class LineError : public Error {
 public:
  using Error::Error;
};

class Interpreter {
 public:
  Interpreter(const Dict& variables) : scope_(std::make_shared<Scope>()) {
    add_globals();
    for (const auto& [name, value] : variables.items) scope_->names[*name.string()] = value;
    scope_ = std::make_shared<Scope>(Scope{{}, scope_, false});
  }
  // A macro refers to the scope that holds it.
  ~Interpreter() {
    for (const ScopePtr& scope : closed_over_) scope->names.clear();
  }

  std::string run(const Block& block) {
    execute(block);
    return std::move(out_);
  }

 private:
  enum class Flow { normal, break_, continue_ };
  struct Scope;
  using ScopePtr = std::shared_ptr<Scope>;
  struct Scope {
    std::unordered_map<std::string, Value, KeyedHash> names;
    ScopePtr outer;
    bool is_kept = false;  ///< until the end, as a function refers to it or to one within it
  };

  // Counts how deep the recursion is.
  class Level {
   public:
    explicit Level(int& level) : level_(level) {
      require(level_ < kDeepestRecursion, "the template nests or recurs more than {} deep",
              kDeepestRecursion);
      ++level_;
    }
    ~Level() { --level_; }

   private:
    int& level_;
  };

  // A new scope within `outer`, which is the current one until the end.
  class NewScope {
   public:
    explicit NewScope(Interpreter& in) : NewScope(in, in.scope_) {}
    NewScope(Interpreter& in, const ScopePtr& outer) : in_(in), before_(in.scope_) {
      spend(16);
      in_.scope_ = std::make_shared<Scope>(Scope{{}, outer, false});
    }
    ~NewScope() { in_.scope_ = before_; }

   private:
    Interpreter& in_;
    ScopePtr before_;
  };

  void add_globals() {
    auto& globals = scope_->names;
    globals["range"] = Function([this](const Arguments& a) { return range(a); });
    globals["namespace"] = Function([this](const Arguments& a) { return dict(a, true); });
    globals["dict"] = Function([this](const Arguments& a) { return dict(a, false); });
    globals["joiner"] = Function([this](const Arguments& a) -> Value {
      spend(64);
      const Value between = a.get(0, "sep", ", ");
      const auto used = std::make_shared<bool>(false);
      return {Function([between, used](const Arguments&) {
                return std::exchange(*used, true) ? between : Value("");
              }),
              between};
    });
    globals["raise_exception"] = Function([this](const Arguments& a) -> Value {
      std::string message = to_text(a.get(0, "message"));
      for (char& c : message) c = c == '\n' ? ' ' : c;
      fail("the template refuses: {}", first_characters(message, 500));
    });
    globals["strftime_now"] = Function([this](const Arguments& a) -> Value {
      const std::string format = to_text(a.get(0, "format"));
      require(format.size() <= 64, "strftime_now: a format of {} bytes", format.size());
      spend(64 + 64 * format.size());
      const std::time_t now = std::time(nullptr);
      std::tm local{};
      localtime_r(&now, &local);
      std::array<char, 4096> text{};
      const std::size_t size = std::strftime(text.data(), text.size(), format.c_str(), &local);
      spend(size);
      return std::string(text.data(), size);
    });
  }

  Value range(const Arguments& arguments) {
    std::int64_t numbers[3] = {0, 0, 1};  // first, last, step
    const std::size_t count = arguments.positional.size();
    require(count >= 1 && count <= 3, "range: {} arguments; expected 1 to 3", count);
    for (std::size_t i = 0; i < count; ++i) {
      const Value& value = arguments.positional[i];
      require(value.whole().has_value(), "range of {}; expected integers", value.type_name());
      numbers[count == 1 ? 1 : i] = clamp_to_64(*value.whole());
    }
    const auto [first, last, step] = numbers;
    require(step != 0, "range with step 0");
    List list;
    for (std::int64_t i = first; step > 0 ? i < last : i > last;) {
      require(list.size() < kLongestRange, "range of more than {} numbers", kLongestRange);
      spend(16);
      list.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return list;
  }

  Value dict(const Arguments& arguments, bool is_namespace) {
    Dict out;
    const Value given = arguments.get(0, "", List{});
    if (given.dict() && !given.name_space()) {
      spend(32 * given.dict()->items.size());
      out.items = given.dict()->items;
    } else {
      for (const Value& pair : items_of(given)) {
        const Items parts = items_of(pair);
        require(parts.size() == 2, "dict: an item of {} parts; expected pairs", parts.size());
        out.set(parts[0], parts[1]);
      }
    }
    out.is_namespace = is_namespace;
    for (const auto& [name, value] : arguments.named) out.set(name, value);
    return out;
  }

  // Statements ------------------------------------------------------------------------------

  Flow execute(const Block& block) {
    for (const Statement& statement : block) {
      Flow flow;
      try {
        flow = execute(statement);
      } catch (const LineError&) {
        throw;
      } catch (const Error& e) {
        throw LineError(e.code(), fmt::format("line {}: {}", statement.line, e.what()));
      }
      if (flow != Flow::normal) return flow;
    }
    return Flow::normal;
  }

  Flow execute(const Statement& statement) {
    const Level level(level_);
    spend(1);
    switch (statement.kind) {
      case Statement::Kind::text:
        write(statement.name);
        break;
      case Statement::Kind::print:
        write(to_text(filtered(statement)));
        break;
      case Statement::Kind::if_:
        return execute_if(statement);
      case Statement::Kind::for_:
        execute_for(statement, evaluate(*statement.value), 0);
        break;
      case Statement::Kind::set:
        assign(statement.targets[0], filtered(statement));
        break;
      case Statement::Kind::set_member:
        execute_set_member(statement);
        break;
      case Statement::Kind::macro:
        variable(statement.name) = macro_of(statement);
        break;
      case Statement::Kind::call:
        write(to_text(call(*statement.value, {{"caller", macro_of(statement)}})));
        break;
      case Statement::Kind::with:
        return execute_with(statement);
      case Statement::Kind::break_:
        return Flow::break_;
      case Statement::Kind::continue_:
        return Flow::continue_;
    }
    return Flow::normal;
  }

  void write(std::string_view text) {
    spend(text.size());
    out_ += text;
  }

  // What a block writes, in a scope of its own.
  std::string capture(const Block& block) {
    const NewScope scope(*this);
    std::string outer = std::exchange(out_, "");
    execute(block);
    return std::exchange(out_, std::move(outer));
  }

  // The value of a statement or, if it has a block, the text of that, with the statement's filters.
  Value filtered(const Statement& statement) {
    if (statement.branches.empty()) return evaluate(*statement.value);
    const Value text = capture(statement.branches[0]);
    if (!statement.value) return text;
    const Value outer = std::exchange(written_, text);
    Value result = evaluate(*statement.value);
    written_ = outer;
    return result;
  }

  Flow execute_if(const Statement& statement) {
    for (std::size_t i = 0; i < statement.branches.size(); ++i) {
      const auto& condition = statement.conditions[i];
      if (!condition || evaluate(*condition).truth()) return execute(statement.branches[i]);
    }
    return Flow::normal;
  }

  // The variable of this name in the current scope, new if there is none.
  Value& variable(const std::string& name) {
    const auto [found, is_new] = scope_->names.try_emplace(name);
    spend((is_new ? 16 : 4) + name.size() / 4);
    if (is_new && scope_->is_kept) spend_on_kept(name);
    return found->second;
  }

  // The memory of names is not counted, so that those that stay until the end cost steps for it.
  void spend_on_kept(const std::string& name) { spend(64 + name.size()); }

  void assign(const Target& target, const Value& value) {
    if (!target.name.empty()) {
      variable(target.name) = value;
      return;
    }
    const Items parts = items_of(value);
    require(parts.size() == target.parts.size(), "{} values for {} names", parts.size(),
            target.parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], parts[i]);
  }

  void execute_for(const Statement& statement, const Value& value, std::int64_t depth) {
    Items items = items_of(value);
    if (const auto& condition = statement.conditions[0]) {
      const NewScope scope(*this);
      List chosen;
      for (const Value& item : items) {
        assign(statement.targets[0], item);
        if (evaluate(*condition).truth()) chosen.push_back(item);
      }
      items = Items(std::move(chosen));
    }
    if (items.empty()) {
      if (statement.branches.size() < 2) return;
      const NewScope scope(*this);
      execute(statement.branches[1]);
      return;
    }
    const auto last = std::make_shared<Value>();
    Dict loop;
    loop.items = {{"depth", depth + 1}, {"depth0", depth}, {"changed", changed_function(last)}};
    if (statement.recursive) {
      close_over(scope_);
      loop.call = [this, &statement, depth, outer = scope_](const Arguments& arguments) -> Value {
        const NewScope scope(*this, outer);
        std::string before = std::exchange(out_, "");
        execute_for(statement, arguments.get(0, "iterable"), depth + 1);
        return std::exchange(out_, std::move(before));
      };
    }
    const NewScope scope(*this);
    for (std::size_t i = 0; i < items.size(); ++i) {
      scope_->names.clear();
      scope_->names["loop"] = loop_variable(loop, items, i);
      assign(statement.targets[0], items[i]);
      if (execute(statement.branches[0]) == Flow::break_) break;
    }
  }

  // loop.changed(…): whether the arguments differ from those of the last call, which live as long
  // as the loop: they may contain this function.
  Value changed_function(const std::weak_ptr<Value>& of_last) {
    return Function([this, of_last](const Arguments& arguments) -> Value {
      const auto last = of_last.lock();
      require(last != nullptr, "loop.changed after its loop");
      const Value now = arguments.positional;
      const bool same = equal(*last, now);
      *last = now;
      return !same;
    });
  }

  Value loop_variable(const Dict& common, const Items& items, std::size_t i) {
    const auto index = static_cast<std::int64_t>(i);
    const auto size = static_cast<std::int64_t>(items.size());
    spend(48);
    Dict loop = common;
    const std::array<Value, 10> values = {index,
                                          index + 1,
                                          size - index - 1,
                                          size - index,
                                          index == 0,
                                          index + 1 == size,
                                          size,
                                          i > 0 ? items[i - 1] : Value(),
                                          index + 1 < size ? items[i + 1] : Value(),
                                          Function([i](const Arguments& a) -> Value {
                                            require(!a.positional.empty(),
                                                    "loop.cycle needs arguments");
                                            return a.positional[i % a.positional.size()];
                                          })};
    for (std::size_t k = 0; k < values.size(); ++k) {
      loop.items.emplace_back(loop_names_[k], values[k]);
    }
    return loop;
  }

  void execute_set_member(const Statement& statement) {
    const Value value = evaluate(*statement.value);
    // Through a list, so that the same bound on nesting holds.
    const Value bounded(List{value});
    const Value target = find(statement.targets[0].name);
    require(target.name_space() != nullptr, "'{}' is {}; only a namespace has members to set",
            statement.targets[0].name, target.type_name());
    require(!value.has_namespace(), "a namespace cannot be nested in a namespace");
    target.name_space()->set(statement.targets[1].name, value);
  }

  Flow execute_with(const Statement& statement) {
    List values;
    for (const auto& value : statement.values) values.push_back(evaluate(*value));
    const NewScope scope(*this);
    for (std::size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
    return execute(statement.branches[0]);
  }

  // Keeps a scope that a function refers to until the end.
  void close_over(const ScopePtr& scope) {
    spend(64);
    for (Scope* kept = scope.get(); kept && !kept->is_kept; kept = kept->outer.get()) {
      kept->is_kept = true;
      for (const auto& [name, value] : kept->names) spend_on_kept(name);
    }
    closed_over_.push_back(scope);
  }

  // A macro sees the variables around its definition, as they are when it is called, and not those
  // of its caller.
  Value macro_of(const Statement& statement) {
    close_over(scope_);
    return Function([this, &statement, outer = std::weak_ptr(scope_)](const Arguments& a) {
      return call_macro(statement, outer.lock(), a);
    });
  }

  Value call_macro(const Statement& macro, const ScopePtr& outer, const Arguments& arguments) {
    const std::size_t expected = macro.parameters.size(), given = arguments.positional.size();
    require(given <= expected || macro.uses_varargs, "macro '{}' takes {} arguments, not {}",
            macro.name, expected, given);
    const NewScope scope(*this, outer);
    if (macro.uses_varargs) {
      const auto rest =
          arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(expected, given));
      variable("varargs") = Value::tuple(List(rest, arguments.positional.end()));
    }
    bind_named(macro, arguments);
    for (std::size_t i = 0; i < expected; ++i) {
      const Parameter& parameter = macro.parameters[i];
      if (i < given) {
        variable(parameter.name) = arguments.positional[i];
      } else if (!scope_->names.contains(parameter.name)) {
        variable(parameter.name) = parameter.otherwise ? evaluate(*parameter.otherwise) : Value();
      }
    }
    return capture(macro.branches[0]);
  }

  void bind_named(const Statement& macro, const Arguments& arguments) {
    const std::size_t given = arguments.positional.size();
    Dict rest;
    if (macro.uses_caller) variable("caller") = Value();
    for (const auto& [name, value] : arguments.named) {
      spend(macro.parameters.size() / 4 + 1);
      const auto parameter = std::ranges::find(macro.parameters, name, &Parameter::name);
      const auto place = static_cast<std::size_t>(parameter - macro.parameters.begin());
      const bool is_parameter = parameter != macro.parameters.end() && place >= given;
      if (is_parameter || (name == "caller" && macro.uses_caller)) {
        variable(name) = value;
      } else {
        require(macro.uses_kwargs, "macro '{}' takes no argument '{}'", macro.name,
                name.substr(0, 60));
        rest.set(name, value);
      }
    }
    if (macro.uses_kwargs) variable("kwargs") = std::move(rest);
  }

  // Expressions -----------------------------------------------------------------------------

  Value find(const std::string& name) {
    std::size_t read = 0;  // bytes, each scope's table as 4 beside the name
    for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
      read += 4 + name.size();
      spend(read / 16);
      read %= 16;
      if (const auto found = scope->names.find(name); found != scope->names.end()) {
        return found->second;
      }
    }
    return {};
  }

  Value optional(const ExpressionPtr& expression) {
    return expression ? evaluate(*expression) : Value(None{});
  }

  Value evaluate(const Expression& e) {
    const Level level(level_);
    spend(1);
    switch (e.kind) {
      case Expression::Kind::literal:
        return e.value;
      case Expression::Kind::variable:
        return find(e.name);
      case Expression::Kind::written:
        return written_;
      case Expression::Kind::list:
        return make_list(e);
      case Expression::Kind::tuple:
        return Value::tuple(make_list(e));
      case Expression::Kind::dict:
        return make_dict(e);
      case Expression::Kind::unary:
        return unary(e);
      case Expression::Kind::binary:
        return binary(e);
      case Expression::Kind::comparison:
        return comparison(e);
      case Expression::Kind::conditional:
        if (evaluate(*e.children[0]).truth()) return evaluate(*e.children[1]);
        return e.children[2] ? evaluate(*e.children[2]) : Value();
      case Expression::Kind::attribute:
        return attribute_of(evaluate(*e.children[0]), e.name);
      case Expression::Kind::item:
        return item_at(evaluate(*e.children[0]), evaluate(*e.children[1]));
      case Expression::Kind::slice:
        return slice(evaluate(*e.children[0]), optional(e.children[1]), optional(e.children[2]),
                     optional(e.children[3]));
      case Expression::Kind::call:
        return call(e);
      case Expression::Kind::filter:
        return apply_filter(e.name, evaluate(*e.children[0]), arguments_of(e));
      case Expression::Kind::test:
        return apply_test(e.name, evaluate(*e.children[0]), arguments_of(e));
      case Expression::Kind::spread:
        break;  // arguments_of() takes it apart
    }
    return {};
  }

  List make_list(const Expression& e) {
    List list;
    spend(16 * e.children.size());
    for (const auto& child : e.children) list.push_back(evaluate(*child));
    return list;
  }

  Value make_dict(const Expression& e) {
    Dict dict;
    for (std::size_t i = 0; i + 1 < e.children.size(); i += 2) {
      const Value key = evaluate(*e.children[i]);
      dict.set(key, evaluate(*e.children[i + 1]));
    }
    return dict;
  }

  Value unary(const Expression& e) {
    const Value value = evaluate(*e.children[0]);
    if (e.name == "not") return !value.truth();
    const Value negative = negate(value);
    return e.name == "-" ? negative : value;
  }

  Value binary(const Expression& e) {
    const Value left = evaluate(*e.children[0]);
    if (e.name == "and" && !left.truth()) return left;
    if (e.name == "or" && left.truth()) return left;
    const Value right = evaluate(*e.children[1]);
    if (e.name == "and" || e.name == "or") return right;
    return apply_operator(e.name, left, right);
  }

  // a < b < c: a < b and b < c.
  Value comparison(const Expression& e) {
    Value left = evaluate(*e.children[0]);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      Value right = evaluate(*e.children[i + 1]);
      if (!apply_operator(e.operators[i], left, right).truth()) return false;
      left = std::move(right);
    }
    return true;
  }

  // The arguments behind the first child.
  Arguments arguments_of(const Expression& e) {
    Arguments arguments;
    for (std::size_t i = 1; i < e.children.size(); ++i) {
      const Expression& child = *e.children[i];
      if (child.kind == Expression::Kind::spread) {
        const Items items = items_of(evaluate(*child.children[0]));
        arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
      } else {
        arguments.positional.push_back(evaluate(child));
      }
    }
    for (const auto& [name, expression] : e.named) {
      const Value value = evaluate(*expression);
      if (!name.empty()) {
        arguments.named.emplace_back(name, value);
        continue;
      }
      require(value.dict() && !value.name_space(), "** needs a dict, not {}", value.type_name());
      for (const auto& [key, item] : value.dict()->items) {
        const std::string_view text = expect_text(key, "**");
        spend(32 + text.size());
        arguments.named.emplace_back(text, item);
      }
    }
    return arguments;
  }

  // `more`: named arguments beside those of the call.
  Value call(const Expression& e, const std::vector<std::pair<std::string, Value>>& more = {}) {
    const Expression& callee = *e.children[0];
    const auto arguments = [&] {
      Arguments all = arguments_of(e);
      all.named.insert(all.named.end(), more.begin(), more.end());
      return all;
    };
    Value function;
    if (callee.kind == Expression::Kind::attribute) {
      const Value object = evaluate(*callee.children[0]);
      const Value* entry = object.dict() ? object.dict()->find(callee.name) : nullptr;
      const bool is_method = object.dict() && !object.name_space() && is_dict_method(callee.name);
      if (entry == nullptr || is_method || !entry->function()) {
        return call_method(object, callee.name, arguments());
      }
      function = *entry;
    } else {
      function = evaluate(callee);
    }
    require(function.function() != nullptr, "'{}' is {}; it cannot be called",
            callee.name.substr(0, 60), function.type_name());
    return (*function.function())(arguments());
  }

  const std::array<Value, 10> loop_names_ = {"index0", "index",  "revindex0", "revindex", "first",
                                             "last",   "length", "previtem",  "nextitem", "cycle"};
  ScopePtr scope_;
  std::vector<ScopePtr> closed_over_;
  Value written_;  ///< the text that the filters of a block are applied to
  int level_ = 0;
  std::string out_;
};

}  // namespace

std::string render(const Block& block, const Dict& variables, const Budget& budget) {
  const Meter meter(budget);
  return Interpreter(variables).run(block);
}

}  // namespace ballast::jinja
