// ballast eval needle: depth against length, a map a method (BalanceKV, figure 4).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cli/eval/experiment.h"
#include "cli/help.h"
#include "eval/tasks/needles.h"
#include "report/units.h"
#include "text/question_form.h"

namespace ballast::cli {
namespace {

struct Options {
  SampleFlags flags;
  std::vector<std::size_t> lengths;
  std::vector<double> depths;
  std::size_t depth_count = 5;
  std::size_t needles = 1;
  std::size_t repeat = 2;
  bool passkey = false;
  std::string haystack;
};

std::vector<double> depths_of(const Options& o) {
  if (!o.depths.empty()) {
    for (double depth : o.depths) {
      require(depth >= 0 && depth <= 1, "--depths {}: a depth must be between 0 and 1", depth);
    }
    return o.depths;
  }
  std::vector<double> out;
  for (std::size_t i = 0; i < o.depth_count; ++i) {
    out.push_back(
        o.depth_count == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(o.depth_count - 1));
  }
  return out;
}

/// At most four powers of two, up to the model's positions.
std::vector<std::size_t> standard_lengths(std::size_t positions) {
  std::vector<std::size_t> out;
  for (std::size_t n = 512; n <= positions && n <= 131072; n *= 2) out.push_back(n);
  require(!out.empty(), "the model has {} positions; give --lengths", positions);
  if (out.size() > 4) out.erase(out.begin(), out.end() - 4);
  return out;
}

/// The fraction of the expected strings in the answer, as in RULER.
double found(const Sample& sample, const Answered& answer) {
  double hits = 0;
  for (const Json& text : sample.expected) {
    hits += answer.text.find(text.get<std::string>()) != std::string::npos;
  }
  return hits / static_cast<double>(sample.expected.size());
}

/// A plot a method. `rows`: by length and depth.
std::vector<Plot> make_maps(const std::string& title, const std::vector<Json>& rows,
                            const std::vector<std::size_t>& lengths,
                            const std::vector<double>& depths,
                            const std::vector<Variant>& variants) {
  Plot empty;
  empty.kind = Plot::Kind::heat;
  empty.x_title = "tokens";
  empty.y_title = "depth";
  for (std::size_t length : lengths) empty.x_labels.push_back(format_count(length));
  for (double depth : depths) empty.y_labels.push_back(fmt::format("{:.0f}%", 100 * depth));
  std::vector<Plot> plots;
  for (const Variant& variant : variants) {
    if (variant.seed != variants[0].seed) continue;
    Plot& plot = plots.emplace_back(empty);
    plot.title = title + ": " + variant.name();
    Plot::Map map{"", {}};
    map.cells.assign(depths.size(), std::vector<double>(lengths.size(), std::nan("")));
    for (const Json& row : rows) {
      if (!variant.is_of_row(row) || row["score"].is_null()) continue;
      const auto x = std::ranges::find(lengths, row["length"].get<std::size_t>());
      const auto y = std::ranges::find(depths, row["depth"].get<double>());
      map.cells[static_cast<std::size_t>(y - depths.begin())]
               [static_cast<std::size_t>(x - lengths.begin())] = row["score"];
    }
    plot.maps.push_back(std::move(map));
  }
  return plots;
}

void run(Options& o) {
  require(o.flags.limit == 0, "--limit: use --repeat, the questions for each length and depth");
  require(o.repeat > 0, "--repeat must be at least 1");
  require(o.flags.variants.types.size() < 2, "eval needle: one --cache-type at a time");
  // Prompts must not lose their middles, because the map shows their lengths.
  o.flags.ask.refuse_long = o.flags.ask.longest == 0;
  SampleRun run(o.flags);
  const Tokenizer& tokenizer = run.model().tokenizer;
  std::vector<std::size_t> lengths = o.lengths;
  if (lengths.empty()) lengths = standard_lengths(run.model().model.config().max_positions);
  run.check_lengths(lengths);
  const std::vector<double> depths = depths_of(o);
  const Haystack haystack =
      o.haystack.empty() ? Haystack(tokenizer) : Haystack(tokenizer, o.haystack);
  std::vector<Sample> samples;
  std::vector<Json> places;
  // Lengths include the answer and the chat template.
  const std::size_t beside = 16 + (o.flags.ask.raw ? 0 : template_tokens(tokenizer));
  for (std::size_t length : lengths) {
    std::size_t least = 0;  // of all questions, which differ in a few tokens
    for (double depth : depths) {
      for (std::size_t i = 0; i < o.repeat; ++i) {
        // Each question hides its own needle.
        const std::uint64_t seed = o.flags.variants.seed * 1000003 + samples.size();
        const std::size_t room = length - std::min(length, beside);
        try {
          samples.push_back(o.passkey ? passkey_sample(haystack, room, depth, seed)
                                      : needle_sample(haystack, room, depth, o.needles, seed));
        } catch (const TooShort& error) {
          least = std::max(least, error.least() + beside);
          samples.emplace_back();  // for the seed of the next one
        }
        samples.back().group = {{"length", length}};
        places.push_back({{"length", length}, {"depth", depth}});
      }
    }
    require(least == 0, "--lengths {}: the question and what is hidden need at least {} tokens",
            length, least);
  }
  SampleExperiment experiment;
  experiment.name = "needle";
  experiment.title = o.passkey ? "Passkeys in a haystack" : "Needles in a haystack";
  experiment.group = {{"length", "tokens", Unit::count, ""}};
  experiment.score_title = "found";
  experiment.overall = true;
  experiment.shown = depths.size() / 2 * o.repeat;  // in the middle of the shortest text
  experiment.settings = {{"depths", depths},
                         {"task", o.passkey ? "passkey" : "needle"},
                         {"needles", o.needles},
                         {"repeat", o.repeat},
                         {"haystack", o.haystack.empty() ? "noise" : o.haystack}};
  experiment.notes = {
      "found    answers that hold the number asked for; "
      "lengths include the chat template, the question and its answer",
      "entries  kept per KV head when the text is summarised; cache: the bytes of all layers then"};
  Result result = run.run(experiment, std::move(samples), found);
  std::vector<Sample> placed = run.samples();
  for (std::size_t i = 0; i < placed.size(); ++i) placed[i].group = places[i];
  result.plots = make_maps(result.title, score_rows(placed, run.variants(), run.answers(), found),
                           lengths, depths, run.variants());
  run.finish(std::move(result));
}

}  // namespace

void add_eval_needle(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app =
      parent.add_subcommand("needle", "Find a sentence in a long text: depth against length");
  o.flags.add_to(
      *app,
      with_storage_only(
          "replay;balancekv;balancekv:outliers=yes;snapkv;pyramidkv;streaming-llm;uniform"),
      {.caches = {"1/4"}});
  auto list = [&](const char* name, auto& value, const char* help) {
    app->add_option(name, value, help)->delimiter(',')->allow_extra_args(false)->type_name("LIST");
  };
  list("--lengths", o.lengths,
       "Tokens of the prompts; powers of two up to the model's positions if not given");
  list("--depths", o.depths, "Where the needle is, 0 to 1; if not given, evenly");
  app->add_option("--depth-count", o.depth_count, "So many depths")
      ->capture_default_str()
      ->transform(whole_number(1, 1000))
      ->type_name("N");
  app->add_option("--needles", o.needles, "Needles hidden, one of which is asked for")
      ->capture_default_str()
      ->transform(whole_number(1, 1000))
      ->type_name("N");
  app->add_option("--repeat", o.repeat, "Questions for each length and depth")
      ->capture_default_str()
      ->type_name("N");
  app->add_flag("--passkey", o.passkey, "Hide a passkey instead");
  app->add_option("--haystack", o.haystack,
                  "A folder of .txt files, or a file; five sentences over and over if not given")
      ->type_name("PATH");
  app->footer(
      "Example:\n  ballast eval needle -m model.gguf --lengths 4096,16384,65536 --haystack essays/ "
      "--methods 'exact;balancekv;streaming-llm' --cache 1/4 --plot needle.svg "
      "--json=needle.json");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
