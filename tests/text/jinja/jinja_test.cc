// The expected texts follow Jinja 3.1 with Hugging Face's settings.
#include "ballast/error.h"
#include "formats/json.h"
#include "formats/mutate.h"
#include "text/jinja/interpreter.h"

namespace ballast::jinja {
namespace {

using testing::HasSubstr;

std::string run(const std::string& source, std::uint64_t budget = 10'000'000) {
  const auto json = Json::parse(R"({
    "a": 3, "b": -7, "f": 2.5, "s": "Hello, World", "u": "  ünï ", "l": [3, 1, 2], "e": [],
    "d": {"x": 1, "y": "two", "z": [1, null]}, "n": null, "t": true,
    "m": [{"r": "u", "v": 1}, {"r": "w", "v": 2}, {"r": "u", "v": 3}]})");
  return render(parse(source), *from_json(json).dict(), Budget{budget});
}

std::string error_of(const std::string& source, std::uint64_t budget = 10'000'000) {
  try {
    return "no error, but: " + run(source, budget);
  } catch (const Error& e) {
    return e.what();
  }
}

struct Case {
  const char* source;
  const char* expected;
};

void check(std::initializer_list<Case> cases) {
  for (const auto& [source, expected] : cases) {
    std::string result;
    EXPECT_NO_THROW(result = run(source)) << source << ": " << error_of(source);
    EXPECT_EQ(result, expected) << source;
  }
}

TEST(Jinja, Arithmetic) {
  check(
      {{"{{ a + b * 2 }} {{ a - b - 1 }} {{ -b }} {{ 2 ** 5 }}", "-11 9 7 32"},
       {"{{ -5 // 3 }} {{ -5 % 3 }} {{ 5 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }}", "-2 1 -1 3.5 3.0"},
       {"{{ f * 2 }} {{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1_000 }}", "5.0 1000.0 0.30000000000000004 1000"},
       {"{{ 'ab' * 3 }} {{ [1] * 2 + [2] }} {{ s ~ a ~ n ~ t }}",
        "ababab [1, 1, 2] Hello, World3NoneTrue"},
       {"{{ 10 | string + '0' }} {{ (1 + 2) * 3 }}", "100 9"}});
}

TEST(Jinja, Logic) {
  check(
      {{"{{ a > 2 and b < 0 }} {{ not a }} {{ n or 's' }} {{ '' or 0 or [] }}", "True False s []"},
       {"{{ 1 if a > 5 else 2 }}|{{ 'x' if none }}|{{ 'p' if n else 'q' if t "
        "else 'r' }}",
        "2||q"},
       {"{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ l == [3, 1, 2] }} {{ m[0] == m[2] "
        "}}",
        "True True True False"},
       {"{{ 'lo' in s }} {{ 4 not in l }} {{ 'x' in d }} {{ not 'q' in d }}",
        "True True True True"},
       {"{{ q is defined }} {{ not q is defined }} {{ q is not defined }} {{ n "
        "is none }}",
        "False True True True"},
       {"{{ a is odd }} {{ a is divisibleby 3 }} {{ s is string }} {{ d is "
        "mapping }} "
        "{{ l is iterable }} {{ t is number }} {{ a is eq(3) and f is float }}",
        "True True True True True True True"}});
}

TEST(Jinja, MembersAndSlices) {
  check({{"{{ d.x }} {{ d['y'] }} {{ d.q }} {{ m[1].r }} {{ l[-1] }} {{ l[9] }}|", "1 two  w 2 |"},
         {"{{ l[1:] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[5:] }} {{ l[::-2] }}",
          "[1, 2] [2, 1, 3] [1, 2] [] [2, 3]"},
         {"{{ s[:5] }} {{ s[-1] }} {{ u[2:5] }} {{ s[::-1][:3] }}", "Hello d ünï dlr"},
         {"{{ '\\x4A\\x4a' }}", "JJ"},
         {"{{ s[12] }}|{{ s[-13] }}|{{ s[-12] }}|{{ l[3] }}|{{ l[-4] }}|{{ l[-3] "
          "}}",
          "||H|||3"},
         {"{{ {'k': 1, 'v': [none]} }} {{ (1, 'a')[1] }} {{ {'a': {'b': 2}}.a.b "
          "}}",
          "{'k': 1, 'v': [None]} a 2"}});
}

TEST(Jinja, Filters) {
  check({{"{{ u | trim }}|{{ s | lower }}|{{ s | upper | length }}|{{ 'éa' | "
          "upper }}",
          "ünï|hello, world|12|ÉA"},
         {"{{ l | join('-') }} {{ l | sort | first }} {{ l | last }} {{ l | "
          "reverse | list }}",
          "3-1-2 1 2 [2, 1, 3]"},
         {"{{ m | selectattr('r', 'equalto', 'u') | map(attribute='v') | list }}", "[1, 3]"},
         {"{{ m | rejectattr('v', 'gt', 1) | list | length }}", "1"},
         {"{{ l | select('odd') | list }} {{ l | reject('in', [1, 2]) | list }}", "[3, 1] [3]"},
         {"{{ l | map('string') | join }} {{ m | map(attribute='r') | unique | "
          "join(',') }}",
          "312 u,w"},
         {"{{ d | tojson }}", R"({"x": 1, "y": "two", "z": [1, null]})"},
         {"{{ {'a': ['q\"\n', {}]} | tojson(indent=2) }}",
          "{\n  \"a\": [\n    \"q\\\"\\n\",\n    {}\n  ]\n}"},
         {"{{ q | default('z') }}{{ '' | d('y', true) }}{{ '' | d('w') }}", "zy"},
         {"{{ '5' | int + 1 }} {{ 'x' | int }} {{ 3.9 | int }} {{ '2.5' | float "
          "}}",
          "6 0 3 2.5"},
         {"{{ 'a\nb\n\nc' | indent(2) }}", "a\n  b\n\n  c"},
         {"{{ d | items | list | length }}{{ d | dictsort | first | first }}", "3x"},
         {"{{ 'one two' | title }} {{ 'hELLO' | capitalize }}", "One Two Hello"}});
}

TEST(Jinja, Methods) {
  check({{"{{ s.split(', ') }} {{ ' a b  c '.split() }} {{ 'a,b,c'.split(',', "
          "1) }}",
          "['Hello', 'World'] ['a', 'b', 'c'] ['a', 'b,c']"},
         {"{{ ' a b  c '.split(none, 1) }}", "['a', 'b  c ']"},
         {"{{ s.startswith('He') }} {{ s.endswith(('x', 'ld')) }} {{ u.strip() "
          "}}",
          "True True ünï"},
         {"{{ 'xxaxx'.strip('x') }} {{ 'xxa'.lstrip('x') }} {{ "
          "'a\n\n'.rstrip('\n') }}",
          "a a a"},
         {"[{{ ' a '.lstrip() }}][{{ ' a '.rstrip() }}][{{ '\r\na\n\r'.strip() "
          "}}]",
          "[a ][ a][a]"},
         {"{{ s.find('o') }} {{ s.count('l') }} {{ 'aXa'.replace('a', 'b') }} "
          "{{ '-'.join(['a']) }}",
          "4 3 bXb a"},
         {"{{ '<|{}{{}}{}|>'.format(s, 2) }}", "<|Hello, World{}2|>"},
         {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "x=1;y=two;z=[1, None];"},
         {"{{ d.get('q', 'dflt') }} {{ d.get('x') }} {{ d.keys() | list }}",
          "dflt 1 ['x', 'y', 'z']"}});
}

TEST(Jinja, Loops) {
  check({{"{% for x in l %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ x "
          "}} {% endfor %}",
          "1TrueFalse3 2FalseFalse1 3FalseTrue2 "},
         {"{% for x in e %}x{% else %}none{% endfor %}", "none"},
         {"{% for x in l if x > 1 %}{{ loop.index0 }}{{ x }}{% endfor %}", "0312"},
         {"{% for x in l %}{{ loop.cycle('o', 'e') }}{{ loop.revindex }}{% "
          "endfor %}",
          "o3e2o1"},
         {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
          "{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
          "0134"},
         {"{% for i in range(6, 0, -2) %}{{ i }}{% endfor %}", "642"},
         {"{% for c in 'hé' %}[{{ c }}]{% endfor %}", "[h][é]"}});
}

TEST(Jinja, VariablesLiveInTheirScope) {
  check({{"{% set x = 1 %}{% for i in range(3) %}{% set x = x + i %}{{ x }}{% "
          "endfor %}{{ x }}",
          "1231"},
         {"{% set ns = namespace(v=0) %}{% for i in l %}{% set ns.v = ns.v + i "
          "%}{% endfor %}"
          "{{ ns.v }}",
          "6"},
         {"{% if t %}{% set y = 5 %}{% endif %}{{ y }}", "5"},
         {"{% set p, q = 1, 'two' %}{{ q }}{{ p }}{% set b %} in {{ a }} {% "
          "endset %}[{{ b }}]",
          "two1[ in 3 ]"},
         {"{% macro m(x, y='dy') %}<{{ x }}{{ y }}{{ z }}>{% endmacro %}"
          "{% for z in l %}{% endfor %}{{ m(1) }}{{ m(y=3, x=4) }}{{ m('a') | "
          "upper }}",
          "<1dy><43><ADY>"},
         {"{% macro f(n) %}{% if n < 2 %}1{% else %}{{ n * f(n - 1) | int }}{% "
          "endif %}"
          "{% endmacro %}{{ f(5) }}",
          "120"}});
}

// A macro sees the variables around its definition, not those of its caller.
TEST(Jinja, NamespacesStandInListsAndDicts) {
  check({{"{% set n = namespace(role='system', content='S') %}{% for m in [n] "
          "+ m %}"
          "{{ m.role }}{{ m.content }}{{ m.r }};{% endfor %}",
          "systemS;u;w;u;"},
         {"{% set n = namespace(v=1) %}{% set d = {'n': n, 'l': [[n]]} %}{% "
          "set n.v = 2 %}"
          "{{ d.n.v }}{{ d.l[0][0].v }}",
          "22"}});
}

TEST(Jinja, MacrosSeeWhatIsAroundTheirDefinition) {
  check({{"{% macro m() %}[{{ v }}{{ loop }}]{% endmacro %}{% for v in l %}{{ "
          "m() }}{% endfor %}",
          "[][][]"},
         {"{% macro m(v) %}{{ w() }}{% endmacro %}{% macro w() %}[{{ v }}]{% "
          "endmacro %}{{ m(1) }}",
          "[]"},
         {"{% for i in l %}{% macro w() %}[{{ i }}]{% endmacro %}{{ w() }}{% "
          "endfor %}",
          "[3][1][2]"},
         // Called when the scope that it was defined in has ended.
         {"{% set ns = namespace(f=none) %}{% for i in l %}{% macro w() %}<{{ "
          "i }}>{% endmacro %}"
          "{% set ns.f = w %}{% endfor %}{{ ns.f() }}",
          "<2>"}});
}

// Every turn of a loop costs its variables: 81 beside what its list costs.
TEST(Jinja, AnEmptyLoopSpendsTheBudget) {
  const std::string loop = "{% for i in range(1000) %}{% endfor %}";
  EXPECT_THAT(error_of(loop, 60'000), HasSubstr("too much"));
  EXPECT_EQ(run(loop, 120'000), "");
}

TEST(Jinja, Whitespace) {
  check({{"{% if t %}\n   {% if t %}\n   deep\n   {% endif %}\n{% endif "
          "%}\n\n\nend\n",
          "   deep\n\n\nend"},
         {"a  {{- 1 -}}  b  {#- no -#}  c", "a1bc"},
         {"  {%- if t %} q {% endif -%}  \n w", " q w"},
         {"x {%+ if t %} y {% endif +%}\nz", "x  y \nz"},
         {"{{ a }}\n  {# c #}\n  d  {% if t %} {% endif %}\n", "3\n  d   "},
         {"a\r\nb\r\n{% if t %}\r\nc{% endif %}", "a\nb\nc"},
         {"{% raw %}{{ x }}{% y %}{% endraw %}|{%- raw -%}  {{ z }} {%- endraw "
          "%}",
          "{{ x }}{% y %}|{{ z }}"},
         {"{{ '}}' }}{{ {'a': {}}['a'] }}{{ 'a' 'b' }}{{ '\\x41\\u00e9\\n' }}", "}}{}abAé\n"},
         {"x{% generation %}y{% endgeneration %}z", "xyz"}});
}

TEST(Jinja, ErrorsNameTheLineAndThePart) {
  EXPECT_THAT(error_of("\n\n{{ raise_exception('not so\nfast') }}"), HasSubstr("line 3: "));
  EXPECT_THAT(error_of("{{ raise_exception('no\nway') }}"), HasSubstr("refuses: no way"));
  EXPECT_THAT(error_of("{{ q.x }}"), HasSubstr("undefined"));
  EXPECT_THAT(error_of("{{ 1 + 'a' }}"), HasSubstr("an integer and a string"));
  EXPECT_THAT(error_of("{{ 1 / 0 }}"), HasSubstr("division by zero"));
  EXPECT_THAT(error_of("{{ 10 ** 40 }}"), HasSubstr("too large"));
  EXPECT_THAT(error_of("{{ ('9' * 40) | int }}"), HasSubstr("too large"));
  EXPECT_THAT(error_of("{{ 'x' | frobnicate }}"), HasSubstr("frobnicate"));
  EXPECT_THAT(error_of("{{ 'x' is frobnicate }}"), HasSubstr("frobnicate"));
  EXPECT_THAT(error_of("{{ 'x'.frobnicate() }}"), HasSubstr("frobnicate"));
  for (const char* open :
       {"{% if l %}", "{% if l %}{% else %}", "{% for x in l %}", "{% macro m() %}",
        "{% call m() %}", "{% filter upper %}", "{% set x %}"}) {
    EXPECT_NE(error_of(std::string(open) + "x"), "") << open << " has no end";
  }
  EXPECT_THAT(error_of("{% include 'x' %}"), HasSubstr("'include' is not supported"));
  EXPECT_THAT(error_of("{% for x in 5 %}{% endfor %}"), HasSubstr("an integer has no items"));
  for (const char* nested : {"namespace(a=n)", "namespace(a=[n])", "namespace({'a': [n]})"}) {
    EXPECT_THAT(error_of("{% set n = namespace() %}{{ " + std::string(nested) + " }}"),
                HasSubstr("a namespace cannot be nested in a namespace"));
  }
  EXPECT_THAT(error_of("{% set n = namespace() %}{% set n.a = [[n]] %}"),
              HasSubstr("a namespace cannot be nested in a namespace"));
  EXPECT_THAT(error_of("{% macro m(x) %}{% endmacro %}{{ m(y=1) }}"),
              HasSubstr("macro 'm' takes no argument 'y'"));
  EXPECT_THAT(error_of("{% macro m(x) %}{% endmacro %}{{ m(" + std::string(99, 'y') + "=1) }}"),
              HasSubstr("takes no argument '" + std::string(60, 'y') + "'"));
  EXPECT_THAT(error_of("{{ '%d' % 'x' }}"), HasSubstr("'%' is not defined for a string and a "));
  EXPECT_THAT(error_of("{{ 1 | urlencode }}"), HasSubstr("filter 'urlencode' is not supported"));
  EXPECT_THAT(error_of("{{ s.zfill(3) }}"), HasSubstr("the method 'zfill' of a string"));
  EXPECT_THAT(error_of("{{ l | tojson(default=1) }}"), HasSubstr("'default' is not supported"));
  EXPECT_THAT(error_of("{% if a %}x"), HasSubstr("endif"));
  EXPECT_THAT(error_of("{% if %}x{% endif %}"), HasSubstr("expected a value"));
  EXPECT_THAT(error_of("{{ (1 }}"), HasSubstr("line 1"));
  for (const char* broken :
       {"{{", "{% ", "{# ", "{{ 'x }}", "{{ a. }}", "{{ [1, }}", "{{ a[ }}", "{% set %}",
        "{% macro %}", "{% raw %}", "{% endif %}", "{{ a b }}", "{{ '\\x4' }}", "{{ '\\ud800' }}",
        "{{ ! }}", "{% break %}", "{{ 9999999999999999999999999999999999999999 }}",
        "{{ a[1:2:3:4] }}", "{{ l[::0] }}"}) {
    EXPECT_THAT(error_of(broken), HasSubstr("line 1: ")) << broken;
  }
}

// What reads a string pays for its size, so that a million readings of a long
// one end.
TEST(Jinja, LongStringsCostTheirReading) {
  const std::string front =
      "{% set s = 'a' * 100000 %}{% set t = 'a' * 99999 + 'b' %}{% set d = {s: "
      "1} %}"
      "{% for i in range(99999) %}{% for j in range(9) %}{% if ";
  for (const std::string reading :
       {"s | length", "t in d", "d[t]", "d.get(t)", "s[99999]", "s[-1:]", "s | first", "s | last",
        "s.find('b')", "'b' in s", "s.count('b')", "'a'.strip(s)", "'a'.find(s)",
        "'a' | replace(s, '')"}) {
    EXPECT_THAT(error_of(front + reading + " %}{% endif %}{% endfor %}{% endfor %}", 3'000'000),
                HasSubstr("too many steps"))
        << reading;
  }
}

// In time that grows with the product of both sizes, each of these takes
// minutes.
TEST(Jinja, LongStringsAreSoughtInLinearTime) {
  const std::string front =
      "{% set s = 'a' * 1000000 %}{% set u = 'a' * "
      "500000 + 'b' %}{% set v = 'b' + 'a' * 500000 %}";
  for (const auto& [source, expected] : std::initializer_list<Case>{
           {"{{ s.find(u) }} {{ s.rfind(v) }}", "-1 -1"},
           {"{{ u in s }} {{ s.count(u) }}", "False 0"},
           {"{{ s.split(u) | length }} {{ s.rsplit(v) | length }}", "1 1"},
           {"{{ s.replace(u, '') | length }} {{ s | replace(u, '') | length }}", "1000000 1000000"},
           {"{{ s.strip('bcdefghij' * 50000) | length }}", "1000000"},
           {"{{ s.lstrip('bcdefghij' * 50000 + 'a') }}", ""},
           {"{{ (s + v).rfind(v) }} {{ (v + s).rfind(v) }}", "1000000 0"}}) {
    EXPECT_EQ(run(front + source, 40'000'000), expected) << source;
  }
}

// What lives at a time is bounded apart from what is made in all.
TEST(Jinja, ValuesThatLiveAreBounded) {
  const auto error = [](const std::string& source) {
    try {
      return "no error, but: " + render(parse(source), {}, Budget{100'000'000, 1'000'000});
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  for (const char* source :
       {"{{ ('a' * 100000).split('a') | length }}", "{{ 'a' * 1000001 }}", "{{ [1] * 30000 }}",
        "{{ ('a' * 100000) | list | length }}", "{% for c in 'a' * 100000 %}{% endfor %}",
        "{{ ([1] * 15000 + [2] * 15000) | length }}",
        "{{ ('a' * 9000) | map('upper') | map('lower') | list | length }}",
        "{{ (['a'] * 9000) | map(attribute='find') | list | length }}"}) {
    EXPECT_THAT(error(source), HasSubstr("too much memory")) << source;
  }
  // What has ended counts no more.
  EXPECT_EQ(error("{% for i in range(100) %}{% set s = 'a' * 900000 %}{% endfor %}"),
            "no error, but: ");
  EXPECT_EQ(error("{{ ('a' * 300000) | title | length }} {{ ('a' * 300000)[-1:] }}"),
            "no error, but: 300000 a");
}

TEST(Jinja, HostileTemplatesEnd) {
  const std::string doubling =
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}";
  EXPECT_THAT(error_of(doubling), HasSubstr("too much"));
  EXPECT_THAT(error_of("{{ 'x' * 9999999999 }}"), HasSubstr("too much"));
  EXPECT_THAT(error_of("{{ [1] * 9223372036854775807 }}"), HasSubstr("too much"));
  EXPECT_THAT(error_of("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                       "{% endfor %}"),
              HasSubstr("too"));
  EXPECT_THAT(error_of("{{ range(999999999) }}"), HasSubstr("range"));
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("deep"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=[]) %}{% for i in range(999) %}"
                       "{% set ns.x = [ns.x, ns.x] %}{% endfor %}"),
              HasSubstr("nested"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% set ns.me = ns %}"), HasSubstr("nested"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
                       "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
              HasSubstr("too much"));
  EXPECT_THAT(error_of("{% for x in l recursive %}{{ loop(l) }}{% endfor %}"), HasSubstr("deep"));
  EXPECT_THAT(error_of("{% set ns = namespace(f=none) %}{% for i in range(9999) %}"
                       "{% macro m() %}{% endmacro %}{% set ns.f = m %}{% endfor %}",
                       500'000),
              HasSubstr("too much"));
  const std::string many(100'000, '(');
  EXPECT_THAT(error_of("{{ " + many + "1" + std::string(many.size(), ')') + " }}"),
              HasSubstr("nested"));
  std::string sum = "{{ 1";
  std::string nots = "{{ ";
  std::string blocks;
  for (int i = 0; i < 20'000; ++i) {
    sum += " + 1";
    nots += "not ";
    blocks += "{% if t %}";
  }
  EXPECT_THAT(error_of(sum + " }}"), HasSubstr("levels"));
  EXPECT_THAT(error_of(nots + "1 }}"), HasSubstr("nested"));
  EXPECT_THAT(error_of(blocks), HasSubstr("nested"));
}

TEST(Jinja, DamagedTemplatesGiveTextOrAnError) {
  const std::string valid =
      "{%- set ns = namespace(n=0) -%}{% macro b(x, "
      "y='z') %}<{{ x ~ y }}>{% endmacro %}"
      "{% for m in m if m.v is odd %}{{ b(m.r) }}{% set "
      "ns.n = ns.n + m['v'] * 2 %}{% else %}none"
      "{% endfor %}{# note #}{% if ns.n > 3 and not q "
      "%}{{ l[1:] | join(', ') | upper }}{% elif t "
      "%}"
      "{{ d.items() | list | tojson(indent=2) }}{% endif "
      "%}{% raw %}{{ }}{% endraw %}{{ s[::-1] }}";
  EXPECT_NO_THROW(run(valid));
  int broken = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    try {
      run(mutate(valid, seed), 100'000);
    } catch (const Error&) {
      ++broken;
    }
  }
  EXPECT_GT(broken, 500);
}

TEST(Jinja, DeepButAllowedNestingFitsTheStack) {
  std::string sum = "{{ 'x'";
  for (int i = 0; i < 250; ++i) sum += " + 'x'";
  // The same depth of calls again and again.
  EXPECT_THAT(error_of("{% macro m(n) %}" + sum + " + m(n + 1) }}{% endmacro %}{{ m(0) }}"),
              HasSubstr("deep"));
  EXPECT_EQ(run(sum + " }}").size(), 251u);
}

}  // namespace
}  // namespace ballast::jinja
