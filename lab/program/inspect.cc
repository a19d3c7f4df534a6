// ballast-eval inspect: describes vectors in files, by their norms, clusters and attention.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "ballast/cache.h"
#include "ballast/engine/safetensors.h"
#include "base/fail.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "experiments/attention/kv_stats.h"
#include "experiments/data/kv_file.h"
#include "program/commands.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

using Cell = Table::Cell;

Cell count_cell(std::size_t n) { return {format_count(n), static_cast<double>(n)}; }
Cell number_cell(double x) { return {format_number(x), x}; }
Cell percent_cell(double x) { return {format_percent(x), x}; }

// --- what layers hold ---

using LayerNumbers = std::vector<std::size_t>;

Json to_json(const Moments& m) {
  return {{"mean", m.mean}, {"sd", m.deviation}, {"max", m.largest}};
}

Json to_json(const KvLayerStats& s) {
  Json radius = Json::object();
  for (std::size_t i = 0; i < s.radius.size(); ++i) {
    radius[std::to_string(KvLayerStats::kCentres[i])] = s.radius[i];
  }
  Json out = {{"key_norm", to_json(s.key_norm)},
              {"shifted_key_norm", to_json(s.shifted_norm)},
              {"value_norm", to_json(s.value_norm)},
              {"k_centre_radius", std::move(radius)}};
  if (s.turned_norm.largest > 0) {
    out["mean_before_rotation"] = to_json(s.mean_norm);
    out["turned_key_norm"] = to_json(s.turned_norm);
  }
  if (s.query_norm.mean > 0) out["query_norm"] = to_json(s.query_norm);
  if (s.queries > 0) {
    out["attention"] = {{"first_4", s.first4},
                        {"last_256", s.last256},
                        {"top_1_percent", s.top1},
                        {"largest", s.largest},
                        {"effective_tokens", s.effective}};
  }
  return out;
}

void show_norms(TableOutput& out, const LayerNumbers& numbers,
                const std::vector<KvLayerStats>& stats) {
  Table table({{"layer", Align::right, true},
               {"vectors", Align::left, true},
               {"mean norm", Align::right},
               {"sd", Align::right},
               {"max", Align::right}});
  for (std::size_t l = 0; l < stats.size(); ++l) {
    if (l > 0) table.add_gap();
    auto add = [&](const char* name, const Moments& m) {
      table.add_cells({std::to_string(numbers[l]), name, number_cell(m.mean),
                       number_cell(m.deviation), number_cell(m.largest)});
    };
    if (stats[l].query_norm.mean > 0) add("queries", stats[l].query_norm);
    add("keys", stats[l].key_norm);
    add("keys - mean", stats[l].shifted_norm);
    if (stats[l].turned_norm.largest > 0) {
      add("mean before rotation", stats[l].mean_norm);
      add("keys - turned mean", stats[l].turned_norm);
    }
    add("values", stats[l].value_norm);
  }
  out.show(table);
  out.say("\n");
}

void show_clusters(TableOutput& out, const LayerNumbers& numbers,
                   const std::vector<KvLayerStats>& stats) {
  std::vector<Table::Column> columns = {{"layer", Align::right}};
  for (std::size_t k : KvLayerStats::kCentres) {
    columns.push_back({fmt::format("radius, {} centre{}", k, k == 1 ? "" : "s"), Align::right});
  }
  Table table(columns);
  for (std::size_t l = 0; l < stats.size(); ++l) {
    std::vector<Cell> row = {std::to_string(numbers[l])};
    for (double r : stats[l].radius) row.push_back(number_cell(r));
    table.add_cells(row);
  }
  out.show(table);
  out.say(
      "farthest key from its nearest centre (greedy k-centre), as a multiple of the mean norm of "
      "keys - mean\n\n");
}

void show_attention(TableOutput& out, const LayerNumbers& numbers,
                    const std::vector<KvLayerStats>& stats, const std::string& queries) {
  Table table({{"layer", Align::right},
               {"first 4", Align::right},
               {"last 256", Align::right},
               {"top 1%", Align::right},
               {"top token", Align::right},
               {"effective tokens", Align::right}});
  for (std::size_t l = 0; l < stats.size(); ++l) {
    const KvLayerStats& s = stats[l];
    table.add_cells({std::to_string(numbers[l]), percent_cell(s.first4), percent_cell(s.last256),
                     percent_cell(s.top1), percent_cell(s.largest), number_cell(s.effective)});
  }
  out.show(table);
  out.say(
      fmt::format("share of attention that falls on these tokens, mean over {};\n"
                  "effective tokens: e^entropy of the attention weights\n",
                  queries));
}

Json to_json(const LayerNumbers& numbers, const std::vector<KvLayerStats>& stats) {
  Json layers = Json::array();
  for (std::size_t l = 0; l < stats.size(); ++l) {
    Json layer = {{"layer", numbers[l]}};
    layer.update(to_json(stats[l]));
    layers.push_back(std::move(layer));
  }
  return layers;
}

// --- a saved cache ---

void inspect_cache(const std::string& path, TableOutput& out) {
  const Cache cache = Cache::load(path);
  const CacheShape& s = cache.shape();
  const Policy& policy = cache.options().policy;
  LayerNumbers numbers(s.layers);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  std::vector<KvLayerStats> stats;
  for (std::size_t l : numbers) stats.push_back(measure_layer(cache, l));
  out.say(fmt::format("{}: the cache of {}, {} tokens\n\n", path, policy.to_string(),
                      format_count(cache.tokens())));
  show_norms(out, numbers, stats);
  show_clusters(out, numbers, stats);
  if (stats[0].queries > 0) {
    const double asked = stats[0].queries / static_cast<double>(s.kv_heads);
    const auto noted =
        static_cast<double>(std::min(cache.tokens(), policy.observed()) * s.queries_per_kv_head);
    show_attention(out, numbers, stats,
                   asked < noted ? fmt::format("{:.0f} of the last {:.0f} queries of a KV head, as "
                                               "the cache answers them",
                                               asked, noted)
                                 : "the last queries, as the cache answers them");
  } else {
    out.say(fmt::format("attention: not known, as {} keeps no queries\n", policy.info().name));
  }
  out.finish({{"kind", "cache"},
              {"file", path},
              {"method", policy.to_string()},
              {"tokens", cache.tokens()},
              {"by_layer", to_json(numbers, stats)}});
}

// --- queries, keys and values ---

void inspect_tensors(const std::string& path, TableOutput& out) {
  const KvFile source(path);
  const KvShape& s = source.shape();
  LayerNumbers numbers;
  for (std::size_t l = 0; l < s.layers; ++l) numbers.push_back(source.layer_number(l));
  std::vector<KvLayerStats> stats;
  {
    Progress progress("inspect");
    for (std::size_t l = 0; l < s.layers; ++l) {
      stats.push_back(measure_layer(source, l, [&](double done) {
        progress.update((static_cast<double>(l) + done) / static_cast<double>(s.layers));
      }));
    }
  }
  out.say(fmt::format("{}: {} layer{}, {} query and {} KV heads, {} tokens, dimension {}\n\n", path,
                      s.layers, s.layers == 1 ? "" : "s", s.heads, s.kv_heads,
                      format_count(s.tokens), s.key_dim));
  show_norms(out, numbers, stats);
  show_clusters(out, numbers, stats);
  show_attention(out, numbers, stats, "sampled queries of the second half");
  out.finish({{"kind", "tensors"},
              {"file", path},
              {"heads", s.heads},
              {"kv_heads", s.kv_heads},
              {"tokens", s.tokens},
              {"key_dim", s.key_dim},
              {"value_dim", s.value_dim},
              {"layers", to_json(numbers, stats)}});
}

// --- what a method kept (ballast compress -o) ---

constexpr std::string_view kKeptEnd = ".normaliser_weights";

bool is_kept(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  try {
    const Safetensors file(path);
    return std::ranges::any_of(file.tensors(), [](const auto& tensor) {
      return std::string_view(tensor.name).ends_with(kKeptEnd);
    });
  } catch (const Error&) {
    return false;  // no safetensors file: the next kind says what is wrong with it
  }
}

void inspect_kept(const std::string& path, TableOutput& out) {
  const Safetensors file(path);
  const auto metadata = [&](const char* key) {
    const auto at = file.metadata().find(key);
    return at == file.metadata().end() ? std::string("not known") : at->second;
  };
  Table table({{"head"},
               {"entries", Align::right},
               {"first", Align::right},
               {"last", Align::right},
               {"sum of weights", Align::right},
               {"largest", Align::right}});
  Json heads = Json::array();
  for (const auto& tensor : file.tensors()) {
    const std::string name(tensor.name);
    if (!name.ends_with(kKeptEnd)) continue;
    const std::string head = name.substr(0, name.size() - kKeptEnd.size());
    const std::vector<float> weights = to_float(file.at(head + ".weights"));
    const TensorView& stored = file.at(head + ".positions");
    require(stored.type == TensorType::i32, ErrorCode::bad_file, "{}: {} is {}, not i32", path,
            stored.name, to_string(stored.type));
    std::vector<std::int32_t> positions(stored.size());
    std::memcpy(positions.data(), stored.data.data(), stored.data.size());
    double sum = 0, largest = 0;
    for (float w : weights) {
      sum += w;
      largest = std::max(largest, static_cast<double>(w));
    }
    const auto [first, last] = std::ranges::minmax_element(positions);
    const bool any = !positions.empty();
    table.add_cells({head, count_cell(weights.size()), any ? std::to_string(*first) : "",
                     any ? std::to_string(*last) : "", number_cell(sum), number_cell(largest)});
    heads.push_back({{"head", head},
                     {"entries", weights.size()},
                     {"first", any ? Json(*first) : Json()},
                     {"last", any ? Json(*last) : Json()},
                     {"weights", {{"sum", sum}, {"largest", largest}}}});
  }
  out.say(fmt::format("{}: what {} kept of {} tokens, {}\n\n", path, metadata("method"),
                      metadata("tokens"), metadata("protocol")));
  out.show(table);
  out.finish({{"kind", "kept"},
              {"file", path},
              {"method", metadata("method")},
              {"protocol", metadata("protocol")},
              {"seed", metadata("seed")},
              {"tokens", metadata("tokens")},
              {"heads", std::move(heads)}});
}

bool is_cache(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  constexpr std::string_view kMagic = "BALLASTC";
  const MappedFile file{path};
  return file.bytes().size() >= kMagic.size() &&
         std::memcmp(file.bytes().data(), kMagic.data(), kMagic.size()) == 0;
}

}  // namespace

void add_inspect_vectors(CLI::App& parent, std::function<void()>& task) {
  struct Options {
    std::string file;
    TableOutput output;
  };
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "inspect", "Describe queries, keys and values: norms, clusters, where attention falls");
  app->add_option("FILE", options->file,
                  "A saved cache, tensors layer.{i}.q|k|v (safetensors), or what ballast compress "
                  "-o kept; other files: ballast inspect")
      ->required()
      ->type_name("");
  options->output.add_to(*app);
  app->footer("Example:\n  ballast eval inspect lease.cache");
  app->callback([options, &task] {
    task = [options] {
      options->output.open();
      if (is_cache(options->file)) return inspect_cache(options->file, options->output);
      if (is_kept(options->file)) return inspect_kept(options->file, options->output);
      inspect_tensors(options->file, options->output);
    };
  });
}

}  // namespace ballast::cli
