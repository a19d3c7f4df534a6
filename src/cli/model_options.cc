#include "cli/model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "ballast/engine/packing.h"
#include "base/fail.h"
#include "cache/cache_size.h"
#include "cli/command.h"
#include "methods/replay.h"
#include "model/prefill_cost.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::cli {
void CacheFlags::add_to(CLI::App& app, bool with_method) {
  auto add = [&](const char* name, std::string& value, const char* help, const char* type) {
    options_.push_back(
        app.add_option(name, value, help)->capture_default_str()->type_name(type)->group("Cache"));
  };
  if (with_method) {
    add("--method", method, "Method string, such as balancekv:rate=0.25; see ballast methods",
        "METHOD");
    add("--cache", cache,
        "Memory of the whole cache: 1/8, 0.125 or 12% of the exact bf16 cache of the text, 256M, "
        "40K/token; what follows the text comes on top. Without --method: calibrated where the "
        "model has a calibration, else replay. auto (run): the smallest of 1/16 to 1/2 from which "
        "answers are nearly those of the exact cache, for each text",
        "SIZE");
  }
  options_.push_back(
      app.add_option("--protocol", protocol,
                     "prefill: summarise once, when the prompt has been read; stream: as tokens "
                     "come, in bounded memory")
          ->capture_default_str()
          ->type_name("NAME")
          ->group("Cache")
          ->each([this](const std::string&) { protocol_given = true; }));
  add("--positions", positions,
      "absolute: where tokens stood in the text; rolling: among the entries kept (calibrated: "
      "where "
      "they stood, as far as these reach), so that a text may be longer than the model's positions",
      "NAME");
  add("--cache-type", type, "Storage of keys and values: f32, f16, bf16, int8, int4, q4, q3, q2",
      "TYPE");
  add("--key-type", key_type, "Storage of keys, if another", "TYPE");
  add("--value-type", value_type, "Storage of values, if another", "TYPE");
  seed_ = app.add_option("--seed", seed, "Seed of the method and of sampling")
              ->capture_default_str()
              ->type_name("N");
}

void CacheFlags::add_memory_to(CLI::App& app) {
  options_.push_back(
      app.add_option("--memory", memory,
                     "Memory of the cache with questions and answers, such as 8G; what prefill "
                     "would exceed while it reads, stream reads")
          ->type_name("SIZE")
          ->group("Cache"));
}

bool CacheFlags::given() const {
  return std::ranges::any_of(options_, [](const CLI::Option* o) { return o->count() > 0; });
}

void add_pack_option(CLI::App& app, std::string& pack, const std::string& what) {
  app.add_option("--pack", pack,
                 what +
                     " packs the cache: 1/16, 1/32, 1/64 of its bytes, every token kept, with a "
                     "little loss that ballast inspect shows; for that ballast calibrate makes a "
                     "basis once a model; without one, entries of four bits. off: it goes on to "
                     "the bit")
      ->type_name("SIZE")
      ->capture_default_str()
      ->group("Cache");
}

void check_pack(std::string& pack, const Model& model, CacheOptions& options, bool quiet) {
  if (pack == "off") return;
  const bool has_basis = find_pack_codec(model) != nullptr;
  if (has_basis) pack_preset(model, pack);
  require(options.policy.info().window_policy == WindowPolicy::all,
          "--pack {}: packed caches keep every token, {} does not: leave out {}", pack,
          options.policy.to_string(),
          options.policy.has("bytes") ? "--cache or --memory" : "--method");
  if (has_basis) return;
  if (!quiet) {
    tell(
        fmt::format("note: the model has no basis to pack with: entries have four bits, a quarter "
                    "of the bytes; for --pack {}: ballast calibrate -m {}",
                    pack, model.file().path().string()));
  }
  pack = "off";
  options.key_type = options.value_type = StorageType::q4;
}

namespace {

bool begins_with(const std::string& path, std::string_view magic) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return false;
  std::string begin(magic.size(), ' ');
  std::ifstream(path, std::ios::binary)
      .read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == magic;
}

}  // namespace

bool is_packed_cache(const std::string& path) { return begins_with(path, "BALLASTP"); }
bool is_saved_cache(const std::string& path) {
  return begins_with(path, "BALLASTC") || is_packed_cache(path);
}

void CacheFlags::refuse_overridden(std::string_view with, bool draws) const {
  for (const CLI::Option* option : options_) {
    require(option->count() == 0,
            "{} has no effect with {}: the saved cache has its own; ballast inspect shows it",
            option->get_name(), with);
  }
  require(draws || seed_->count() == 0,
          "--seed has no effect with {} at --temperature 0: the saved cache has its own", with);
}

bool can_stream(const Policy& policy) {
  if (!policy.info().global_budget) return true;
  const ReplayScore score = policy.needs().replay;
  return score != ReplayScore::rms && score != ReplayScore::mean;
}

std::size_t parse_bytes(const std::string& text, std::string_view option, std::string_view hint) {
  try {
    const MemorySize size = MemorySize::parse(text);
    if (size.unit == MemorySize::Unit::bytes) return size.bytes(0, 0);
  } catch (const Error&) {  // names forms that this option does not take
  }
  fail("{} {}: give bytes with a unit, such as 512M or 8G{}", option, text, hint);
}

CacheOptions CacheFlags::parse(bool guarded) const {
  for (const CLI::Option* option : options_) {
    require(option->count() == 0 || !option->results().front().empty(),
            "{}: an empty value; leave the option out", option->get_name());
  }
  if (is_auto()) {
    require(guarded, "--cache auto: only ballast run chooses a size for each text; give 1/8");
    require(method.empty() && memory.empty(), "--cache auto chooses for itself: leave out {}",
            method.empty() ? "--memory" : "--method");
  }
  CacheOptions options;
  const bool sized = (!cache.empty() && !is_auto()) || !memory.empty();
  options.policy = Policy::parse(!method.empty() ? method : sized ? "replay" : "exact");
  require(cache.empty() || memory.empty(),
          "--cache is for the text, --memory for the text and what follows it; give one");
  if (!memory.empty()) {
    parse_bytes(memory, "--memory", "; shares of the exact cache go to --cache");
  }
  if (sized) {
    require(!options.policy.has_memory(), "{} and --method {} both say how much to keep",
            cache.empty() ? "--memory" : "--cache", method);
    options.policy = options.policy.with("bytes", cache.empty() ? memory : cache);
  }
  options.protocol = parse_protocol(protocol);
  options.positions = parse_positions(positions);
  options.key_type = parse_storage_type(key_type.empty() ? type : key_type);
  options.value_type = parse_storage_type(value_type.empty() ? type : value_type);
  options.seed = seed;
  return options;
}

void CacheFlags::choose(CacheOptions& options, const Model& model) const {
  if (!method.empty() || is_auto() || (cache.empty() && memory.empty())) return;
  options.policy = model.policy_for(cache.empty() ? memory : cache);
}

void CacheFlags::fit(CacheOptions& options, const Model& model, std::size_t prompt,
                     std::size_t after, std::size_t copies, bool quiet) const {
  const Policy& policy = options.policy;
  if (policy.info().window_policy == WindowPolicy::all) return;
  const CacheShape shape = model.cache_shape(prompt + after);
  const std::size_t token = CacheSize(shape, options).token();
  std::size_t most = available_memory();
  const std::size_t given = memory.empty() ? most : parse_bytes(memory, "--memory");
  most = std::min(most, given);
  // Beside its budget a replay pass holds a chunk.
  std::size_t chunk = 0;
  if (policy.info().global_budget) {
    chunk = std::min(prompt + after, static_cast<std::size_t>(policy.integer("chunk"))) * token;
  }
  if (prompt * token > most && chunk < most && !protocol_given && can_stream(policy) &&
      options.protocol == Protocol::prefill) {
    options.protocol = Protocol::stream;
    options.expected_tokens = prompt;
    if (!quiet) {
      tell(fmt::format(
          "note: the exact cache of {} tokens takes {}, more than the {} {}: the text is "
          "summarised while it is read, as with --protocol stream",
          prompt, format_bytes(static_cast<double>(prompt * token)),
          format_bytes(static_cast<double>(most)), memory.empty() ? "that are free" : "given"));
    }
  }
  if (memory.empty()) return;
  const bool grows = options.protocol == Protocol::prefill && policy.keeps_generated();
  const std::size_t later = grows                                  ? after * token
                            : options.protocol == Protocol::stream ? chunk
                                                                   : 0;
  require(given > later, "--memory {}: questions and answers of {} tokens take {} bytes alone",
          memory, grows ? after : chunk / token, later);
  options.policy = policy.with("bytes", fmt::format("{}B", (given - later) / copies));
}

std::string endless_advice(const Model& model, const CacheOptions& options,
                           const CacheFlags& flags) {
  const ModelConfig& config = model.config();
  if (takes_reach(options.policy) && model.turns_only()) {
    return "--protocol stream --positions rolling goes on without end";
  }
  const std::size_t budget = config.max_positions / 2;
  if (config.learned_positions || budget < 16) return "";
  // Windows that move on 64 tokens at a time read faster.
  std::string out =
      fmt::format("--method streaming-llm:budget={}{}{}", budget, budget >= 1024 ? ",step=64" : "",
                  " --protocol stream --positions rolling");
  if (!flags.cache.empty()) out += " in place of --cache";
  if (!flags.memory.empty()) out += " in place of --memory";
  return out + " reads without end, and forgets the middle";
}

void GenerateFlags::add_to(CLI::App& app) {
  auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return app.add_option(name, value, help)
        ->capture_default_str()
        ->type_name(type)
        ->group("Generation");
  };
  SamplingOptions& s = options.sampling;
  add("-n,--max-tokens", options.max_tokens,
      "Most tokens to make; 0: until the model ends or has no position left", "N");
  add("--temperature", s.temperature, "0: always the likeliest token", "T");
  add("--top-k", s.top_k, "Choose among the k likeliest tokens; 0: all", "K");
  add("--top-p", s.top_p, "Choose among the likeliest tokens that have this probability together",
      "P");
  add("--min-p", s.min_p, "Leave out tokens below this fraction of the likeliest one's probability",
      "P");
  add("--repeat-penalty", s.repetition_penalty,
      "Make the last 64 tokens of question and answer less likely; 1: not", "X");
  add("--stop", options.stop, "End before this text; may be repeated", "TEXT")
      ->allow_extra_args(false);
  app.add_flag("--no-drafts{false}", options.drafts,
               "Read one token at a time, even where the answer repeats the text; the same answer")
      ->group("Generation");
}

GenerateOptions GenerateFlags::parse(std::uint64_t seed) const {
  GenerateOptions out = options;
  out.sampling.seed = seed;
  const Sampler checks(out.sampling);
  for (const std::string& stop : out.stop) require(!stop.empty(), "--stop: an empty text");
  return out;
}

bool read_tokens(Session& session, std::span<const Token> tokens, bool quiet, double& seconds,
                 const std::atomic<bool>* cancelled) {
  const Stopwatch watch;
  Progress progress("reading", prefill_share(session.model().model.config(),
                                             session.unread() + tokens.size(), session.tokens()));
  PrefillOptions options;
  options.progress = [&](std::size_t done, std::size_t total) {
    if (!quiet) progress.update(static_cast<double>(done) / static_cast<double>(total));
    return cancelled == nullptr || !*cancelled;
  };
  options.replay.progress = [&](std::size_t, std::size_t) {
    return cancelled == nullptr || !*cancelled;
  };
  const bool whole = session.read(tokens, options);
  seconds += watch.seconds();
  return whole;
}

bool finish_prompt(Session& session, bool quiet, const std::atomic<bool>* cancelled,
                   std::vector<std::vector<Token>> questions,
                   const std::function<bool(const ReplayOptions&)>& finish) {
  Progress progress("reading again", prefill_share(session.model().model.config(), session.tokens(),
                                                   session.tokens()));
  ReplayOptions options;
  options.questions = std::move(questions);
  options.progress = [&](std::size_t done, std::size_t total) {
    if (!quiet) progress.update(static_cast<double>(done) / static_cast<double>(total));
    return cancelled == nullptr || !*cancelled;
  };
  return finish ? finish(options) : session.finish_prompt(options);
}

}  // namespace ballast::cli
