#include "targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "report/table.h"
#include "report/units.h"

namespace ballast {
namespace {

using Kind = Target::Kind;

/// One entry of Google Benchmark's JSON: "decode/int4/dim:64/group:4/…" and its counters.
class Run {
 public:
  explicit Run(const Json& json) : json_(json) {
    const std::string name = json.at("name");
    for (std::size_t begin = 0; begin <= name.size();) {
      const std::size_t end = std::min(name.find('/', begin), name.size());
      parts_.push_back(name.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  const std::string& kind() const { return parts_[0]; }
  /// The storage type of a cache or of weights.
  std::string type() const { return parts_.size() > 1 ? parts_[1] : ""; }
  /// The 64 of "dim:64" in the name; -1 if there is none.
  int argument(std::string_view name) const {
    for (const std::string& part : parts_) {
      if (part.starts_with(name) && part.size() > name.size() && part[name.size()] == ':') {
        return std::stoi(part.substr(name.size() + 1));
      }
    }
    return -1;
  }
  double counter(const char* name) const { return number_of(json_.at(name)); }
  bool has(const char* name) const { return json_.contains(name); }

 private:
  const Json& json_;
  std::vector<std::string> parts_;
};

std::vector<Run> runs_of(const Json& file) {
  std::vector<Run> runs;
  for (const Json& json : file.at("benchmarks")) {
    if (json.value("run_type", "iteration") == "iteration") runs.emplace_back(json);
  }
  return runs;
}

/// Lines in the order of their creation. take() drops those without a result.
class Lines {
 public:
  void part(std::string name) { part_ = std::move(name); }
  Target& at_least(double bound, std::string what, Kind kind) {
    return add(true, bound, what, kind);
  }
  Target& at_most(double bound, std::string what, Kind kind) {
    return add(false, bound, what, kind);
  }
  Target& only(std::string what, Kind kind) { return add(true, {}, what, kind); }
  std::vector<Target> take() {
    std::erase_if(targets_, [](const Target& target) { return target.measured.empty(); });
    return std::move(targets_);
  }

 private:
  Target& add(bool at_least, std::optional<double> bound, std::string what, Kind kind) {
    return targets_.emplace_back(Target{part_, std::move(what), kind, at_least, bound, {}});
  }

  std::string part_;
  std::vector<Target> targets_;
};

void decode_attention(Lines& lines, const std::vector<Run>& runs) {
  lines.part("Attention while decoding, two threads, 16,384 entries");
  const auto each = [&](Target& target, const char* counter, const auto& counts) {
    for (const Run& run : runs) {
      if (run.kind() != "decode" || run.argument("threads") != 2 || !counts(run)) continue;
      if (!run.has(counter)) continue;
      const int group = run.argument("group");
      std::string name = fmt::format("{}, d = {}", run.type(), run.argument("dim"));
      if (group > 1) name += fmt::format(", {} queries", group);
      target.measured.push_back({name, run.counter(counter)});
    }
  };
  const auto plain = [](const Run& run) { return run.argument("weighted") == 0; };
  const auto of = [&](std::string_view type) {
    return [=](const Run& run) { return plain(run) && run.type() == type; };
  };
  for (const char* type : {"bf16", "f16", "int8", "int4", "q4", "q2"}) {
    const std::string_view name = type;
    const double bound = name == "int4" || name == "q2" ? 0.6 : 0.8;
    each(lines.at_least(bound, fmt::format("{}, of the plain read", type), Kind::percent),
         "of_read", of(type));
  }
  each(lines.only("f32, of the plain read", Kind::percent), "of_read", of("f32"));
  each(lines.at_most(0.05, "four queries beside one", Kind::percent), "cost",
       [&](const Run& run) { return plain(run) && run.argument("group") > 1; });
  each(lines.at_most(0.05, "weights", Kind::percent), "cost",
       [&](const Run& run) { return !plain(run); });
  each(lines.at_least(3.6, "a quarter of the entries", Kind::times), "quarter", plain);
}

void gemv(Lines& lines, const std::vector<Run>& runs) {
  lines.part("GEMV, two threads");
  Target& decode =
      lines.at_least(0.8, "a token: Q4_0, Q4_K, Q6_K, Q8_0, of the plain read", Kind::percent);
  constexpr std::string_view kNamed[] = {"Q4_0", "Q4_K", "Q6_K", "Q8_0"};
  for (const Run& run : runs) {
    const std::string type = run.type();
    if (run.kind() != "decode" || run.argument("threads") != 2 || run.argument("m") != 1) continue;
    if (std::find(std::begin(kNamed), std::end(kNamed), type) == std::end(kNamed)) continue;
    decode.measured.push_back({fmt::format("{}, width {}, pages of {} KiB", type,
                                           run.argument("width"), run.argument("pages_KiB")),
                               run.counter("of_read")});
  }
}

void prefill(Lines& lines, const std::vector<Run>& attention, const std::vector<Run>& matmul) {
  lines.part("Prompts");
  const auto attending = [&](double bound, const char* what, const char* counter,
                             const auto& counts) {
    Target& target = lines.at_least(bound, what, Kind::percent);
    for (const Run& run : attention) {
      if (run.kind() != "prompt" || !run.has(counter) || !counts(run)) continue;
      target.measured.push_back(
          {fmt::format("{}, d = {}", run.type(), run.argument("dim")), run.counter(counter)});
    }
  };
  attending(0.5, "attention, of the bf16 peak", "of_bf16",
            [](const Run& run) { return !run.has("of_tiles"); });
  attending(0.35, "attention by tiles, of their peak", "of_tiles",
            [](const Run& run) { return run.type() == "bf16" || run.type() == "int8"; });
  Target& gemm = lines.at_least(0.5, "GEMM, of the peak", Kind::percent);
  Target& threads = lines.at_least(1.8, "two threads beside one", Kind::times);
  for (const Run& run : matmul) {
    if (run.kind() != "prompt") continue;
    const std::string name = fmt::format("{}, width {}", run.type(), run.argument("width"));
    if (run.argument("threads") == 2) {
      gemm.measured.push_back({name, run.counter("of_peak")});
      for (const Run& other : matmul) {
        if (other.kind() != "prompt" || other.argument("threads") != 1) continue;
        if (other.type() != run.type() || other.argument("width") != run.argument("width"))
          continue;
        threads.measured.push_back({name, run.counter("Gflop/s") / other.counter("Gflop/s")});
      }
    }
  }
}

std::string method_of(const Json& row) { return row.at("method"); }

const Json* find(const Json& rows, std::string_view method, std::size_t prompt) {
  for (const Json& row : rows) {
    if (method_of(row) == method && row.at("prompt") == prompt) return &row;
  }
  return nullptr;
}

void whole_model(Lines& lines, const Json& rows) {
  constexpr std::size_t kLong = 16384, kShort = 512;
  lines.part("A whole model beside llama.cpp");
  const auto beside = [&](Target& target, const char* key, std::string_view method,
                          std::size_t prompt) {
    const Json* row = find(rows, method, prompt);
    if (row == nullptr || !row->contains(key) || row->at(key).is_null()) return;
    target.measured.push_back({std::string(method), row->at(key)});
  };
  const std::string_view exact = "exact", quarter = "balancekv:rate=0.25";
  const char* decode = "decode_speed_over_peer";
  beside(lines.at_least(2, "a token after 16,384, exact", Kind::times), decode, exact, kLong);
  beside(lines.at_least(5, "a token after 16,384, a quarter kept", Kind::times), decode, quarter,
         kLong);
  Target& near = lines.at_least(1, "a token after 512", Kind::times);
  beside(near, decode, exact, kShort);
  beside(near, decode, quarter, kShort);
  beside(lines.at_least(3, "a prompt of 16,384", Kind::times), "prompt_speed_over_peer", exact,
         kLong);
}

void summaries(Lines& lines, const Json* speed, const Json* methods, const std::vector<Run>& runs) {
  constexpr std::size_t kLong = 16384;
  lines.part("Summarizing 16,384 tokens");
  const auto of_prompt = [&](Target& target, const Json* rows, std::string_view method) {
    const Json* row = rows == nullptr ? nullptr : find(*rows, method, kLong);
    if (row == nullptr) return;
    const double prompt = number_of(row->at("prompt_seconds"));
    target.measured.push_back(
        {std::string(method), number_of(row->at("compress_seconds")) / prompt});
  };
  of_prompt(lines.at_most(0.02, "BalanceKV, of the prompt", Kind::percent), speed,
            "balancekv:rate=0.25");
  Target& gram = lines.at_most(2.5, "BalanceKV, b = 256, of its Gram matrices", Kind::times);
  for (const Run& run : runs) {
    if (run.kind() == "BM_Balance" && run.type() == "256") {
      gram.measured.push_back({"b = 256", run.counter("of_floor")});
    }
  }
  of_prompt(lines.at_most(0.02, "SnapKV, of the prompt", Kind::percent), methods,
            "snapkv:rate=0.25");
  Target& h2o = lines.at_most(0.35, "H2O's scores, added to the prompt", Kind::percent);
  Target& clusters = lines.only("ClusterGen", Kind::seconds);
  Target& centres = lines.only("k-center, 4,096 centres a head", Kind::seconds);
  if (methods == nullptr) return;
  const Json* exact = find(*methods, "exact", kLong);
  if (const Json* row = find(*methods, "h2o:rate=0.25", kLong);
      row != nullptr && exact != nullptr) {
    const double added =
        number_of(row->at("prompt_seconds")) / number_of(exact->at("prompt_seconds")) - 1;
    h2o.measured.push_back({"h2o:rate=0.25", added});
  }
  const auto seconds = [&](Target& target, std::string_view method) {
    if (const Json* row = find(*methods, method, kLong)) {
      target.measured.push_back({std::string(method), number_of(row->at("compress_seconds"))});
    }
  };
  seconds(clusters, "clustergen:rate=0.25");
  seconds(centres, "kcenter:rate=0.25");
}

// Memory sizes that hold exactly one exact sequence. The exact row comes first at each size and
// prompt.
void throughput(Lines& lines, const Json& rows) {
  lines.part("Tokens a second where memory holds one exact cache");
  Target& target = lines.at_least(3, "decoding, beside exact", Kind::times);
  const Json* exact = nullptr;
  for (const Json& row : rows) {
    if (method_of(row) == "exact") {
      exact = row.at("batch") == 1 ? &row : nullptr;
      continue;
    }
    if (exact == nullptr || row.at("batch") == 0) continue;
    const std::size_t prompt = row.at("prompt");
    target.measured.push_back({fmt::format("{} after {}", method_of(row), format_count(prompt)),
                               number_of(row.at("decode_tokens_per_second")) /
                                   number_of(exact->at("decode_tokens_per_second"))});
  }
}

// Compares the last length with the first one that exceeds every budget.
void scale(Lines& lines, const std::string& what, const Json& rows) {
  constexpr std::size_t kBeyondBudgets = 2048;
  Target& time = lines.only(fmt::format("a token, {}", what), Kind::times);
  Target& memory = lines.only(fmt::format("memory, {}", what), Kind::times);
  const Json* first = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    if (row.at("tokens") == kBeyondBudgets) first = &row;
    const bool last = i + 1 == rows.size() || method_of(rows[i + 1]) != method_of(row);
    if (!last || first == nullptr || first == &row || method_of(*first) != method_of(row)) continue;
    const std::size_t tokens = row.at("tokens");
    const std::string name = fmt::format("{}, {}", method_of(row), format_count(tokens));
    const auto ratio = [&](const char* key) {
      return number_of(row.at(key)) / number_of(first->at(key));
    };
    time.measured.push_back({name, ratio("decode_seconds_per_token")});
    memory.measured.push_back({name, ratio("peak_memory")});
  }
}

// A percentage or a ratio without its sign.
std::string digits(Kind kind, double value) {
  if (kind == Kind::percent)
    return fmt::format("{:.{}f}", 100 * value, std::abs(value) < 0.0995 ? 1 : 0);
  return fmt::format("{:.{}f}", value, std::abs(value) < 9.95 ? 2 : 1);
}

std::string_view sign_of(Kind kind) { return kind == Kind::percent ? "%" : "×"; }

std::string text_of(Kind kind, double value) {
  if (kind == Kind::seconds) return format_seconds(value);
  return digits(kind, value).append(sign_of(kind));
}

std::string bound_of(const Target& target) {
  if (!target.bound) return "";
  const double number = target.kind == Kind::percent ? 100 * *target.bound : *target.bound;
  return fmt::format("{} {:.3g}{}", target.at_least ? "≥" : "≤", number, sign_of(target.kind));
}

std::string range_of(const Target& target) {
  const auto [low, high] =
      std::minmax_element(target.measured.begin(), target.measured.end(),
                          [](const Measured& a, const Measured& b) { return a.value < b.value; });
  const std::string from = text_of(target.kind, low->value), to = text_of(target.kind, high->value);
  if (from == to) return to;
  return fmt::format("{} to {}",
                     target.kind == Kind::seconds ? from : digits(target.kind, low->value), to);
}

std::vector<Measured> misses(const Target& target) {
  std::vector<Measured> missed;
  for (const Measured& m : target.measured) {
    if (!target.reaches(m.value)) missed.push_back(m);
  }
  return missed;
}

}  // namespace

bool Target::reaches(double value) const {
  if (!bound) return true;
  return at_least ? value >= *bound : value <= *bound;  // NaN reaches nothing
}

bool Target::reached() const {
  return std::all_of(measured.begin(), measured.end(),
                     [&](const Measured& m) { return reaches(m.value); });
}

std::vector<Target> targets_of(const std::map<std::string, Json>& files) {
  const auto results = [&](const char* name) -> const Json* {
    const auto file = files.find(name);
    return file == files.end() ? nullptr : &file->second.at("results");
  };
  const auto runs = [&](const char* name) {
    const auto file = files.find(name);
    return file == files.end() ? std::vector<Run>() : runs_of(file->second);
  };
  const std::vector<Run> attention = runs("attention"), matmul = runs("matmul");
  Lines lines;
  decode_attention(lines, attention);
  gemv(lines, matmul);
  prefill(lines, attention, matmul);
  if (const Json* rows = results("speed")) whole_model(lines, *rows);
  summaries(lines, results("speed"), results("methods"), runs("balance"));
  if (const Json* rows = results("throughput")) throughput(lines, *rows);
  lines.part("Longest text beside 2,048 tokens, protocol stream");
  if (const Json* rows = results("scale")) scale(lines, "a whole model", *rows);
  if (const Json* rows = results("far")) scale(lines, "the shipped model", *rows);
  return lines.take();
}

std::string to_text(const std::vector<Target>& targets) {
  Table table({{""}, {"target", Align::right}, {"this run", Align::right}, {""}});
  std::string below;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    if (i == 0 || targets[i - 1].part != target.part) {
      if (i > 0) table.add_gap();
      table.add({target.part, "", "", ""});
    }
    const std::vector<Measured> missed = misses(target);
    const std::string verdict =
        !target.bound    ? ""
        : missed.empty() ? "reached"
                         : fmt::format("not by {} of {}", missed.size(), target.measured.size());
    table.add({"  " + target.what, bound_of(target), range_of(target), verdict});
    if (missed.empty()) continue;
    below += fmt::format("\n{}: {}:", target.part, target.what);
    for (const Measured& m : missed) {
      below += fmt::format("\n  {:<40} {:>8}", m.name, text_of(target.kind, m.value));
    }
    below += '\n';
  }
  return table.to_string() + (below.empty() ? "" : "\nNot reached\n" + below);
}

Json to_json(const std::vector<Target>& targets) {
  Json out = Json::array();
  for (const Target& target : targets) {
    Json measured = Json::array();
    for (const Measured& m : target.measured) {
      measured.push_back(
          {{"name", m.name}, {"value", m.value}, {"reaches", target.reaches(m.value)}});
    }
    out.push_back(
        {{"part", target.part},
         {"what", target.what},
         {"unit", target.kind == Kind::seconds ? "seconds" : "ratio"},
         {target.at_least ? "at_least" : "at_most", target.bound ? Json(*target.bound) : Json()},
         {"reached", target.bound ? Json(target.reached()) : Json()},
         {"measured", std::move(measured)}});
  }
  return out;
}

}  // namespace ballast
