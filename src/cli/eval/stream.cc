// ballast eval stream: perplexity over an endless text (H2O, figure 5).
#include <fmt/format.h>

#include <cmath>

#include "base/fail.h"
#include "cli/eval/experiment.h"
#include "eval/tasks/stream_loss.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  std::string file;
  VariantFlags variants;
  std::string positions = "rolling";
  std::size_t tokens = 0;
  std::size_t part = 0;
  ResultOutput output;
};

/// Repeats the text up to the requested number of tokens.
std::vector<Token> stream_of(const Options& o, const Tokenizer& tokenizer) {
  std::vector<Token> text = tokenizer.encode(read_input(o.file));
  require(text.size() >= 2, "{}: {} tokens, at least 2 are needed", o.file, text.size());
  if (o.tokens == 0) return text;
  std::vector<Token> out;
  out.reserve(o.tokens);
  while (out.size() < o.tokens) {
    const std::size_t count = std::min(text.size(), o.tokens - out.size());
    out.insert(out.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return out;
}

Json to_json(const StreamLoss& loss) {
  return {{"nats", loss.nats},      {"tokens", loss.tokens},   {"whole", loss.whole},
          {"mean", loss.mean},      {"entries", loss.entries}, {"most_bytes", loss.most_bytes},
          {"seconds", loss.seconds}};
}

Json to_row(const Variant& variant, const Json& loss) {
  Json row = {{"method", variant.method}};
  if (variant.budget > 0) row["budget"] = variant.budget;
  if (variant.rate > 0) row["rate"] = variant.rate;
  row["seed"] = variant.seed;
  row["tokens"] = loss["tokens"];
  row["perplexity"] = std::exp(loss["mean"].get<double>());
  row["first"] = std::exp(loss["nats"].front().get<double>());
  row["last"] = std::exp(loss["nats"].back().get<double>());
  row["entries"] = loss["entries"];
  row["cache_bytes"] = loss["most_bytes"];
  row["seconds"] = loss["seconds"];
  row["seconds_per_token"] = loss["seconds"].get<double>() / loss["tokens"].get<double>();
  row["whole"] = loss["whole"];
  row["nats"] = loss["nats"];
  return row;
}

void run(Options& o) {
  Memory& memory = o.variants.memory;
  if (o.variants.methods.empty() && memory.rates.empty()) {
    if (memory.budgets.empty()) memory.budgets = {512};
  }
  require(memory.caches.empty(), "eval stream: give --budgets or --rates, not --cache");
  const std::vector<Variant> variants = o.variants.parse();
  const Positions positions = parse_positions(o.positions);
  LoadedModel m(o.model);
  o.output.open();
  const std::vector<Token> tokens = stream_of(o, m.tokenizer);
  if (o.part == 0) o.part = std::max<std::size_t>(1, tokens.size() / 32);

  Result result;
  result.experiment = "stream";
  result.title = fmt::format("Perplexity over {} tokens", format_count(tokens.size()));
  result.settings = {{"model", o.model},
                     {"file", o.file},
                     {"tokens", tokens.size()},
                     {"positions", o.positions},
                     {"part", o.part},
                     {"seeds", o.variants.seeds},
                     {"first_seed", o.variants.seed}};
  Json identity = result.settings;
  identity["model_file"] = model_identity(m.model);
  identity["text"] = fingerprint(tokens);
  ResultLog log = o.output.log(identity);
  Plot plot;
  plot.title = result.title;
  plot.x_title = "tokens read";
  plot.y_title = "perplexity of a part";
  plot.log_y = true;
  {
    Progress progress("eval stream");
    for (std::size_t v = 0; v < variants.size(); ++v) {
      const Variant& variant = variants[v];
      const std::string key =
          fmt::format("{}/{}/{}-{}", variant.name(), variant.seed, to_string(variant.key_type),
                      to_string(variant.value_type));
      Json found;
      if (const Json* known = log.find(key)) {
        found = *known;
      } else {
        CacheOptions options;
        options.policy = variant.policy;
        options.protocol = Protocol::stream;
        options.positions = positions;
        options.key_type = variant.key_type;
        options.value_type = variant.value_type;
        options.seed = variant.seed;
        options.expected_tokens = variant.exact() ? 0 : tokens.size();
        found = to_json(measure_stream_loss(m.engine, options, tokens, o.part, [&](double done) {
          if (o.output.quiet()) return;
          progress.update((static_cast<double>(v) + done) / static_cast<double>(variants.size()));
        }));
        log.add(key, found);
      }
      result.rows.push_back(to_row(variant, found));
      Plot::Line line{variant.name(), {}};
      for (std::size_t i = 0; i < found["nats"].size(); ++i) {
        line.points.push_back(
            {static_cast<double>((i + 1) * o.part), std::exp(found["nats"][i].get<double>()), 0});
      }
      plot.lines.push_back(std::move(line));
      if (!found["whole"].get<bool>()) {
        result.notes.push_back(
            fmt::format("{} ends after {} tokens: the model has no position more", variant.name(),
                        format_count(found["tokens"].get<std::size_t>())));
      }
    }
  }
  result.columns = {{"method", "method", Unit::text, ""},
                    {"budget", "budget", Unit::count, ""},
                    {"tokens", "tokens", Unit::count, ""},
                    {"perplexity", "perplexity", Unit::number, ""},
                    {"first", "first part", Unit::number, ""},
                    {"last", "last part", Unit::number, ""},
                    {"entries", "entries", Unit::count, ""},
                    {"cache_bytes", "cache", Unit::bytes, ""},
                    {"seconds_per_token", "token", Unit::seconds, ""}};
  if (o.variants.memory.budgets.empty()) result.columns.erase(result.columns.begin() + 1);
  result.named_by = {"method", "budget"};
  result.supporting = {"seconds_per_token", "cache_bytes", "entries", "tokens"};
  result.notes.push_back("Every token is predicted from what the cache keeps when it comes.");
  result.plots.push_back(std::move(plot));
  o.output.write(std::move(result), log);
}

}  // namespace

void add_eval_stream(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "stream", "Perplexity over a text without end, from a cache that does not grow");
  add_model_option(*app, o.model);
  app->add_option("FILE", o.file, "The text; -: standard input")->required()->type_name("");
  o.variants.add_to(*app, "h2o;streaming-llm;balancekv", {});
  app->add_option("--tokens", o.tokens,
                  "Read so many, the text over and over if it is shorter; if not given, it once")
      ->type_name("N");
  app->add_option("--part", o.part,
                  "Tokens of the parts whose perplexity is shown; a 32nd of all if not given")
      ->type_name("N");
  app->add_option("--positions", o.positions, "rolling or absolute")
      ->capture_default_str()
      ->type_name("NAME");
  o.output.add_to(*app);
  app->footer(
      "Example:\n  ballast eval stream -m model.gguf book.txt --tokens 1000000 --methods "
      "'h2o;streaming-llm' --budgets 1024 --plot stream.svg --json=stream.json");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
