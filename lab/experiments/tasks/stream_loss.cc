#include "experiments/tasks/stream_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ballast/engine/sampler.h"
#include "base/fail.h"
#include "base/stopwatch.h"
#include "cache/byte_budget.h"
#include "cache/mean_entries.h"
#include "experiments/tasks/sample_run.h"
#include "formats/utf8_text.h"
#include "report/units.h"

namespace ballast {

StreamLoss measure_stream_loss(Engine& engine, const CacheOptions& options,
                               std::span<const Token> tokens, std::size_t part,
                               const Advance& advance) {
  require(tokens.size() >= 2, "a stream of {} tokens; at least 2 are needed", tokens.size());
  require(part > 0, "a part needs at least 1 token");
  require(options.protocol == Protocol::stream, "stream loss needs --protocol stream");
  const Stopwatch watch;
  Sequence sequence(engine.model(), options);
  require_bytes(sequence.cache());
  StreamLoss out;
  double sum = 0, part_sum = 0;
  std::size_t in_part = 0;
  const auto end_part = [&] {
    out.nats.push_back(part_sum / static_cast<double>(in_part));
    out.most_bytes = std::max(out.most_bytes, sequence.cache().bytes().total());
    part_sum = 0;
    in_part = 0;
  };
  // Logits do not depend on chunk boundaries, so the stream is read in chunks.
  constexpr std::size_t kChunk = 256;
  const std::size_t last = tokens.size() - 1;  // predicted, not read
  for (std::size_t done = 0; done < last;) {
    const std::size_t count = std::min({kChunk, last - done, part - in_part});
    if (sequence.positions_after(count) > engine.model().config().max_positions) {
      out.whole = false;
      break;
    }
    PrefillOptions reading;
    reading.finish_prompt = false;
    reading.all_logits = [&](std::size_t first, ConstMatrix logits) {
      for (std::size_t i = 0; i < logits.rows; ++i) {
        const double nats = token_loss(logits[i], tokens[done + first + i + 1]);
        sum += nats;
        part_sum += nats;
      }
    };
    engine.prefill(sequence, tokens.subspan(done, count), reading);
    done += count;
    in_part += count;
    out.tokens = done;
    if (in_part == part) end_part();
    if (advance) advance(static_cast<double>(done) / static_cast<double>(last));
  }
  require(out.tokens > 0, "the model has no position for a first token");
  if (in_part > 0) end_part();
  out.mean = sum / static_cast<double>(out.tokens);
  out.entries = mean_entries(sequence.cache());
  out.seconds = watch.seconds();
  return out;
}

namespace {

struct Stream {
  std::string model;
  std::string file;
  VariantParameters variants;
  std::string positions = "rolling";
  std::size_t tokens = 0;
  std::size_t part = 0;

  void describe(Parameters& p) {
    p.add_model(model);
    p.add("FILE", file, "The text; -: standard input", {.needed = true});
    variants.describe(p, "h2o;streaming-llm;balancekv", {});
    p.add("--tokens", tokens,
          "Read so many, the text over and over if it is shorter; if not given, it once");
    p.add("--part", part,
          "Tokens of the parts whose perplexity is shown; a 32nd of all if not given");
    p.add("--positions", positions, "rolling or absolute", {.type = "NAME"});
  }
};

/// Repeats the text up to the requested number of tokens.
std::vector<Token> stream_of(const Stream& o, const Tokenizer& tokenizer) {
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

Result measure(Stream o, Work& work) {
  Memory& memory = o.variants.memory;
  if (o.variants.methods.empty() && memory.rates.empty()) {
    if (memory.budgets.empty()) memory.budgets = {512};
  }
  require(memory.caches.empty(), "eval stream: give --budgets or --rates, not --cache");
  const std::vector<Variant> variants = o.variants.parse();
  const Positions positions = parse_positions(o.positions);
  LoadedModel m(o.model);
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
  ResultLog& log = work.log(identity);
  Plot plot;
  plot.title = result.title;
  plot.x_title = "tokens read";
  plot.y_title = "perplexity of a part";
  plot.log_y = true;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const Variant& variant = variants[v];
    const std::string key = fmt::format("{}/{}/{}-{}", variant.name(), variant.seed,
                                        to_string(variant.key_type), to_string(variant.value_type));
    const Json found = log.find_or_make(key, [&] {
      CacheOptions options;
      options.policy = variant.policy;
      options.protocol = Protocol::stream;
      options.positions = positions;
      options.key_type = variant.key_type;
      options.value_type = variant.value_type;
      options.seed = variant.seed;
      options.expected_tokens = variant.exact() ? 0 : tokens.size();
      return to_json(
          measure_stream_loss(m.engine, options, tokens, o.part, work.part(v, variants.size())));
    });
    result.rows.push_back(to_row(variant, found));
    Plot::Line line{variant.name(), {}};
    for (std::size_t i = 0; i < found["nats"].size(); ++i) {
      line.points.push_back(
          {static_cast<double>((i + 1) * o.part), std::exp(found["nats"][i].get<double>()), 0});
    }
    plot.lines.push_back(std::move(line));
    if (!found["whole"].get<bool>()) {
      result.notes.push_back(fmt::format("{} ends after {} tokens: the model has no position more",
                                         variant.name(),
                                         format_count(found["tokens"].get<std::size_t>())));
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
  return result;
}

}  // namespace

Experiment stream_experiment() {
  return experiment("stream", "Perplexity over a text without end, from a cache that does not grow",
                    "H2O, Figure 5",
                    "  ballast eval stream -m model.gguf book.txt --tokens 1000000 --methods "
                    "'h2o;streaming-llm' --budgets 1024 --plot stream.svg --json=stream.json",
                    &measure);
}

}  // namespace ballast
