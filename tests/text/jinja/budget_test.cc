// What grows with its input costs the budget of a template: with little of it,
// each of these ends.
#include <fmt/format.h>

#include "ballast/error.h"
#include "formats/json.h"
#include "text/jinja/interpreter.h"

namespace ballast::jinja {
namespace {

using testing::HasSubstr;

std::string result_of(const std::string& source, std::uint64_t budget) {
  try {
    return render(parse(source), {}, Budget{budget});
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
}

std::string times(std::size_t count, const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

/// "a0,a1," and so on, with `behind` behind each name.
std::string names(int count, const std::string& behind = "") {
  std::string out;
  for (int i = 0; i < count; ++i) out += fmt::format("a{}{},", i, behind);
  out.pop_back();
  return out;
}

/// The least budget with which a template ends in its text, or in an error of
/// another kind.
std::uint64_t steps_of(const std::string& source) {
  std::uint64_t least = 0, most = std::uint64_t{1} << 24;
  while (least < most) {
    const std::uint64_t middle = (least + most) / 2;
    const bool is_enough = result_of(source, middle).find("too many steps") == std::string::npos;
    (is_enough ? most : least) = is_enough ? middle : middle + 1;
  }
  return least;
}

/// Behind `front`, `source` takes `least` steps or more.
void expect_cost(const std::string& front, const std::string& source, std::uint64_t least) {
  EXPECT_GE(steps_of(front + source), steps_of(front) + least) << source;
}

// A tuple that holds another twice has twice its items, though it takes hardly
// more memory.
TEST(JinjaBudget, SharedTuplesAreLookedThroughForTheirItems) {
  const std::string front = "{% set t = (0, 0) %}{% set u = (0, 0) %}" +
                            times(16, "{% set t = (t, t) %}{% set u = (u, u) %}");
  for (const std::string use :
       {"{t: 1}", "t in {1: 1}", "{1: 1}.get(t)", "{1: 1}[t]", "[t] | unique", "dict([(t, 1)])"}) {
    expect_cost(front, "{% set x = " + use + " %}", 10'000);
  }
  // As a long one for its own.
  expect_cost(
      "{% set t = (1,) * 4000 %}{% set d = {t + (1,): 1, t + (2,): 1, "
      "t + (3,): 1} %}"
      "{% set t = t + (4,) %}",
      "{% set x = d[t] %}", 4'000);
  // To know it as a key, when it is found and before that, and to compare it
  // with another.
  expect_cost(front + "{% set d = {t: 1} %}", "{% set x = d[u] %}", 300'000);
}

TEST(JinjaBudget, AffixesCostTheirReading) {
  for (const std::string method : {"startswith", "endswith"}) {
    expect_cost("{% set t = ('ab',) * 1000 %}", "{% set x = 'xy'." + method + "(t) %}", 1'000);
    expect_cost("{% set s = 'a' * 16000 %}{% set t = (s ~ 'b', s ~ 'c') %}",
                "{% set x = s." + method + "(t) %}", 3'000);
  }
}

TEST(JinjaBudget, ParametersCostTheirVariables) {
  const std::string macro = "{% macro m(" + names(1000) + ") %}{% endmacro %}";
  expect_cost(macro, "{{ m() }}", 16'000);
  expect_cost(macro, "{{ m(1) }}", 16'000);
  expect_cost("{% macro m() %}{% endmacro %}", times(100, "{{ m() }}"), 2'000);
}

TEST(JinjaBudget, NamesCostTheirLookingUp) {
  const std::string longest(256, 'a');
  expect_cost("", times(100, "{{ " + longest + " }}"), 2'000);
  EXPECT_THAT(result_of("\n{{ " + longest + "a }}", 1'000'000), HasSubstr("line 2: a name of 257"));
  EXPECT_THAT(result_of("{{ x." + longest + "a }}", 1'000'000), HasSubstr("a name of 257 letters"));
  std::string sets;
  for (int i = 0; i < 100; ++i) sets += fmt::format("{{% set a{} = 1 %}}", i);
  expect_cost("", sets, 1'600);
  expect_cost("{% set t = [1] * 100 %}", "{% set " + names(100) + " = t %}", 1'600);
  // Names stay in memory where a macro refers to their scope, or to one within
  // it.
  const std::string macro = "{% with %}{% macro m() %}{% endmacro %}{% endwith %}";
  expect_cost("", sets + macro, 8'000);
  expect_cost("", macro + sets, 8'000);
}

TEST(JinjaBudget, LongKeywordsCostTheirCopies) {
  const std::string front =
      "{% set d = {'x' * 100000: 1} %}{% macro m() %}{% "
      "if 0 %}{{ kwargs }}{% endif %}{% endmacro "
      "%}";
  for (const std::string use : {"dict(**d)", "m(**d)", "1 | string(**d)"}) {
    expect_cost(front, "{% set x = " + use + " %}", 100'000);
  }
  expect_cost(front, "{% set x = [1, 2] | map('string', **d) | list %}", 100'000);
}

TEST(JinjaBudget, PathsOfAttributesCostTheirReading) {
  const std::string front = "{% set s = '1' * 1000 %}{% set l = range(20) %}";
  for (const std::string use :
       {"map(attribute=s)", "selectattr(s)", "sort(attribute=s)", "join('', s)"}) {
    expect_cost(front, "{% set x = l | " + use + " %}", 20'000);
  }
}

TEST(JinjaBudget, NumbersCostTheirArithmetic) {
  expect_cost("", times(100, "{% set x = 2 ** 126 %}"), 12'000);
  expect_cost("", times(100, "{% set x = 1e308 % 3e-308 %}"), 6'000);
  expect_cost("", times(100, "{% set x = '1e-320' | float %}"), 2'000);
  expect_cost("{% set s = '1' * 10000 ~ 'x' %}", "{% set x = s | int(1) %}{% set x = s | float %}",
              20'000);
}

TEST(JinjaBudget, SeparatorsOfJsonCostTheirWriting) {
  const std::string front = "{% set s = 'x' * 10000 %}{% set l = range(10) %}";
  expect_cost(front, "{% set x = l | tojson(separators=(s, ':')) %}", 50'000);
  expect_cost(front, "{% set x = {1: 1, 2: 2, 3: 3, 4: 4} | tojson(separators=(',', s)) %}",
              40'000);
}

TEST(JinjaBudget, KindsOfCharactersCostTheirReading) {
  for (const std::string kind :
       {"isupper", "islower", "isdigit", "isnumeric", "isalnum", "isascii"}) {
    expect_cost("{% set s = '1' * 10000 %}", "{% set x = s." + kind + "() %}", 10'000);
  }
}

TEST(JinjaBudget, ScopesAndTimesCostTheirMaking) {
  expect_cost("", times(100, "{% with %}{% endwith %}"), 1'000);
  expect_cost("", times(100, "{% set x = strftime_now('%c%c%c%c') %}"), 20'000);
}

// Functions hold values, so that chains of them are as deep as those of lists.
TEST(JinjaBudget, FunctionsNestNoDeeperThanOtherValues) {
  for (const std::string next : {"joiner(ns.f)", "[ns.f].index", "{1: ns.f}.get"}) {
    EXPECT_THAT(result_of("{% set ns = namespace(f=1) %}{% for i in range(101) "
                          "%}{% set ns.f = " +
                              next + " %}{% endfor %}",
                          1'000'000),
                HasSubstr("nested more than 100 deep"))
        << next;
  }
  EXPECT_THAT(result_of("{% set ns = namespace() %}{% set ns.f = joiner(ns) %}", 10'000),
              HasSubstr("cannot be nested"));
  EXPECT_THAT(result_of("{% set ns = namespace() %}{% for i in [1] %}{% set "
                        "ns.f = loop.changed %}"
                        "{% endfor %}{{ ns.f(1) }}",
                        10'000),
              HasSubstr("loop.changed after its loop"));
  // It remembers itself, which must not keep both alive.
  EXPECT_EQ(result_of("{% for i in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}", 10'000),
            "TrueTrue");
}

TEST(JinjaBudget, ErrorsShowTheBeginningOfWhatTheyName) {
  const std::string digits(5'000, '9');
  for (const std::string& source : {"{{ " + digits + " }}", "{{ " + digits + ".5e999 }}"}) {
    EXPECT_LT(result_of(source, 1'000).size(), 200u);
  }
  EXPECT_LT(result_of("{{ 1 | tojson(**{'x' * 5000: 1}) }}", 100'000).size(), 200u);
}

}  // namespace
}  // namespace ballast::jinja
