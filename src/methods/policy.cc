// The method string, and what a budget means.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <variant>

#include "ballast/method.h"
#include "base/fail.h"
#include "base/nearest.h"
#include "base/parse_double.h"
#include "base/printable.h"
#include "methods/entry_budget.h"
#include "methods/registry.h"

namespace ballast {
namespace {

constexpr std::size_t kLongest = 1000;
constexpr double kMostTokens = std::numeric_limits<std::int32_t>::max();

/// [a-z][a-z0-9-]*: what a method string can name.
bool is_name(std::string_view text) {
  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto other = [&](char c) { return lower(c) || (c >= '0' && c <= '9') || c == '-'; };
  return !text.empty() && lower(text[0]) && std::ranges::all_of(text, other);
}

double parse_number(const MethodInfo& info, const Parameter& p, std::string_view text) {
  double value = 0;
  auto [end, error] = parse_double(text.data(), text.data() + text.size(), value);
  bool whole = p.kind != Parameter::Kind::integer || value == std::floor(value);
  require(error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && whole,
          "method {}: {}={} is not {}", info.name, p.name, text,
          p.kind == Parameter::Kind::integer ? "a whole number" : "a number");
  require(value >= p.low && value <= p.high, "method {}: {}={} is out of range; allowed: {} to {}",
          info.name, p.name, text, p.low, p.high);
  return value;
}

/// The choice as the parameter spells it.
std::string_view parse_choice(const MethodInfo& info, const Parameter& p, std::string_view text) {
  std::string_view rest = p.choices;
  while (!rest.empty()) {
    std::string_view one = rest.substr(0, rest.find('|'));
    if (one == text) return one;
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  fail("method {}: {}={} is not one of {}", info.name, p.name, text, p.choices);
}

struct Text {};  // Policy::Option::text, or the default
using Value =
    std::variant<std::monostate, std::int64_t, double, std::string_view, MemorySize, Text>;

Value parse_value(const MethodInfo& info, const Parameter& p, std::string_view text) {
  if (p.kind == Parameter::Kind::choice) return parse_choice(info, p, text);
  if (p.kind == Parameter::Kind::memory) return MemorySize::parse(text);
  if (p.kind == Parameter::Kind::text) {
    if (p.name == "type") parse_types(text);  // every method has it
    return Text{};
  }
  const double number = parse_number(info, p, text);
  if (p.kind == Parameter::Kind::integer) return static_cast<std::int64_t>(number);
  return number;
}

}  // namespace

std::string_view to_string(Protocol protocol) {
  return protocol == Protocol::prefill ? "prefill" : "stream";
}

std::string_view to_string(ReplayScore score) {
  switch (score) {
    case ReplayScore::none:
      return "none";
    case ReplayScore::max:
      return "max";
    case ReplayScore::plain:
      return "plain";
    case ReplayScore::rms:
      return "rms";
    case ReplayScore::mean:
      return "mean";
    case ReplayScore::given:
      return "given";
  }
  return "";
}

Protocol parse_protocol(std::string_view name) {
  if (name == "prefill") return Protocol::prefill;
  if (name == "stream") return Protocol::stream;
  fail("unknown protocol '{}'; known: prefill, stream", name);
}

std::span<const Parameter> common_parameters() {
  using Kind = Parameter::Kind;
  static const std::array<Parameter, 9> all = {{
      {"rate", Kind::real, "", 1e-9, 1, "", "fraction of the middle that is kept"},
      {"budget", Kind::integer, "", 1, kMostTokens, "",
       "entries per KV head, sink and window included"},
      {"bytes", Kind::memory, "", 0, 0, "",
       "memory of the whole cache: 1/8 or 12% of the exact bf16 cache, 256M, 40K/token"},
      {"type", Kind::text, "", 0, 0, "",
       "storage of keys and values, such as int4; q4/q2: keys in q4, values in q2"},
      {"sink", Kind::integer, "", 0, kMostTokens, "", "first tokens kept exactly"},
      {"window", Kind::integer, "", 0, kMostTokens, "", "last tokens kept exactly"},
      {"step", Kind::integer, "", 1, kMostTokens, "",
       "tokens that leave the window at a time; 16 and more: long texts are read faster"},
      {"generated", Kind::choice, "", 0, 0, "keep|evict",
       "prefill protocol: whether generated tokens stay or the window slides on"},
      {"layers", Kind::choice, "", 0, 0, "uniform|pyramid", "how layers share the budget"},
  }};
  return all;
}

/// A key of the method with its value: what was given, or the default.
struct Policy::Option {
  const Parameter* parameter;
  Value value;       ///< monostate: neither given nor set by default
  std::string text;  ///< as given; empty: not given

  bool given() const { return !text.empty(); }
};

Policy::Policy(const MethodInfo& info) : info_(&info) {
  auto options = std::make_shared<std::vector<Option>>();
  const auto add = [&](const Parameter& p) {
    Option& option = options->emplace_back(Option{&p, {}, {}});
    if (!p.standard.empty()) option.value = parse_value(info, p, p.standard);
  };
  const auto common = common_parameters();
  for (const Parameter& p : common) {
    // A method may give a common key a meaning or range of its own.
    const auto own = std::ranges::find(info.parameters, p.name, &Parameter::name);
    add(own == info.parameters.end() ? p : *own);
  }
  for (const Parameter& p : info.parameters) {
    if (std::ranges::find(common, p.name, &Parameter::name) == common.end()) add(p);
  }
  options_ = std::move(options);
}

Policy::Policy() {
  static const Policy exact(exact_method());
  *this = exact;
}

Policy Policy::parse(std::string_view text) {
  require(text.size() <= kLongest, "a method of {} bytes, '{}...'; at most {} are read",
          text.size(), printable(text.substr(0, 20)), kLongest);
  const std::size_t colon = text.find(':');
  Policy policy(find_method(text.substr(0, colon)));
  if (colon == std::string_view::npos) return policy;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    std::string_view item = rest.substr(0, rest.find(','));
    std::size_t equals = item.find('=');
    require(equals != std::string_view::npos && equals != 0,
            "method {}: '{}' is not key=value; an example: balancekv:rate=0.25,block=256",
            policy.info_->name, item);
    std::string_view key = item.substr(0, equals);
    require(!policy.option(key).given(), "method {}: {} is given twice", policy.info_->name, key);
    policy = policy.with(key, item.substr(equals + 1));
    if (item.size() == rest.size()) return policy;
    rest.remove_prefix(item.size() + 1);
  }
}

const Policy::Option& Policy::option(std::string_view key) const {
  for (const Option& option : *options_) {
    if (option.parameter->name == key) return option;
  }
  std::vector<std::string_view> known;
  for (const Option& option : *options_) known.push_back(option.parameter->name);
  fail("method {}: unknown key '{}'{}; known: {}", info_->name, key, did_you_mean(key, known),
       fmt::join(known, ", "));
}

template <typename T>
const T& Policy::value(std::string_view key, const char* kind) const {
  const Option& o = option(key);
  require(!std::holds_alternative<std::monostate>(o.value), "method {}: {} is needed", info_->name,
          key);
  const T* value = std::get_if<T>(&o.value);
  require(value != nullptr, "method {}: the value of {} is not {}", info_->name, key, kind);
  return *value;
}

Policy Policy::with(std::string_view key, std::string_view value) const {
  const Option& old = option(key);
  auto options = std::make_shared<std::vector<Option>>(*options_);
  Option& changed = (*options)[static_cast<std::size_t>(&old - options_->data())];
  changed.value = parse_value(*info_, *old.parameter, value);
  changed.text = value;
  Policy policy = *this;
  policy.options_ = std::move(options);
  require(!info_->global_budget || (key != "rate" && key != "budget"),
          "method {}: {} counts entries of a head; say how much memory: bytes=1/8", info_->name,
          key);
  const bool own =
      std::ranges::find(info_->parameters, key, &Parameter::name) != info_->parameters.end();
  require(info_->window_policy != WindowPolicy::all || own || key == "type",
          "method {} keeps every token; fewer bits make it smaller: {}:type=int4", info_->name,
          info_->name);
  const int sizes = policy.option("rate").given() + policy.option("budget").given() +
                    policy.option("bytes").given();
  require(sizes <= 1, "method {}: rate, budget and bytes say how much to keep; give one",
          info_->name);
  return policy;
}

std::string Policy::to_string() const {
  std::string text(info_->name);
  char separator = ':';
  for (const Option& option : *options_) {
    if (!option.given()) continue;
    text += separator;
    text += option.parameter->name;
    text += '=';
    text += option.text;
    separator = ',';
  }
  return text;
}

bool Policy::has(std::string_view key) const {
  return !std::holds_alternative<std::monostate>(option(key).value);
}

std::string_view Policy::choice(std::string_view key) const {
  return value<std::string_view>(key, "a choice");
}

std::string_view Policy::text(std::string_view key) const {
  value<Text>(key, "a text");
  const Option& o = option(key);
  return o.given() ? std::string_view(o.text) : o.parameter->standard;
}

MemorySize Policy::memory(std::string_view key) const { return value<MemorySize>(key, "a size"); }

double Policy::real(std::string_view key) const {
  if (const auto* whole = std::get_if<std::int64_t>(&option(key).value)) {
    return static_cast<double>(*whole);
  }
  return value<double>(key, "a number");
}

std::int64_t Policy::integer(std::string_view key) const {
  return value<std::int64_t>(key, "a whole number");
}

void check_parameters(const MethodInfo& info) {
  require(is_name(info.name), "method '{}': a name has lower-case letters, digits and '-' only",
          info.name);
  for (std::size_t i = 0; i < info.parameters.size(); ++i) {
    const Parameter& p = info.parameters[i];
    require(is_name(p.name),
            "method {}: key '{}': a name has lower-case letters, digits and '-' only", info.name,
            p.name);
    for (std::size_t j = 0; j < i; ++j) {
      require(info.parameters[j].name != p.name, "method {}: key {} is described twice", info.name,
              p.name);
    }
    const auto common = common_parameters();
    const auto same = std::ranges::find(common, p.name, &Parameter::name);
    require(same == common.end() || same->kind == p.kind,
            "method {}: every method has the key {}; its kind may not change", info.name, p.name);
    if (p.kind == Parameter::Kind::choice) {
      require(!p.choices.empty(), "method {}: key {} has no choices", info.name, p.name);
    } else {
      require(p.low <= p.high, "method {}: key {} has no value between {} and {}", info.name,
              p.name, p.low, p.high);
    }
    if (!p.standard.empty()) parse_value(info, p, p.standard);
  }
  if (info.needs.recent_queries) {
    const auto observe = std::ranges::find(info.parameters, "observe", &Parameter::name);
    require(observe != info.parameters.end() && observe->kind == Parameter::Kind::integer &&
                !observe->standard.empty() && observe->low >= 1,
            "method {}: recent attention needs an integer key observe, from 1 on, with a default",
            info.name);
  }
}

bool Policy::has_memory() const {
  return std::ranges::any_of(*options_, [](const Option& option) {
    const std::string_view key = option.parameter->name;
    return option.given() && (key == "rate" || key == "budget" || key == "bytes");
  });
}

bool Policy::keeps_generated() const {
  return has("generated") ? choice("generated") == "keep" : info_->keeps_generated;
}

Needs Policy::needs() const {
  return info_->needs_of == nullptr ? info_->needs : info_->needs_of(*this);
}

std::size_t Policy::observed() const {
  return needs().recent_queries ? static_cast<std::size_t>(integer("observe")) : 0;
}

namespace {

/// PyramidKV's budget of a layer, beside sink and window: from `high` on layer 0 to `low` on the
/// last one. The published arithmetic rounds the step between layers down, which exceeds the budget
/// by up to half an entry a layer in the mean. Here each layer rounds down instead.
std::size_t pyramid(std::size_t budget, std::size_t most, int layer, int layers) {
  if (layers < 2) return budget;
  auto b = static_cast<std::int64_t>(budget);
  auto limit = static_cast<std::int64_t>(most);
  std::int64_t low = b / 20;
  std::int64_t high = 2 * b - low;
  if (limit > 0 && high >= limit) {
    high = limit;
    low = std::max<std::int64_t>(0, 2 * b - high);
  }
  const std::int64_t drop = (layer * (high - low) + layers - 2) / (layers - 1);
  return static_cast<std::size_t>(std::max<std::int64_t>(0, high - drop));
}

}  // namespace

Budget Policy::budget(std::size_t tokens, Protocol protocol, int layer, int layers) const {
  auto size_or = [&](std::string_view key, std::size_t standard) {
    return has(key) ? static_cast<std::size_t>(integer(key)) : standard;
  };
  if (info_->window_policy == WindowPolicy::all) return {0, 0, tokens, 0};
  if (info_->global_budget) {
    require(has("bytes"), "method {}: say how much memory: {}:bytes=1/8", info_->name, info_->name);
    return {0, tokens, 0, 0};
  }
  const bool by_budget = has("budget");
  require(!has("bytes"),
          "method {}: bytes= is memory of a whole cache; here give rate= or budget=", info_->name);
  require(by_budget || has("rate"),
          "method {}: say how much to keep: {}:rate=0.25 or {}:budget=1024", info_->name,
          info_->name, info_->name);
  require(by_budget || protocol == Protocol::prefill || tokens > 0,
          "method {}: a stream of unknown length needs budget=, rate= needs a length", info_->name);

  Budget out;
  out.sink = size_or("sink", info_->sink);
  const bool slides = protocol == Protocol::stream || !keeps_generated();
  const bool fixed_window = has("window") || info_->window_policy == WindowPolicy::fixed;
  out.window = fixed_window ? size_or("window", info_->window) : 0;

  std::size_t total = 0;
  if (by_budget) {
    total = static_cast<std::size_t>(integer("budget"));
  } else {
    const std::size_t exact = out.sink + out.window;
    const std::size_t middle = tokens > exact ? tokens - exact : 0;
    total = std::min(tokens, exact) +
            static_cast<std::size_t>(std::llround(real("rate") * static_cast<double>(middle)));
    if (total < exact) {  // a text shorter than sink + window: all of it is kept
      out.sink = std::min(out.sink, total);
      out.window = total - out.sink;
    }
  }
  const bool pyramid_layers = has("layers") ? choice("layers") == "pyramid" : info_->pyramid;
  const std::size_t exact = out.sink + out.window;
  if (pyramid_layers && total > exact) {
    total = exact + pyramid(total - exact, tokens > exact ? tokens - exact : 0, layer, layers);
  }
  // A sliding window needs one entry to slide by, however little a rate leaves of a short text.
  if (slides && !by_budget) total = std::max(total, exact + 1);
  if (slides) {
    out.step = size_or("step", info_->step);
    // The summary pays for the step: by default at most a quarter of it.
    const std::size_t left = total > exact ? total - exact : 0;
    if (!option("step").given()) out.step = std::min(out.step, std::max<std::size_t>(1, left / 4));
  }
  const std::size_t needed = exact + out.step;
  if (by_budget && total < needed) {
    fail("method {}: budget={} is smaller than sink={} + window={}{}; give at least {}",
         info_->name, total, out.sink, out.window,
         slides ? fmt::format(" + step={}", out.step) : "", needed);
  }
  out.step = std::min(out.step, total - exact);
  const std::size_t rest = total - exact - out.step;
  if (!fixed_window && info_->window_policy == WindowPolicy::rest) out.window = rest;
  if (!fixed_window && info_->window_policy == WindowPolicy::half) out.window = (rest + 1) / 2;
  out.summary = fixed_window ? rest : rest - out.window;
  if (info_->make == nullptr && fixed_window) {
    // Nothing is summarised: the window takes the whole budget.
    out.window += out.summary;
    out.summary = 0;
  }
  return out;
}

}  // namespace ballast
