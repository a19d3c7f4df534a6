#include "cli/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/os/memory.h"
#include "cache/cache_size.h"
#include "cache/mean_entries.h"
#include "cli/command.h"
#include "report/gauge_json.h"
#include "report/table.h"
#include "report/terminal.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

std::string bytes_text(std::size_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string work_table(const RunReport& r) {
  Table table(
      {{"work"}, {"tokens", Align::right}, {"time", Align::right}, {"tokens/s", Align::right}});
  auto add = [&](const char* name, const Work& w) {
    if (w.tokens == 0) return;
    table.add({name, format_count(w.tokens), format_seconds(w.seconds), format_number(w.rate())});
  };
  add("pictures", r.pictures);
  add("prompt", r.prompt);
  if (r.prompt.tokens > 0) table.add({"compress", "", format_seconds(r.compress_seconds), ""});
  if (r.gauge) table.add({"gauge", "", format_seconds(r.gauge->seconds), ""});
  add("question", r.question);
  add("answer", r.answer);
  return table.to_string(terminal_width());
}

std::string cache_table(const RunReport& r) {
  Table table({{"cache"}, {"after prompt", Align::right}, {"at the end", Align::right}});
  const CacheReport& a = r.after_prompt;
  const CacheReport& b = r.answers.empty() ? a : r.answers.back().cache;
  auto add = [&](const char* name, auto value) { table.add({name, value(a), value(b)}); };
  add("tokens", [](const CacheReport& c) { return format_count(c.tokens); });
  add("entries per KV head", [](const CacheReport& c) { return format_count(c.entries); });
  add("sink", [](const CacheReport& c) { return bytes_text(c.bytes.sink); });
  add("summary", [](const CacheReport& c) { return bytes_text(c.bytes.summary); });
  add("window", [](const CacheReport& c) { return bytes_text(c.bytes.window - c.bytes.room); });
  add("watching attention",
      [](const CacheReport& c) { return bytes_text(c.bytes.attention_stats); });
  if (a.bytes.rotary > 0) {
    add("rotary table", [](const CacheReport& c) { return bytes_text(c.bytes.rotary); });
  }
  if (a.bytes.recurrent > 0) {
    add("recurrent layers", [](const CacheReport& c) { return bytes_text(c.bytes.recurrent); });
  }
  add("used", [](const CacheReport& c) { return bytes_text(c.bytes.used()); });
  add("exact", [](const CacheReport& c) { return bytes_text(c.exact); });
  add("ratio", [](const CacheReport& c) { return fmt::format("{:.2f}×", c.ratio()); });
  add("room for more", [](const CacheReport& c) { return bytes_text(c.bytes.room); });
  return table.to_string(terminal_width());
}

Json to_json(const Work& w) {
  return {{"tokens", w.tokens}, {"seconds", w.seconds}, {"tokens_per_second", w.rate()}};
}

Json to_json(const CacheReport& c) {
  return {{"tokens", c.tokens},
          {"entries", c.entries},
          {"bytes", cli::to_json(c.bytes)},
          {"exact_bytes", c.exact},
          {"ratio", c.ratio()}};
}

Json to_json(const TokenChance& chance, const Tokenizer& tokenizer) {
  return {{"id", chance.token},
          {"text", tokenizer.decode({&chance.token, 1}, {.special = true, .text_start = false})},
          {"log_probability", chance.log_probability}};
}

Json to_json(const Answer& answer, const Tokenizer& tokenizer, const RunReport& report) {
  const bool logprobs = report.logprobs;
  const float least = least_probability(answer.generated);
  Json ids = Json::array(), chances = Json::array();
  for (const GeneratedToken& token : answer.generated.tokens) {
    ids.push_back(token.chosen.token);
    if (!logprobs) continue;
    Json chance = to_json(token.chosen, tokenizer);
    if (!token.likeliest.empty()) {
      Json& likeliest = chance["likeliest"] = Json::array();
      for (const TokenChance& other : token.likeliest) {
        likeliest.push_back(to_json(other, tokenizer));
      }
    }
    chances.push_back(std::move(chance));
  }
  Json out = {{"question", answer.question},
              {"text", answer.generated.text},
              {"finish", answer.repeats ? "repetition" : to_string(answer.generated.finish)},
              {"least_probability", least},
              {"unsure", is_unsure(answer.generated, report.unsure_below)},
              {"ids", std::move(ids)}};
  if (logprobs) out["log_probabilities"] = std::move(chances);
  if (report.cite) out["citations"] = ballast::to_json(answer.citations);
  out["cache"] = to_json(answer.cache);
  return out;
}

}  // namespace

CacheReport report_of(const Cache& cache) {
  return {cache.tokens(), mean_entries(cache), cache.bytes(),
          CacheSize(cache.shape(), cache.options()).exact(cache.tokens())};
}

bool is_unsure(const Generated& answer, float unsure_below) {
  return least_probability(answer) < unsure_below;
}

void tell_unsure(std::span<const std::size_t> numbers, std::size_t count) {
  if (numbers.empty()) return;
  flush_output();
  if (count == 1) return tell("note: the model is unsure of this answer; it may be wrong");
  tell(fmt::format("note: the model is unsure of answer{} {}; {} may be wrong",
                   numbers.size() == 1 ? "" : "s", fmt::join(numbers, ", "),
                   numbers.size() == 1 ? "it" : "they"));
}

void tell_if_not_smaller(const CacheReport& cache, const Policy& policy) {
  constexpr double kSmaller = 1.01;
  if (policy.info().window_policy == WindowPolicy::all || cache.ratio() >= kSmaller) return;
  tell(fmt::format("note: {} saves no memory on so short a text: {} for {} tokens, {} exact",
                   policy.info().name, bytes_text(cache.bytes.used()), format_count(cache.tokens),
                   bytes_text(cache.exact)));
}

std::string to_line(const RunReport& r) {
  const CacheReport& kept = r.after_prompt;
  std::string out;
  if (r.prompt.tokens > 0) {
    out = fmt::format("read {} tokens{} in {}", format_count(r.prompt.tokens),
                      r.context.empty() ? "" : " of " + r.context,
                      format_seconds(r.prompt.seconds + r.compress_seconds));
  } else {
    out = fmt::format("went on from {}, {} tokens", r.context, format_count(kept.tokens));
  }
  if (!r.context.empty()) {
    constexpr double kSmaller = 1.01;
    out += kept.ratio() > kSmaller ? fmt::format("; kept {} of {}", bytes_text(kept.bytes.used()),
                                                 bytes_text(kept.exact))
                                   : fmt::format("; kept all, {}", bytes_text(kept.bytes.used()));
    if (r.gauge) out += "; " + ballast::to_text(*r.gauge, r.options.policy);
    // From about so many tokens on an eighth has room for what it keeps: see lab/docs/evidence.md.
    constexpr std::size_t kPays = 1000;
    if (r.options.policy.info().window_policy == WindowPolicy::all && kept.tokens >= kPays) {
      out += fmt::format(" (--cache 1/8: {})", bytes_text(kept.exact / 8));
    }
  }
  if (r.answers.empty()) return out;
  const std::size_t n = r.answers.size();
  return out + fmt::format("; {} of {} tokens in {}",
                           n == 1 ? "answer" : fmt::format("{} answers", n),
                           format_count(r.answer.tokens),
                           format_seconds(r.question.seconds + r.answer.seconds));
}

std::string to_text(const RunReport& r) {
  const std::string options = fmt::format(
      "{}, {}, keys {}, values {}", r.options.policy.to_string(), to_string(r.options.protocol),
      to_string(r.options.key_type), to_string(r.options.value_type));
  const std::string memory =
      fmt::format("peak memory  {} (estimated {}: {} weights, {} cache, {} scratch, {} program)",
                  bytes_text(r.peak_memory), bytes_text(r.estimate.total() + r.program),
                  bytes_text(r.estimate.weights), bytes_text(r.estimate.cache),
                  bytes_text(r.estimate.scratch), bytes_text(r.program));
  const std::size_t width = terminal_width();
  const std::string gauge =
      r.gauge
          ? wrap_note("cost         " + ballast::to_text(*r.gauge, r.options.policy), width) + "\n"
          : "";
  return fmt::format("\n{}\n\n{}\n{}\n{}{}\n", wrap(options, width), work_table(r), cache_table(r),
                     gauge, wrap_note(memory, width));
}

Json to_json(const MemoryEstimate& e, std::size_t program) {
  return {{"weights", e.weights},
          {"cache", e.cache},
          {"scratch", e.scratch},
          {"program", program},
          {"total", e.total() + program}};
}

Json to_json(const CacheBytes& b) {
  return {{"sink", b.sink},     {"summary", b.summary},
          {"window", b.window}, {"watch", b.attention_stats},
          {"rotary", b.rotary}, {"recurrent", b.recurrent},
          {"room", b.room},     {"used", b.used()},
          {"total", b.total()}};
}

Json to_json(const RunReport& r, const Tokenizer& tokenizer) {
  Json answers = Json::array();
  for (const Answer& answer : r.answers) {
    answers.push_back(to_json(answer, tokenizer, r));
  }
  Json gauge, tried;
  if (r.gauge) gauge = ballast::to_json(*r.gauge, r.options.policy);
  if (r.guarded) tried = ballast::to_json(*r.guarded);
  return {{"model", r.model},
          {"method", r.options.policy.to_string()},
          {"protocol", to_string(r.options.protocol)},
          {"positions", to_string(r.options.positions)},
          {"key_type", to_string(r.options.key_type)},
          {"value_type", to_string(r.options.value_type)},
          {"seed", r.options.seed},
          {"answers", std::move(answers)},
          {"statistics",
           {{"pictures", to_json(r.pictures)},
            {"prompt", to_json(r.prompt)},
            {"compress_seconds", r.compress_seconds},
            {"question", to_json(r.question)},
            {"answer", to_json(r.answer)},
            {"cache_after_prompt", to_json(r.after_prompt)},
            {"gauge", std::move(gauge)},
            {"tried", std::move(tried)},
            {"peak_memory", r.peak_memory},
            {"estimate", to_json(r.estimate, r.program)}}}};
}

std::size_t program_memory(const Model& model) {
  // For code, library tables and small buffers first touched while a model runs.
  constexpr std::size_t kTouchedLater = 1 << 20;
  trim_heap();  // of the memory of reading the text
  return kTouchedLater + resident_memory(model.file().files());
}

}  // namespace ballast::cli
