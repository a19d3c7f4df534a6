// ballast eval neurons: heavy hitters among the neurons of the feed-forward blocks (H2O, Figures 11
// to 13 and Table 12).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ballast/random.h"
#include "base/fail.h"
#include "cli/command.h"
#include "cli/eval/experiment.h"
#include "cli/model_options.h"
#include "eval/single_layer/memory_error.h"
#include "eval/tasks/neurons.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> texts;
  std::string other;
  double frequency = 0.2;
  std::size_t length = 0;
  std::uint64_t seed = 0;
  ResultOutput output;
};

using Neurons = std::vector<std::vector<bool>>;

/// As many neurons of each layer, drawn at random.
Neurons as_many(const Neurons& set, std::uint64_t seed) {
  Neurons out = set;
  for (std::size_t l = 0; l < set.size(); ++l) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < set[l].size(); ++i) {
      order.emplace_back(random_unit({seed, static_cast<std::uint32_t>(l), 0}, i), i);
    }
    std::ranges::sort(order);
    const auto count = std::ranges::count(set[l], true);
    out[l].assign(set[l].size(), false);
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      out[l][order[static_cast<std::size_t>(i)].second] = true;
    }
  }
  return out;
}

std::size_t size_of(const Neurons& set) {
  std::size_t count = 0;
  for (const auto& layer : set) count += static_cast<std::size_t>(std::ranges::count(layer, true));
  return count;
}

void add_layer(std::size_t number, std::vector<double> frequency, double least, Result& out) {
  const auto neurons = static_cast<double>(frequency.size());
  std::ranges::sort(frequency, std::greater<>());
  const auto heavy = std::ranges::count_if(frequency, [&](double f) { return f > least; });
  const auto rare = std::ranges::count_if(frequency, [](double f) { return f < 0.01; });
  std::vector<double> ranks, heights;
  Plot::Line line{fmt::format("layer {}", number), {}};
  for (std::size_t r = 1; r <= frequency.size(); r *= 2) {
    line.points.push_back({static_cast<double>(r), frequency[r - 1]});
    if (frequency[r - 1] <= 0) continue;
    ranks.push_back(static_cast<double>(r));
    heights.push_back(frequency[r - 1]);
  }
  out.rows.push_back({{"of", fmt::format("layer {}", number)},
                      {"heavy", static_cast<double>(heavy) / neurons},
                      {"rare", static_cast<double>(rare) / neurons},
                      {"largest", frequency[0]},
                      {"slope", ranks.size() > 1 ? Json(log_slope(ranks, heights)) : Json()}});
  out.plots[0].lines.push_back(std::move(line));
}

std::vector<Token> tokens_of(const Options& o, const LoadedModel& m, const std::string& file) {
  std::vector<Token> tokens = m.tokenizer.encode(read_input(file));
  const std::size_t positions = m.model.config().max_positions;
  const std::size_t most = o.length > 0 ? std::min(o.length, positions) : positions;
  if (tokens.size() > most) tokens.resize(most);
  require(tokens.size() >= 2, "{}: {} tokens, at least 2 are needed", file, tokens.size());
  return tokens;
}

Json to_json(const NeuronUse& use) { return use.frequency; }

void run(Options& o) {
  require(o.frequency > 0 && o.frequency < 1, "--frequency {:g}: expected between 0 and 1",
          o.frequency);
  LoadedModel m(o.model);
  std::vector<std::vector<Token>> texts;
  Json fingerprints = Json::array();
  for (const std::string& file : o.texts) {
    texts.push_back(tokens_of(o, m, file));
    fingerprints.push_back(fingerprint(texts.back()));
  }
  o.output.open();
  ResultLog log = o.output.log({{"experiment", "neurons"},
                                {"model_file", model_identity(m.model)},
                                {"texts", fingerprints},
                                {"other", o.other},
                                {"frequency", o.frequency},
                                {"seed", o.seed}});
  Result result;
  result.experiment = "neurons";
  result.title = fmt::format("Neurons of the feed-forward blocks, {}: {} tokens", o.texts[0],
                             format_count(texts[0].size()));
  result.settings = {{"model", o.model},
                     {"texts", o.texts},
                     {"frequency", o.frequency},
                     {"tokens", texts[0].size()},
                     {"seed", o.seed}};
  result.plots.resize(1);
  result.plots[0].title = "Frequency of activation";
  result.plots[0].x_title = "rank of the neuron";
  result.plots[0].y_title = "fraction of the tokens";
  result.plots[0].log_x = result.plots[0].log_y = true;
  const auto used = [&](const std::string& name, const Model& model,
                        std::span<const Token> tokens) {
    NeuronUse use;
    log.find_or_make(name, [&] { return to_json(count_neurons(model, tokens)); })
        .get_to(use.frequency);
    return use;
  };
  const NeuronUse first = used("text 0", m.model, texts[0]);
  for (std::size_t l = 0; l < first.frequency.size(); ++l) {
    add_layer(l, first.frequency[l], o.frequency, result);
  }
  const Neurons heavy = first.above(o.frequency);
  const auto add_overlap = [&](const std::string& name, const NeuronUse& use) {
    const Neurons other = use.above(o.frequency);
    result.rows.push_back({{"of", name},
                           {"overlap", overlap(heavy, other)},
                           {"overlap_random", overlap(heavy, as_many(other, o.seed))}});
  };
  for (std::size_t t = 1; t < texts.size(); ++t) {
    add_overlap(o.texts[t], used(fmt::format("text {}", t), m.model, texts[t]));
  }
  if (!o.other.empty()) {
    const Model other(o.other);
    require(other.config().layers == m.model.config().layers &&
                other.config().ffn_width == m.model.config().ffn_width &&
                other.config().vocabulary == m.model.config().vocabulary,
            "--checkpoint {}: not of the same shape as {}", o.other, o.model);
    add_overlap(o.other, used("checkpoint", other, texts[0]));
  }
  const std::pair<const char*, Neurons> removals[] = {
      {"every neuron", {}},
      {"without heavy hitters", heavy},
      {"without as many at random", as_many(heavy, o.seed)}};
  for (const auto& [name, removed] : removals) {
    const Json found = log.find_or_make(name, [&] {
      const RunningMean made = loss_without(m.model, texts[0], removed);
      return Json{made.count, made.sum, made.squares};
    });
    const RunningMean losses{found.at(0).get<std::size_t>(), number_of(found.at(1)),
                             number_of(found.at(2))};
    result.rows.push_back({{"of", name},
                           {"removed", size_of(removed)},
                           {"perplexity", std::exp(losses.mean())},
                           {"nats_per_token", losses.mean()},
                           {"nats_standard_error", losses.error()},
                           {"nats_per_token_error", losses.error()}});
  }
  result.columns = {{"of", ""},
                    {"heavy", "heavy", Unit::percent},
                    {"rare", "rare", Unit::percent},
                    {"largest", "most", Unit::percent},
                    {"slope", "slope", Unit::number},
                    {"overlap", "overlap", Unit::percent},
                    {"overlap_random", "by chance", Unit::percent},
                    {"removed", "removed", Unit::count},
                    {"perplexity", "perplexity", Unit::number},
                    {"nats_per_token", "nats/token", Unit::number, "nats_standard_error"}};
  result.notes = {
      fmt::format("heavy      neurons active in more than {:g}% of the tokens; rare: in under 1%; "
                  "most: of the busiest neuron",
                  100 * o.frequency),
      m.model.config().activation == Activation::relu
          ? "active     not 0"
          : "active     magnitude at least a tenth of the token's largest, for this activation is "
            "hardly ever 0",
      "overlap    heavy neurons of both texts (or checkpoints) over those of either; by chance: as "
      "many at random",
      "perplexity of the first text with these neurons set to 0; the paper also trains on (Table "
      "12), which needs a trainer"};
  o.output.write(std::move(result), log);
}

}  // namespace

void add_eval_neurons(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "neurons", "Heavy hitters among the neurons of the MLP (H2O, Figures 11 to 13, Table 12)");
  add_model_option(*app, o.model);
  app->add_option("FILE", o.texts, "Texts; others than the first are compared with it")
      ->required()
      ->type_name("");
  app->add_option("--frequency", o.frequency, "A neuron active in more of the tokens is heavy")
      ->capture_default_str();
  app->add_option("--checkpoint", o.other, "The same model at another time of its training")
      ->type_name("FILE");
  app->add_option("--length", o.length, "Tokens of a text; all positions if not given")
      ->type_name("N");
  app->add_option("--seed", o.seed, "Of the neurons drawn at random")->capture_default_str();
  o.output.add_to(*app);
  app->footer("Example:\n  ballast eval neurons -m model.gguf book.txt news.txt");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
