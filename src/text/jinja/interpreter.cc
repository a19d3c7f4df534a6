#include "text/jinja/interpreter.h"

#include <array>
#include <ctime>
#include <unordered_map>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"

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
  Interpreter(const Dict& variables, Budget& budget) : budget_(budget), scopes_(1) {
    add_globals();
    for (const auto& [name, value] : variables.items) scopes_[0][name] = value;
  }

  std::string run(const Block& block) {
    execute(block);
    return std::move(out_);
  }

 private:
  enum class Flow { normal, break_, continue_ };
  using Scope = std::unordered_map<std::string, Value>;

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

  // Variables set within live until the end.
  class NewScope {
   public:
    explicit NewScope(Interpreter& in) : in_(in) { in_.scopes_.emplace_back(); }
    ~NewScope() { in_.scopes_.pop_back(); }

   private:
    Interpreter& in_;
  };

  void add_globals() {
    Scope& globals = scopes_[0];
    globals["range"] = Function([this](const Arguments& a) { return range(a); });
    globals["namespace"] = Function([this](const Arguments& a) { return dict(a, true); });
    globals["dict"] = Function([this](const Arguments& a) { return dict(a, false); });
    globals["raise_exception"] = Function([this](const Arguments& a) -> Value {
      std::string message = to_text(a.get(0, "message"), budget_);
      for (char& c : message) c = c == '\n' ? ' ' : c;
      fail("the template refuses: {}", message);
    });
    globals["strftime_now"] = Function([this](const Arguments& a) -> Value {
      const std::string format = to_text(a.get(0, "format"), budget_);
      require(format.size() <= 64, "strftime_now: a format of {} bytes", format.size());
      const std::time_t now = std::time(nullptr);
      std::tm local{};
      localtime_r(&now, &local);
      std::array<char, 4096> text{};
      return std::string(text.data(),
                         std::strftime(text.data(), text.size(), format.c_str(), &local));
    });
  }

  Value range(const Arguments& arguments) {
    std::int64_t numbers[3] = {0, 0, 1};  // first, last, step
    const std::size_t count = arguments.positional.size();
    require(count >= 1 && count <= 3, "range: {} arguments; expected 1 to 3", count);
    for (std::size_t i = 0; i < count; ++i) {
      const Value& value = arguments.positional[i];
      require(value.integer() != nullptr, "range of {}; expected integers", value.type_name());
      numbers[count == 1 ? 1 : i] = *value.integer();
    }
    const auto [first, last, step] = numbers;
    require(step != 0, "range with step 0");
    List list;
    for (std::int64_t i = first; step > 0 ? i < last : i > last;) {
      require(list.size() < kLongestRange, "range of more than {} numbers", kLongestRange);
      budget_.spend(16);
      list.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return list;
  }

  Value dict(const Arguments& arguments, bool is_namespace) {
    Dict out;
    if (const Value given = arguments.get(0, ""); given.dict()) out = *given.dict();
    out.is_namespace = is_namespace;
    for (const auto& [name, value] : arguments.named) set_item(out, name, value);
    return out;
  }

  void set_item(Dict& dict, const std::string& name, Value value) {
    budget_.spend(16 + name.size() + dict.items.size() / 4);
    dict.set(name, std::move(value));
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
    budget_.spend(1);
    switch (statement.kind) {
      case Statement::Kind::text:
        write(statement.name);
        break;
      case Statement::Kind::print:
        write(to_text(evaluate(*statement.value), budget_));
        break;
      case Statement::Kind::if_:
        return execute_if(statement);
      case Statement::Kind::for_:
        execute_for(statement);
        break;
      case Statement::Kind::set:
        execute_set(statement);
        break;
      case Statement::Kind::set_member:
        execute_set_member(statement);
        break;
      case Statement::Kind::macro:
        define_macro(statement);
        break;
      case Statement::Kind::scope:
        return execute(statement.branches[0]);
      case Statement::Kind::break_:
        return Flow::break_;
      case Statement::Kind::continue_:
        return Flow::continue_;
    }
    return Flow::normal;
  }

  void write(std::string_view text) {
    budget_.spend(text.size());
    out_ += text;
  }

  // What a block writes.
  std::string capture(const Block& block) {
    std::string outer = std::exchange(out_, "");
    execute(block);
    return std::exchange(out_, std::move(outer));
  }

  Flow execute_if(const Statement& statement) {
    for (std::size_t i = 0; i < statement.branches.size(); ++i) {
      const auto& condition = statement.conditions[i];
      if (!condition || evaluate(*condition).truth()) return execute(statement.branches[i]);
    }
    return Flow::normal;
  }

  void assign(const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      scopes_.back()[targets[0]] = value;
      return;
    }
    const List parts = items_of(value, budget_);
    require(parts.size() == targets.size(), "{} values for {} names", parts.size(), targets.size());
    for (std::size_t i = 0; i < parts.size(); ++i) scopes_.back()[targets[i]] = parts[i];
  }

  void execute_for(const Statement& statement) {
    List items = items_of(evaluate(*statement.value), budget_);
    const NewScope scope(*this);
    if (const auto& condition = statement.conditions[0]) {
      std::erase_if(items, [&](const Value& item) {
        assign(statement.targets, item);
        return !evaluate(*condition).truth();
      });
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      scopes_.back().clear();
      scopes_.back()["loop"] = loop_variable(items, i);
      assign(statement.targets, items[i]);
      if (execute(statement.branches[0]) == Flow::break_) break;
    }
    if (items.empty() && statement.branches.size() > 1) execute(statement.branches[1]);
  }

  Value loop_variable(const List& items, std::size_t i) {
    const auto index = static_cast<std::int64_t>(i);
    const auto size = static_cast<std::int64_t>(items.size());
    budget_.spend(64);
    Dict loop;
    loop.is_namespace = false;
    loop.items = {{"index0", index},
                  {"index", index + 1},
                  {"revindex0", size - index - 1},
                  {"revindex", size - index},
                  {"first", index == 0},
                  {"last", index + 1 == size},
                  {"length", size},
                  {"previtem", i > 0 ? items[i - 1] : Value()},
                  {"nextitem", index + 1 < size ? items[i + 1] : Value()},
                  {"cycle", Function([i](const Arguments& a) -> Value {
                     require(!a.positional.empty(), "loop.cycle needs arguments");
                     return a.positional[i % a.positional.size()];
                   })}};
    return loop;
  }

  void execute_set(const Statement& statement) {
    const Value value =
        statement.value ? evaluate(*statement.value) : Value(capture(statement.branches[0]));
    assign(statement.targets, value);
  }

  void execute_set_member(const Statement& statement) {
    const Value value = evaluate(*statement.value);
    // Through a list, so that the same bound on nesting holds.
    const Value bounded(List{value});
    const Value target = find(statement.targets[0]);
    require(target.name_space() != nullptr, "'{}' is {}; only a namespace has members to set",
            statement.targets[0], target.type_name());
    set_item(*target.name_space(), statement.targets[1], value);
  }

  void define_macro(const Statement& statement) {
    scopes_.back()[statement.name] =
        Function([this, &statement](const Arguments& a) { return call_macro(statement, a); });
  }

  Value call_macro(const Statement& macro, const Arguments& arguments) {
    require(arguments.positional.size() <= macro.parameters.size(),
            "macro '{}' takes {} arguments, not {}", macro.name, macro.parameters.size(),
            arguments.positional.size());
    // A macro sees what is global, not what its caller has set.
    const std::size_t outer = std::exchange(frame_, scopes_.size());
    const NewScope scope(*this);
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const Parameter& parameter = macro.parameters[i];
      Value value = arguments.get(i, parameter.name);
      if (value.is_undefined() && parameter.otherwise) value = evaluate(*parameter.otherwise);
      scopes_.back()[parameter.name] = value;
    }
    std::string text = capture(macro.branches[0]);
    frame_ = outer;
    return text;
  }

  // Expressions -----------------------------------------------------------------------------

  Value find(const std::string& name) const {
    for (std::size_t i = scopes_.size(); i-- > frame_;) {
      if (const auto found = scopes_[i].find(name); found != scopes_[i].end()) return found->second;
    }
    const auto found = scopes_[0].find(name);
    return found == scopes_[0].end() ? Value() : found->second;
  }

  Value optional(const ExpressionPtr& expression) {
    return expression ? evaluate(*expression) : Value(None{});
  }

  Value evaluate(const Expression& e) {
    const Level level(level_);
    budget_.spend(1);
    switch (e.kind) {
      case Expression::Kind::literal:
        return e.value;
      case Expression::Kind::variable:
        return find(e.name);
      case Expression::Kind::list:
        return make_list(e);
      case Expression::Kind::dict:
        return make_dict(e);
      case Expression::Kind::unary:
        return unary(e);
      case Expression::Kind::binary:
        return binary(e);
      case Expression::Kind::conditional:
        if (evaluate(*e.children[0]).truth()) return evaluate(*e.children[1]);
        return e.children[2] ? evaluate(*e.children[2]) : Value();
      case Expression::Kind::attribute:
        return attribute(e);
      case Expression::Kind::item:
        return item_at(evaluate(*e.children[0]), evaluate(*e.children[1]), budget_);
      case Expression::Kind::slice:
        return slice(evaluate(*e.children[0]), optional(e.children[1]), optional(e.children[2]),
                     optional(e.children[3]), budget_);
      case Expression::Kind::call:
        return call(e);
      case Expression::Kind::filter:
        return apply_filter(e.name, evaluate(*e.children[0]), arguments_of(e), budget_);
      case Expression::Kind::test:
        return apply_test(e.name, evaluate(*e.children[0]), arguments_of(e), budget_);
    }
    return {};
  }

  Value make_list(const Expression& e) {
    List list;
    budget_.spend(16 * e.children.size());
    for (const auto& child : e.children) list.push_back(evaluate(*child));
    return list;
  }

  Value make_dict(const Expression& e) {
    Dict dict;
    for (std::size_t i = 0; i + 1 < e.children.size(); i += 2) {
      const Value key = evaluate(*e.children[i]);
      require(key.string() != nullptr, "a dict's key is {}; expected a string", key.type_name());
      set_item(dict, *key.string(), evaluate(*e.children[i + 1]));
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
    return apply_operator(e.name, left, right, budget_);
  }

  Value attribute(const Expression& e) {
    const Value object = evaluate(*e.children[0]);
    budget_.spend_on(object);
    return member(object, e.name);
  }

  // The arguments behind the first child.
  Arguments arguments_of(const Expression& e) {
    Arguments arguments;
    for (std::size_t i = 1; i < e.children.size(); ++i) {
      arguments.positional.push_back(evaluate(*e.children[i]));
    }
    for (const auto& [name, value] : e.named) arguments.named.emplace_back(name, evaluate(*value));
    return arguments;
  }

  Value call(const Expression& e) {
    const Expression& callee = *e.children[0];
    if (callee.kind == Expression::Kind::attribute) {
      const Value object = evaluate(*callee.children[0]);
      const Value entry = member(object, callee.name);
      if (entry.function()) return (*entry.function())(arguments_of(e));
      return call_method(object, callee.name, arguments_of(e), budget_);
    }
    const Value function = evaluate(callee);
    require(function.function() != nullptr, "'{}' is {}; it cannot be called",
            callee.name.substr(0, 60), function.type_name());
    return (*function.function())(arguments_of(e));
  }

  Budget& budget_;
  std::vector<Scope> scopes_;
  std::size_t frame_ = 0;  ///< the scopes from here on, and the first, are seen
  int level_ = 0;
  std::string out_;
};

}  // namespace

std::string render(const Block& block, const Dict& variables, Budget budget) {
  return Interpreter(variables, budget).run(block);
}

}  // namespace ballast::jinja
