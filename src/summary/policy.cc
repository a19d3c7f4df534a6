// The method string, and what a budget means.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "ballast/memory_size.h"
#include "ballast/method.h"
#include "base/fail.h"
#include "summary/registry.h"

namespace ballast {
namespace {

constexpr double kMostTokens = std::numeric_limits<std::int32_t>::max();

const Parameter* find_parameter(const MethodInfo& info, std::string_view key) {
  auto named = [&](const Parameter& p) { return p.name == key; };
  // A method may give a common key a meaning or range of its own.
  if (auto own = std::ranges::find_if(info.parameters, named); own != info.parameters.end()) {
    return &*own;
  }
  auto common = common_parameters();
  auto it = std::ranges::find_if(common, named);
  return it == common.end() ? nullptr : &*it;
}

const Parameter& need_parameter(const MethodInfo& info, std::string_view key) {
  if (const Parameter* p = find_parameter(info, key)) return *p;
  std::vector<std::string_view> known;
  for (const Parameter& p : common_parameters()) known.push_back(p.name);
  for (const Parameter& p : info.parameters) {
    if (std::ranges::find(known, p.name) == known.end()) known.push_back(p.name);
  }
  fail("method {}: unknown key '{}'; known: {}", info.name, key, fmt::join(known, ", "));
}

double parse_number(const MethodInfo& info, const Parameter& p, std::string_view text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool whole = p.kind != Parameter::Kind::integer || value == std::floor(value);
  require(error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && whole,
          "method {}: {}={} is not {}", info.name, p.name, text,
          p.kind == Parameter::Kind::integer ? "a whole number" : "a number");
  require(value >= p.low && value <= p.high, "method {}: {}={} is out of range; allowed: {} to {}",
          info.name, p.name, text, p.low, p.high);
  return value;
}

void check_choice(const MethodInfo& info, const Parameter& p, std::string_view text) {
  std::string_view rest = p.choices;
  while (!rest.empty()) {
    std::string_view one = rest.substr(0, rest.find('|'));
    if (one == text) return;
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  fail("method {}: {}={} is not one of {}", info.name, p.name, text, p.choices);
}

}  // namespace

std::string_view to_string(Protocol protocol) {
  return protocol == Protocol::prefill ? "prefill" : "stream";
}

Protocol parse_protocol(std::string_view name) {
  if (name == "prefill") return Protocol::prefill;
  if (name == "stream") return Protocol::stream;
  fail("unknown protocol '{}'; known: prefill, stream", name);
}

std::span<const Parameter> common_parameters() {
  using Kind = Parameter::Kind;
  static const std::array<Parameter, 7> all = {{
      {"rate", Kind::real, "", 1e-9, 1, "", "fraction of the middle that is kept"},
      {"budget", Kind::integer, "", 1, kMostTokens, "",
       "entries per KV head, sink and window included"},
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

Policy::Policy() : info_(&exact_method()) {}

Policy Policy::parse(std::string_view text) {
  Policy policy;
  const std::size_t colon = text.find(':');
  policy.info_ = &find_method(text.substr(0, colon));
  if (colon == std::string_view::npos) return policy;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    std::string_view item = rest.substr(0, rest.find(','));
    std::size_t equals = item.find('=');
    require(equals != std::string_view::npos && equals != 0,
            "method {}: '{}' is not key=value; an example: balancekv:rate=0.25,block=256",
            policy.info_->name, item);
    std::string_view key = item.substr(0, equals);
    require(!policy.set_.contains(key), "method {}: {} is given twice", policy.info_->name, key);
    policy = policy.with(key, item.substr(equals + 1));
    if (item.size() == rest.size()) return policy;
    rest.remove_prefix(item.size() + 1);
  }
}

Policy Policy::with(std::string_view key, std::string_view value) const {
  const Parameter& p = need_parameter(*info_, key);
  if (p.kind == Parameter::Kind::choice) {
    check_choice(*info_, p, value);
  } else if (p.kind == Parameter::Kind::memory) {
    MemorySize::parse(value);
  } else if (p.kind != Parameter::Kind::text) {
    parse_number(*info_, p, value);
  }
  Policy changed = *this;
  changed.set_.insert_or_assign(std::string(key), std::string(value));
  require(!info_->whole_cache || (key != "rate" && key != "budget"),
          "method {}: {} counts entries of a head; say how much memory: bytes=1/8", info_->name,
          key);
  require(!(changed.set_.contains("rate") && changed.set_.contains("budget")),
          "method {}: rate and budget are two ways to say the same; give one", info_->name);
  return changed;
}

std::string Policy::to_string() const {
  std::string text(info_->name);
  char separator = ':';
  auto add = [&](const Parameter& p) {
    auto it = set_.find(p.name);
    if (it == set_.end()) return;
    text += separator;
    text += it->first + "=" + it->second;
    separator = ',';
  };
  for (const Parameter& p : common_parameters()) add(p);
  for (const Parameter& p : info_->parameters) {
    auto same = [&](const Parameter& c) { return c.name == p.name; };
    if (std::ranges::none_of(common_parameters(), same)) add(p);
  }
  return text;
}

bool Policy::has(std::string_view key) const {
  return set_.contains(key) || !need_parameter(*info_, key).standard.empty();
}

std::string Policy::choice(std::string_view key) const {
  if (auto it = set_.find(key); it != set_.end()) return it->second;
  const Parameter& p = need_parameter(*info_, key);
  require(!p.standard.empty(), "method {}: {} is needed", info_->name, key);
  return std::string(p.standard);
}

double Policy::real(std::string_view key) const {
  return parse_number(*info_, need_parameter(*info_, key), choice(key));
}

std::int64_t Policy::integer(std::string_view key) const {
  return static_cast<std::int64_t>(real(key));
}

bool Policy::has_memory() const {
  return set_.contains("rate") || set_.contains("budget") || set_.contains("bytes");
}

bool Policy::keeps_generated() const {
  return has("generated") ? choice("generated") == "keep" : info_->keeps_generated;
}

AttentionStats Policy::attention_stats() const {
  return info_->attention_stats_of == nullptr ? info_->attention_stats
                                              : info_->attention_stats_of(*this);
}

std::size_t Policy::observed() const {
  const AttentionStats::Kind kind = attention_stats().kind;
  if (kind != AttentionStats::Kind::recent && kind != AttentionStats::Kind::both) return 0;
  return static_cast<std::size_t>(integer("observe"));
}

namespace {

/// PyramidKV's share of layer l, of the entries beside the window: from max on layer 0 to min on
/// the last one. The published arithmetic rounds the step between layers down, which spends up to
/// half an entry a layer more than the budget in the mean; here each layer rounds down instead.
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
  if (info_->whole_cache) {
    require(has("bytes"), "method {}: say how much memory: {}:bytes=1/8", info_->name, info_->name);
    return {0, tokens, 0, 0};
  }
  const bool by_budget = has("budget");
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
  // What slides needs an entry to slide by, however little a rate leaves of a short text.
  if (slides && !by_budget) total = std::max(total, exact + 1);
  if (slides) {
    out.step = size_or("step", info_->step);
    // The step is paid from the summary's share and may not eat it up.
    const std::size_t left = total > exact ? total - exact : 0;
    if (!set_.contains("step")) out.step = std::min(out.step, std::max<std::size_t>(1, left / 4));
  }
  const std::size_t needed = exact + out.step;
  require(!by_budget || total >= needed,
          "method {}: budget={} is smaller than sink={} + window={}{}; give at least {}",
          info_->name, total, out.sink, out.window,
          slides ? fmt::format(" + step={}", out.step) : "", needed);
  out.step = std::min(out.step, total - exact);
  const std::size_t rest = total - exact - out.step;
  if (!fixed_window && info_->window_policy == WindowPolicy::rest) out.window = rest;
  if (!fixed_window && info_->window_policy == WindowPolicy::half) out.window = (rest + 1) / 2;
  out.summary = fixed_window ? rest : rest - out.window;
  if (info_->make == nullptr && fixed_window) {
    // Nothing is summarised: what the window leaves of the budget would stay empty.
    out.window += out.summary;
    out.summary = 0;
  }
  return out;
}

}  // namespace ballast
