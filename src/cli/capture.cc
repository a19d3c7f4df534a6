// ballast capture: queries, keys and values of a running model, for experiments on attention.
#include <fmt/format.h>

#include <filesystem>
#include <numeric>

#include "ballast/engine/generate.h"
#include "base/fail.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_options.h"
#include "eval/data/benchmarks.h"
#include "eval/data/kv_capture.h"
#include "model/prefill_cost.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  std::string file;
  std::string data;
  std::size_t limit = 0;
  std::string out;
  std::string layers;
  std::size_t tokens = 0;
  std::string type = "f16";
  std::string score = "max";
  bool quiet = false;
  JsonOption json;
};

/// Reads a text and writes what its attention was given to `out`; returns what to say of it.
/// `source`: the text's name in errors.
Json capture_text(const Options& o, LoadedModel& m, const std::string& text,
                  const std::string& source, const std::string& out) {
  const TensorType type = parse_float_type(o.type);
  const ModelConfig& config = m.model.config();
  std::vector<Token> tokens = m.tokenizer.encode(text);
  if (o.tokens > 0 && o.tokens < tokens.size()) tokens.resize(o.tokens);
  require(tokens.size() <= config.max_positions, ErrorCode::over_limit,
          "{}: {} tokens, but the model has {} positions; --tokens {} takes the first ones", source,
          tokens.size(), config.max_positions, config.max_positions);
  std::vector<std::size_t> layers = parse_selection(o.layers, "--layers");
  if (layers.empty()) {
    layers.resize(config.layers);
    std::iota(layers.begin(), layers.end(), std::size_t{0});
  }
  check_capturable(config, o.model, layers, tokens.size());
  KvCapture capture(out, config, layers, type);

  CacheOptions cache;
  cache.key_type = cache.value_type = StorageType::f16;
  cache.expected_tokens = tokens.size();
  const bool scored = o.score != "none";
  if (scored) cache.recording.include(Policy::parse("replay:bytes=1/8,score=" + o.score));
  require_memory(m.model.estimate(cache, tokens.size()), available_memory(), "this run");
  Sequence sequence(m.model, cache);
  {
    Progress progress("capture", prefill_share(config, tokens.size()));
    PrefillOptions options;
    options.progress = [&](std::size_t done, std::size_t total) {
      if (!o.quiet) progress.update(static_cast<double>(done) / static_cast<double>(total));
      return true;
    };
    options.on_attention = [&](const AttentionStep& step) { capture.add(step); };
    options.finish_prompt = false;
    m.engine.prefill(sequence, tokens, options);
  }
  if (scored) {
    Progress progress("capture, second reading");
    m.engine.replay(sequence,
                    {replay_wording(m.tokenizer, false), [&](std::size_t n, std::size_t all) {
                       if (!o.quiet) {
                         progress.update(static_cast<double>(n) / static_cast<double>(all));
                       }
                       return true;
                     }});
    for (std::size_t layer : layers) {
      Matrix scores(config.kv_heads, tokens.size());
      for (std::size_t h = 0; h < config.kv_heads; ++h) {
        std::ranges::copy(sequence.cache().replay_scores(layer, h), scores[h].begin());
      }
      capture.set_scores(layer, std::move(scores));
    }
  }
  auto metadata = attention_metadata(config, sequence.cache().shape().rotary);
  if (scored) metadata["score"] = o.score;
  metadata["model"] = o.model;
  metadata["command"] = command_line();
  capture.write(metadata);
  if (o.json.text()) {
    print(fmt::format("{}: {} layer{} of {} query and {} KV heads, {} tokens of dimension {}, {}\n",
                      out, layers.size(), layers.size() == 1 ? "" : "s", config.heads,
                      config.kv_heads, format_count(tokens.size()), config.key_dim,
                      format_bytes(static_cast<double>(std::filesystem::file_size(out)))));
  }
  return {{"file", out},
          {"model", o.model},
          {"command", command_line()},
          {"type", o.type},
          {"score", scored ? Json(o.score) : Json()},
          {"layers", layers},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"tokens", tokens.size()},
          {"key_dim", config.key_dim},
          {"value_dim", config.value_dim},
          {"bytes", std::filesystem::file_size(out)}};
}

/// The prompts of a benchmark's file, without a chat template.
std::vector<Sample> read_prompts(const std::string& path) {
  std::vector<Sample> samples =
      path.ends_with("_lines.jsonl") ? read_lines(path) : read_longbench(path, {});
  join_prompts(samples);
  return samples;
}

void run(Options& o) {
  require(o.file.empty() != o.data.empty(), "capture: give one of --file and --data");
  parse_float_type(o.type);
  o.json.open();
  LoadedModel m(o.model);
  if (!o.file.empty()) {
    const std::string text = read_input(o.file);
    require(!text.empty(), "{}: there is no text in it", o.file);
    o.json.write(capture_text(o, m, text, o.file, o.out));
    return;
  }
  const std::vector<Sample> samples = read_prompts(o.data);
  std::filesystem::create_directories(o.out);
  const std::size_t count = o.limit > 0 ? std::min(o.limit, samples.size()) : samples.size();
  Json files = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    const auto file = std::filesystem::path(o.out) / fmt::format("{:04}.safetensors", i + 1);
    const std::string source = fmt::format("{}: prompt {}", o.data, i + 1);
    files.push_back(capture_text(o, m, samples[i].question, source, file.string()));
  }
  o.json.write({{"folder", o.out}, {"data", o.data}, {"files", files}});
}

}  // namespace

void add_capture(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "capture", "Write the queries, keys and values of a model that reads a text");
  add_model_option(*app, o.model);
  app->add_option("-f,--file", o.file, "The text; -: standard input")->type_name("FILE");
  app->add_option("--data", o.data,
                  "Instead: a file of LongBench or of LongEval's lines, each prompt a text")
      ->type_name("FILE");
  app->add_option("--limit", o.limit, "With --data: the first N prompts")->type_name("N");
  app->add_option("-o,--out", o.out, "The safetensors file to write; with --data a folder of them")
      ->required()
      ->type_name("FILE");
  app->add_option("--layers", o.layers, "Only these layers, such as 0,2,5-7")->type_name("LIST");
  app->add_option("--tokens", o.tokens, "Only the first N tokens of the text")->type_name("N");
  add_float_type(*app, o.type);
  app->add_option("--scores", o.score,
                  "What a second reading of the text scores tokens by, for the method replay: max, "
                  "plain, rms, mean; none: the text is read once")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(one_of({"max", "plain", "rms", "mean", "none"}));
  app->add_flag("-q,--quiet", o.quiet, "Show no progress");
  o.json.add_to(*app);
  app->footer(
      "Example:\n  ballast capture -m model.gguf -f book.txt -o qkv.safetensors --layers 0,2\n"
      "  ballast capture -m model.gguf --data triviaqa.jsonl --limit 20 -o prompts\n"
      "  ballast eval attention prompts --methods 'balancekv;uniform'");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
