// The tests of `is`.
#include <map>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&);

const std::map<std::string, Test, std::less<>>& tests() {
  static const Test kEqual = [](const Value& v, const Arguments& a) {
    return equal(v, a.get(0, "other"));
  };
  static const Test kLess = [](const Value& v, const Arguments& a) {
    return less(v, a.get(0, "other"));
  };
  static const Test kGreater = [](const Value& v, const Arguments& a) {
    return less(a.get(0, "other"), v);
  };
  static const Test kAtMost = [](const Value& v, const Arguments& a) {
    return !less(a.get(0, "other"), v);
  };
  static const Test kAtLeast = [](const Value& v, const Arguments& a) {
    return !less(v, a.get(0, "other"));
  };
  static const Test kUnequal = [](const Value& v, const Arguments& a) {
    return !equal(v, a.get(0, "other"));
  };
  static const Test kSequence = [](const Value& v, const Arguments&) {
    return v.list() || (v.dict() && !v.name_space()) || v.string() || v.is_undefined();
  };
  static const std::map<std::string, Test, std::less<>> table = {
      {"!=", kUnequal},
      {"<", kLess},
      {"<=", kAtMost},
      {"==", kEqual},
      {">", kGreater},
      {">=", kAtLeast},
      {"boolean", [](const Value& v, const Arguments&) { return v.boolean() != nullptr; }},
      {"callable",
       [](const Value& v, const Arguments&) { return v.function() || v.is_undefined(); }},
      {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
      {"divisibleby",
       [](const Value& v, const Arguments& a) {
         return equal(apply_operator("%", v, a.get(0, "num")), 0);
       }},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"even",
       [](const Value& v, const Arguments&) { return equal(apply_operator("%", v, 2), 0); }},
      {"false", [](const Value& v, const Arguments&) { return v.boolean() && !*v.boolean(); }},
      {"float", [](const Value& v, const Arguments&) { return v.real() != nullptr; }},
      {"ge", kAtLeast},
      {"greaterthan", kGreater},
      {"gt", kGreater},
      {"in", [](const Value& v, const Arguments& a) { return contains(a.get(0, "seq"), v); }},
      {"integer", [](const Value& v, const Arguments&) { return v.integer() != nullptr; }},
      {"iterable", kSequence},
      {"le", kAtMost},
      {"lessthan", kLess},
      {"lower", [](const Value& v,
                   const Arguments&) { return is_kind(to_text(v), "islower").value_or(false); }},
      {"lt", kLess},
      {"mapping", [](const Value& v, const Arguments&) { return v.dict() && !v.name_space(); }},
      {"ne", kUnequal},
      {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
      {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
      {"odd", [](const Value& v, const Arguments&) { return equal(apply_operator("%", v, 2), 1); }},
      {"sameas",
       [](const Value& v, const Arguments& a) {
         const Value other = a.get(0, "other");
         return std::string_view(v.type_name()) == other.type_name() && equal(v, other);
       }},
      {"sequence", kSequence},
      {"string", [](const Value& v, const Arguments&) { return v.string() != nullptr; }},
      {"true", [](const Value& v, const Arguments&) { return v.boolean() && *v.boolean(); }},
      {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
      {"upper", [](const Value& v,
                   const Arguments&) { return is_kind(to_text(v), "isupper").value_or(false); }},
  };
  return table;
}

}  // namespace

bool apply_test(const std::string& name, const Value& input, const Arguments& arguments) {
  const auto found = tests().find(name);
  require(found != tests().end(), ErrorCode::unsupported, "the test '{}' is not supported",
          name.substr(0, 60));
  spend_on(input);
  spend_on(arguments);
  return found->second(input, arguments);
}

}  // namespace ballast::jinja
