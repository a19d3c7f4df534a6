// The tests of `is`.
#include <map>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&, Budget&);

const std::map<std::string, Test, std::less<>>& tests() {
  static const Test kEqual = [](const Value& v, const Arguments& a, Budget& b) {
    return equal(v, a.get(0, "other"), b);
  };
  static const Test kLess = [](const Value& v, const Arguments& a, Budget& b) {
    return less(v, a.get(0, "other"), b);
  };
  static const Test kGreater = [](const Value& v, const Arguments& a, Budget& b) {
    return less(a.get(0, "other"), v, b);
  };
  static const Test kAtMost = [](const Value& v, const Arguments& a, Budget& b) {
    return !less(a.get(0, "other"), v, b);
  };
  static const Test kAtLeast = [](const Value& v, const Arguments& a, Budget& b) {
    return !less(v, a.get(0, "other"), b);
  };
  static const Test kUnequal = [](const Value& v, const Arguments& a, Budget& b) {
    return !equal(v, a.get(0, "other"), b);
  };
  static const Test kSequence = [](const Value& v, const Arguments&, Budget&) {
    return v.list() || (v.dict() && !v.name_space()) || v.string() || v.is_undefined();
  };
  static const std::map<std::string, Test, std::less<>> table = {
      {"!=", kUnequal},
      {"<", kLess},
      {"<=", kAtMost},
      {"==", kEqual},
      {">", kGreater},
      {">=", kAtLeast},
      {"boolean", [](const Value& v, const Arguments&, Budget&) { return v.boolean() != nullptr; }},
      {"callable",
       [](const Value& v, const Arguments&, Budget&) { return v.function() || v.is_undefined(); }},
      {"defined", [](const Value& v, const Arguments&, Budget&) { return !v.is_undefined(); }},
      {"divisibleby",
       [](const Value& v, const Arguments& a, Budget& b) {
         return equal(apply_operator("%", v, a.get(0, "num"), b), 0, b);
       }},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"even", [](const Value& v, const Arguments&,
                  Budget& b) { return equal(apply_operator("%", v, 2, b), 0, b); }},
      {"false",
       [](const Value& v, const Arguments&, Budget&) { return v.boolean() && !*v.boolean(); }},
      {"float", [](const Value& v, const Arguments&, Budget&) { return v.real() != nullptr; }},
      {"ge", kAtLeast},
      {"greaterthan", kGreater},
      {"gt", kGreater},
      {"in", [](const Value& v, const Arguments& a,
                Budget& b) { return contains(a.get(0, "seq"), v, b); }},
      {"integer", [](const Value& v, const Arguments&, Budget&) { return v.integer() != nullptr; }},
      {"iterable", kSequence},
      {"le", kAtMost},
      {"lessthan", kLess},
      {"lower", [](const Value& v, const Arguments&,
                   Budget& b) { return is_kind(to_text(v, b), "islower").value_or(false); }},
      {"lt", kLess},
      {"mapping",
       [](const Value& v, const Arguments&, Budget&) { return v.dict() && !v.name_space(); }},
      {"ne", kUnequal},
      {"none", [](const Value& v, const Arguments&, Budget&) { return v.is_none(); }},
      {"number", [](const Value& v, const Arguments&, Budget&) { return v.is_number(); }},
      {"odd", [](const Value& v, const Arguments&,
                 Budget& b) { return equal(apply_operator("%", v, 2, b), 1, b); }},
      {"sameas",
       [](const Value& v, const Arguments& a, Budget& b) {
         const Value other = a.get(0, "other");
         return std::string_view(v.type_name()) == other.type_name() && equal(v, other, b);
       }},
      {"sequence", kSequence},
      {"string", [](const Value& v, const Arguments&, Budget&) { return v.string() != nullptr; }},
      {"true",
       [](const Value& v, const Arguments&, Budget&) { return v.boolean() && *v.boolean(); }},
      {"undefined", [](const Value& v, const Arguments&, Budget&) { return v.is_undefined(); }},
      {"upper", [](const Value& v, const Arguments&,
                   Budget& b) { return is_kind(to_text(v, b), "isupper").value_or(false); }},
  };
  return table;
}

}  // namespace

bool apply_test(const std::string& name, const Value& input, const Arguments& arguments,
                Budget& budget) {
  const auto found = tests().find(name);
  require(found != tests().end(), ErrorCode::unsupported, "the test '{}' is not supported",
          name.substr(0, 60));
  budget.spend_on(input);
  budget.spend_on(arguments);
  return found->second(input, arguments, budget);
}

}  // namespace ballast::jinja
