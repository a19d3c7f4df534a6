// ballast synth: makes a file of queries, keys and values.
#include <fmt/format.h>

#include "base/fail.h"
#include "cli/command.h"
#include "experiments/attention/kv_parameters.h"
#include "experiments/data/index_instance.h"
#include "program/commands.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  SynthOptions synth;
  std::string out;
  std::string type = "f32";
  bool index = false;
  JsonOption json;
};

void run_index(Options& o, TensorType type) {
  const IndexInstance instance({o.synth.tokens, o.synth.dim, o.synth.key_norm, o.synth.seed});
  {
    Progress progress("synth");
    write_source(instance,
                 {{"generator", "ballast synth --index"},
                  {"seed", fmt::format("{}", o.synth.seed)},
                  {"radius", fmt::format("{}", o.synth.key_norm)}},
                 o.out, type, [&](double done) { progress.update(done); });
  }
  const KvShape& s = instance.shape();
  if (o.json.text()) {
    print(fmt::format("{}: the INDEX instance of {} tokens of dimension {}, radius {:g}\n", o.out,
                      format_count(s.tokens), s.key_dim, o.synth.key_norm));
  }
  o.json.write({{"file", o.out},
                {"seed", o.synth.seed},
                {"type", o.type},
                {"tokens", s.tokens},
                {"dim", s.key_dim},
                {"radius", o.synth.key_norm}});
}

void run(Options& o) {
  const TensorType type = parse_float_type(o.type);
  o.json.open();
  if (o.index) return run_index(o, type);
  const Synth synth(o.synth);
  {
    Progress progress("synth");
    write_synth(synth, o.out, type, [&](double done) { progress.update(done); });
  }
  const KvShape& s = synth.shape();
  const std::size_t rows = s.layers * s.tokens * (s.heads + 2 * s.kv_heads);
  const std::size_t bytes = tensor_bytes(type, rows * s.key_dim);
  const bool needle = synth.needle() < s.tokens;
  if (o.json.text()) {
    print(fmt::format("{}: {} layer{} of {} query and {} KV heads, {} tokens of dimension {}, {}\n",
                      o.out, s.layers, s.layers == 1 ? "" : "s", s.heads, s.kv_heads,
                      format_count(s.tokens), s.key_dim, format_bytes(static_cast<double>(bytes))));
    if (needle) {
      print(fmt::format("the needle is token {}; the last query of query head {} looks for it\n",
                        synth.needle(), s.heads - 1));
    }
  }
  Json json = {{"file", o.out},      {"seed", o.synth.seed},
               {"type", o.type},     {"layers", s.layers},
               {"heads", s.heads},   {"kv_heads", s.kv_heads},
               {"tokens", s.tokens}, {"dim", s.key_dim},
               {"bytes", bytes},     {"needle", needle ? Json(synth.needle()) : Json()}};
  o.json.write(json);
}

}  // namespace

void add_synth(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "synth", "Make a file of queries, keys and values that look like a model's");
  app->add_option("-o,--out", options->out, "The safetensors file to write")
      ->required()
      ->type_name("FILE");
  Parameters stream;
  describe_synth(stream, options->synth);
  add_parameters(*app, stream);
  app->add_option("--seed", options->synth.seed, "Seed")->capture_default_str();
  add_float_type(*app, options->type);
  app->add_flag("--index", options->index,
                "The instance of BalanceKV's lower bound (Theorem 3.2) instead: --tokens, --dim, "
                "--key-norm (the radius) and --seed count");
  options->json.add_to(*app);
  app->footer(
      "Example:\n  ballast synth -o stream.safetensors --tokens 16384 --heads 8 "
      "--kv-heads 2 --needle 0.5");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
