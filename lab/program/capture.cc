// ballast capture: queries, keys and values of a running model, for experiments on attention.
#include <fmt/format.h>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_options.h"
#include "experiments/attention/kv_parameters.h"
#include "experiments/data/kv_capture.h"
#include "experiments/data/loaded_model.h"
#include "program/commands.h"
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

void say(const Json& found) {
  const auto count = [&](const char* key) { return found.at(key).get<std::size_t>(); };
  const std::size_t layers = found.at("layers").size();
  print(fmt::format("{}: {} layer{} of {} query and {} KV heads, {} tokens of dimension {}, {}\n",
                    found.at("file").get<std::string>(), layers, layers == 1 ? "" : "s",
                    count("heads"), count("kv_heads"), format_count(count("tokens")),
                    count("key_dim"), format_bytes(static_cast<double>(count("bytes")))));
}

void run(Options& o) {
  require(o.file.empty() != o.data.empty(), "capture: give one of --file and --data");
  CaptureOptions options;
  options.type = parse_float_type(o.type);
  options.layers = parse_selection(o.layers, "--layers");
  options.tokens = o.tokens;
  options.score = o.score;
  options.quiet = o.quiet;
  options.command = command_line();
  o.json.open();
  LoadedModel m(o.model);
  if (!o.file.empty()) {
    const std::string text = read_text(o.file, o.quiet);
    require(!text.empty(), "{}: there is no text in it", o.file);
    const Json found = capture_text(m, text, o.file, o.out, options);
    if (o.json.text()) say(found);
    o.json.write(found);
    return;
  }
  const Json files = capture_prompts(m, o.data, o.limit, o.out, options);
  if (o.json.text()) {
    for (const Json& found : files) say(found);
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
                  "What a replay pass of the text scores tokens by, for the method replay: max, "
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
