#include "experiments/tasks/neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ballast/engine/sampler.h"
#include "ballast/random.h"
#include "base/fail.h"
#include "experiments/attention/memory_error.h"
#include "experiments/tasks/sample_run.h"
#include "formats/utf8_text.h"
#include "model/cache_batch.h"
#include "model/forward.h"
#include "report/units.h"

namespace ballast {
namespace {

constexpr std::size_t kChunk = 256;

/// Reads the tokens in chunks; after each one `logits(first, count)` may ask for its logits.
template <typename Chunk>
void read(Forward& forward, std::span<const Token> tokens, const Chunk& after) {
  CacheOptions options;
  options.key_type = options.value_type = StorageType::bf16;
  options.expected_tokens = tokens.size();
  Sequence sequence(forward.model(), options);
  for (std::size_t done = 0; done < tokens.size(); done += kChunk) {
    const std::size_t count = std::min(kChunk, tokens.size() - done);
    CacheBatch batch(forward.model());
    batch.add(sequence, tokens.subspan(done, count));
    forward.run(batch.runs(), batch);
    after(done, count);
  }
}

}  // namespace

std::vector<std::vector<bool>> NeuronUse::above(double least) const {
  std::vector<std::vector<bool>> out;
  for (const std::vector<double>& layer : frequency) {
    out.emplace_back();
    for (double f : layer) out.back().push_back(f > least);
  }
  return out;
}

bool is_active(Activation activation, float neuron, float largest) {
  if (activation == Activation::relu) return neuron != 0;
  return neuron != 0 && std::abs(neuron) >= 0.1f * largest;
}

void count_active(Activation activation, ConstMatrix neurons, std::span<std::size_t> counts) {
  for (std::size_t t = 0; t < neurons.rows; ++t) {
    float largest = 0;
    for (float x : neurons[t]) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < neurons.cols; ++i) {
      counts[i] += is_active(activation, neurons[t][i], largest) ? 1 : 0;
    }
  }
}

NeuronUse count_neurons(const Model& model, std::span<const Token> tokens) {
  const ModelConfig& config = model.config();
  tokens = tokens.first(std::min(tokens.size(), config.max_positions));
  require(!tokens.empty(), "a text without tokens activates no neuron");
  require(config.experts == 0, ErrorCode::unsupported, "the neurons of experts are not counted");
  std::vector<std::vector<std::size_t>> counts(config.layers,
                                               std::vector<std::size_t>(config.ffn_width));
  Forward forward(model, Forward::kAll, [&](std::size_t layer, MutableMatrix neurons) {
    count_active(config.activation, neurons, counts[layer]);
  });
  read(forward, tokens, [](std::size_t, std::size_t) {});
  NeuronUse out;
  for (const std::vector<std::size_t>& layer : counts) {
    out.frequency.emplace_back();
    for (std::size_t count : layer) {
      out.frequency.back().push_back(static_cast<double>(count) /
                                     static_cast<double>(tokens.size()));
    }
  }
  return out;
}

RunningMean loss_without(const Model& model, std::span<const Token> tokens,
                         const std::vector<std::vector<bool>>& removed) {
  const ModelConfig& config = model.config();
  tokens = tokens.first(std::min(tokens.size(), config.max_positions));
  require(tokens.size() >= 2, "a text of {} tokens; at least 2 are needed", tokens.size());
  const auto remove = [&](std::size_t layer, MutableMatrix neurons) {
    for (std::size_t t = 0; t < neurons.rows; ++t) {
      for (std::size_t i = 0; i < neurons.cols; ++i) {
        if (removed[layer][i]) neurons[t][i] = 0;
      }
    }
  };
  Forward forward(model, Forward::kAll, removed.empty() ? OnNeurons() : remove);
  RunningMean losses;
  Matrix logits(Engine::kLogitRows, config.vocabulary);
  read(forward, tokens, [&](std::size_t done, std::size_t count) {
    for (std::size_t i = 0; i < count; i += Engine::kLogitRows) {
      const MutableMatrix rows = logits.view().slice(0, std::min(Engine::kLogitRows, count - i));
      forward.logits(i, rows);
      for (std::size_t r = 0; r < rows.rows && done + i + r + 1 < tokens.size(); ++r) {
        losses.add(token_loss(rows[r], tokens[done + i + r + 1]));
      }
    }
  });
  return losses;
}

double overlap(const std::vector<std::vector<bool>>& a, const std::vector<std::vector<bool>>& b) {
  std::size_t both = 0, either = 0;
  for (std::size_t l = 0; l < a.size(); ++l) {
    for (std::size_t i = 0; i < a[l].size(); ++i) {
      both += a[l][i] && b[l][i] ? 1 : 0;
      either += a[l][i] || b[l][i] ? 1 : 0;
    }
  }
  return either == 0 ? 1 : static_cast<double>(both) / static_cast<double>(either);
}

namespace {

struct NeuronParameters {
  std::string model;
  std::vector<std::string> texts;
  std::string other;
  double frequency = 0.2;
  std::size_t length = 0;
  std::uint64_t seed = 0;

  void describe(Parameters& p) {
    p.add_model(model);
    p.add("FILE", texts, "Texts; others than the first are compared with it", {.needed = true});
    p.add("--frequency", frequency, "A neuron active in more of the tokens is heavy");
    p.add("--checkpoint", other, "The same model at another time of its training",
          {.type = "FILE"});
    p.add("--length", length, "Tokens of a text; all positions if not given");
    p.add("--seed", seed, "Of the neurons drawn at random");
  }
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

std::vector<Token> tokens_of(const NeuronParameters& o, const LoadedModel& m,
                             const std::string& file) {
  std::vector<Token> tokens = m.tokenizer.encode(read_input(file));
  const std::size_t positions = m.model.config().max_positions;
  const std::size_t most = o.length > 0 ? std::min(o.length, positions) : positions;
  if (tokens.size() > most) tokens.resize(most);
  require(tokens.size() >= 2, "{}: {} tokens, at least 2 are needed", file, tokens.size());
  return tokens;
}

Result measure(NeuronParameters o, Work& work) {
  require(o.frequency > 0 && o.frequency < 1, "--frequency {:g}: expected between 0 and 1",
          o.frequency);
  LoadedModel m(o.model);
  std::vector<std::vector<Token>> texts;
  Json fingerprints = Json::array();
  for (const std::string& file : o.texts) {
    texts.push_back(tokens_of(o, m, file));
    fingerprints.push_back(fingerprint(texts.back()));
  }
  ResultLog& log = work.log({{"experiment", "neurons"},
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
    log.find_or_make(name, [&] { return Json(count_neurons(model, tokens).frequency); })
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
  return result;
}

}  // namespace

Experiment neurons_experiment() {
  return experiment("neurons", "Heavy hitters among the neurons of the MLP",
                    "H2O, Figures 11 to 13, Table 12",
                    "  ballast eval neurons -m model.gguf book.txt news.txt", &measure);
}

}  // namespace ballast
