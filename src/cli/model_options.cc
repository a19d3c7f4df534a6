#include "cli/model_options.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/fail.h"
#include "base/read_file.h"
#include "report/progress.h"

namespace ballast::cli {
namespace {

Tokenizer tokenizer_of(const Model& model) {
  if (const Gguf* gguf = model.file().gguf()) return Tokenizer(read_vocabulary(*gguf));
  const TokenizerSource source = model.file().tokenizer();
  return Tokenizer(read_vocabulary(source.folder));
}

}  // namespace

LoadedModel::LoadedModel(const std::string& path)
    : model(path), tokenizer(tokenizer_of(model)), engine(model) {
  require(tokenizer.size() <= model.config().vocabulary,
          "{}: the vocabulary has {} tokens, but the embedding has {} rows", path, tokenizer.size(),
          model.config().vocabulary);
}

namespace {

/// Allowance for code, library tables and small buffers first touched while a model runs.
constexpr std::size_t kTouchedLater = 1 << 20;

}  // namespace

std::size_t LoadedModel::program_memory() const {
#if defined(__GLIBC__)
  ::malloc_trim(0);  // returns the memory of reading the text
#endif
  std::vector<std::string> files;
  for (const std::filesystem::path& file : model.file().files()) {
    std::error_code unknown;
    files.push_back(std::filesystem::canonical(file, unknown).string());
  }
  std::ifstream in("/proc/self/smaps");
  bool ours = true;
  std::size_t bytes = kTouchedLater;
  for (std::string line; std::getline(in, line);) {
    // A mapping begins with a line that ends with its file; lines on it begin with a capital.
    if (!line.empty() && std::isupper(static_cast<unsigned char>(line[0])) == 0) {
      ours = std::ranges::none_of(files, [&](const auto& f) { return line.ends_with(" " + f); });
    } else if (ours && line.starts_with("Rss:")) {
      bytes += std::stoull(line.substr(4)) * 1024;
    }
  }
  return bytes;
}

void add_model_option(CLI::App& app, std::string& path) {
  app.add_option("-m,--model", path, "The model: a GGUF file or a Hugging Face folder")
      ->required()
      ->type_name("FILE");
}

void CacheFlags::add_to(CLI::App& app, bool with_method) {
  auto add = [&](const char* name, std::string& value, const char* help, const char* type) {
    app.add_option(name, value, help)->capture_default_str()->type_name(type)->group("Cache");
  };
  if (with_method) {
    add("--method", method, "Method string, such as balancekv:rate=0.25; see ballast methods",
        "METHOD");
    add("--cache", cache,
        "Memory of the whole cache, divided by the method replay: 1/8, 0.125 or 12% of the exact "
        "bf16 cache of the text, 256M, 40K/token; what follows the text comes on top",
        "SIZE");
  }
  add("--protocol", protocol,
      "prefill: summarise once, when the prompt has been read; stream: as tokens come, in bounded "
      "memory",
      "NAME");
  add("--positions", positions,
      "absolute: where tokens stood in the text; rolling: among the entries kept, so that a text "
      "may "
      "be longer than the model's positions",
      "NAME");
  add("--cache-type", type, "Storage of keys and values: f32, f16, bf16, int8, int4, q4, q3, q2",
      "TYPE");
  add("--key-type", key_type, "Storage of keys, if another", "TYPE");
  add("--value-type", value_type, "Storage of values, if another", "TYPE");
  app.add_option("--seed", seed, "Seed of the method and of sampling")
      ->capture_default_str()
      ->type_name("N");
}

CacheOptions CacheFlags::parse() const {
  CacheOptions options;
  options.policy = Policy::parse(!method.empty() ? method : cache.empty() ? "exact" : "replay");
  if (!cache.empty()) {
    const std::string_view name = options.policy.info().name;
    require(!options.policy.has_memory(), "--cache and --method {} both say how much to keep",
            method);
    require(options.policy.info().whole_cache,
            "--cache is a budget for the whole cache; {} counts entries of a head: write "
            "--method {}:rate=0.25",
            name, name);
    options.policy = options.policy.with("bytes", cache);
  }
  options.protocol = parse_protocol(protocol);
  options.positions = parse_positions(positions);
  options.key_type = parse_storage_type(key_type.empty() ? type : key_type);
  options.value_type = parse_storage_type(value_type.empty() ? type : value_type);
  options.seed = seed;
  return options;
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
}

GenerateOptions GenerateFlags::parse(std::uint64_t seed) const {
  GenerateOptions out = options;
  out.sampling.seed = seed;
  const Sampler checks(out.sampling);
  for (const std::string& stop : out.stop) require(!stop.empty(), "--stop: an empty text");
  return out;
}

std::string read_input(const std::string& path) {
  if (path == "-") {
    std::string text;
    char buffer[1 << 16];
    while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
      text.append(buffer, n);
    }
    require(std::ferror(stdin) == 0, "cannot read standard input: {}", std::strerror(errno));
    return text;
  }
  return read_file(path);
}

std::vector<float> read_tokens(Engine& engine, Sequence& sequence, std::span<const Token> tokens,
                               bool quiet, double& seconds, const std::atomic<bool>* cancelled) {
  const Stopwatch watch;
  Progress progress("reading");
  PrefillOptions options;
  options.finish_prompt = false;
  options.progress = [&](std::size_t done, std::size_t total) {
    if (!quiet) progress.update(static_cast<double>(done) / static_cast<double>(total));
    return cancelled == nullptr || !*cancelled;
  };
  std::vector<float> logits = engine.prefill(sequence, tokens, options);
  seconds += watch.seconds();
  return logits;
}

void finish_prompt(LoadedModel& m, Sequence& sequence, bool chat, bool quiet) {
  Progress progress("reading again");
  const bool has_template = !m.tokenizer.vocabulary().chat_template.empty();
  ReplayOptions options{replay_wording(m.tokenizer, chat && has_template), {}};
  options.progress = [&](std::size_t done, std::size_t total) {
    if (!quiet) progress.update(static_cast<double>(done) / static_cast<double>(total));
    return true;
  };
  m.engine.finish_prompt(sequence, options);
}

}  // namespace ballast::cli
