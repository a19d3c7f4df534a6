// ballast inspect: describes a file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ballast/cache.h"
#include "ballast/engine/safetensors.h"
#include "ballast/pack.h"
#include "base/fail.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/inspect_model.h"
#include "experiments/attention/kv_stats.h"
#include "experiments/data/kv_file.h"
#include "formats/json_text.h"
#include "formats/sniff.h"
#include "hub/choice.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/terminal.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

bool begins_with(const std::string& path, std::string_view magic) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const MappedFile file{path};
  return file.bytes().size() >= magic.size() &&
         std::memcmp(file.bytes().data(), magic.data(), magic.size()) == 0;
}

// --- cells of tables ---

using Cell = Table::Cell;

Cell count_cell(std::size_t n) { return {format_count(n), static_cast<double>(n)}; }
Cell number_cell(double x) { return {format_number(x), x}; }
Cell percent_cell(double x) { return {format_percent(x), x}; }
Cell bytes_cell(std::size_t n) {
  return {format_bytes(static_cast<double>(n)), static_cast<double>(n)};
}

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

/// What the program noted in the file. run and serve write an object, others a line; a text that is
/// no JSON or beyond the limits of JSON is shown as it is.
std::vector<std::pair<std::string, std::string>> note_rows(const std::string& note) {
  std::vector<std::pair<std::string, std::string>> rows;
  if (note.empty()) return rows;
  Json json;
  try {
    json = parse_json_text<Json>(note, "note");
  } catch (const Error&) {  // another program's
  }
  if (!json.is_object()) return {{"note", note}};
  for (const auto& [key, value] : json.items()) {
    if (value.is_array()) continue;  // the tokens
    rows.emplace_back(key == "tokens" ? "tokens of the text" : key,
                      value.is_string()
                          ? value.get<std::string>()
                          : value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return rows;
}

void inspect_packed(const std::string& path, TableOutput& out) {
  const MappedFile file{path};
  const PackedFile packed = PackedFile::parse(file.bytes(), path);
  const CacheShape& s = packed.shape;
  const std::size_t exact = packed.tokens * s.layers * s.kv_heads * (s.key_dim + s.value_dim) * 2;
  const std::size_t bytes = file.bytes().size();
  const double ratio = static_cast<double>(exact) / static_cast<double>(bytes);
  const PackPreset& preset = packed.preset;
  Table table({{"packed cache"}, {path}});
  table.add({"preset", fmt::format("1/{}, step {}", preset.divisor, preset.step)});
  table.add({"expected loss", preset.loss > 0
                                  ? fmt::format("{} nats a token", format_number(preset.loss))
                                  : "not measured"});
  table.add_cells({"tokens", count_cell(packed.tokens)});
  table.add_cells({"bytes", bytes_cell(bytes)});
  table.add_cells({"as bf16", bytes_cell(exact)});
  table.add({"of it", fmt::format("1/{:.1f}", ratio)});
  table.add(
      {"unpacked into",
       fmt::format("{}, keys {}, values {}", packed.options.policy.to_string(),
                   to_string(packed.options.key_type), to_string(packed.options.value_type))});
  table.add({"layers", std::to_string(s.layers)});
  table.add(
      {"KV heads", fmt::format("{}, {} query heads each", s.kv_heads, s.queries_per_kv_head)});
  table.add({"key, value dimension", fmt::format("{}, {}", s.key_dim, s.value_dim)});
  table.add({"basis", fmt::format("{:016x}", packed.basis)});
  for (const auto& [key, value] : note_rows(packed.note)) table.add({key, value});
  out.show(table);
  out.finish({{"kind", "packed cache"},
              {"file", path},
              {"divisor", preset.divisor},
              {"step", preset.step},
              {"loss", preset.loss},
              {"tokens", packed.tokens},
              {"bytes", bytes},
              {"bf16_bytes", exact},
              {"method", packed.options.policy.to_string()},
              {"key_type", to_string(packed.options.key_type)},
              {"value_type", to_string(packed.options.value_type)},
              {"layers", s.layers},
              {"kv_heads", s.kv_heads},
              {"group", s.queries_per_kv_head},
              {"key_dim", s.key_dim},
              {"value_dim", s.value_dim},
              {"basis", fmt::format("{:016x}", packed.basis)},
              {"note", packed.note}});
}

void inspect_cache(const std::string& path, TableOutput& out) {
  std::string note;
  const Cache cache = Cache::load(path, &note);
  const CacheShape& s = cache.shape();
  const CacheOptions& o = cache.options();
  const CacheBytes bytes = cache.bytes();
  std::size_t fewest = cache.entries(0), most = fewest;
  for (std::size_t l = 1; l < s.layers; ++l) {
    fewest = std::min(fewest, cache.entries(l));
    most = std::max(most, cache.entries(l));
  }
  LayerNumbers numbers(s.layers);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  std::vector<KvLayerStats> stats;
  for (std::size_t l : numbers) stats.push_back(measure_layer(cache, l));
  Table table({{"saved cache"}, {path}});
  table.add({"method", o.policy.to_string()});
  table.add({"protocol", std::string(to_string(o.protocol))});
  table.add({"layers", std::to_string(s.layers)});
  table.add(
      {"KV heads", fmt::format("{}, {} query heads each", s.kv_heads, s.queries_per_kv_head)});
  table.add({"key, value dimension", fmt::format("{}, {}", s.key_dim, s.value_dim)});
  const std::string types =
      fmt::format("keys {}, values {}", to_string(o.key_type), to_string(o.value_type));
  table.add({"storage", o.policy.info().global_budget
                            ? fmt::format("in types that {} chose by entry; what follows: {}",
                                          o.policy.info().name, types)
                            : types});
  table.add_cells({"tokens read", count_cell(cache.tokens())});
  table.add({"entries per KV head", fewest == most
                                        ? format_count(most)
                                        : format_count(fewest) + " to " + format_count(most)});
  table.add_cells({"sink", bytes_cell(bytes.sink)});
  table.add_cells({"summary", bytes_cell(bytes.summary)});
  table.add_cells({"window", bytes_cell(bytes.window)});
  table.add_cells({"watching attention", bytes_cell(bytes.attention_stats)});
  if (bytes.rotary > 0) {
    table.add_cells({"rotary table", bytes_cell(bytes.rotary)});
  }
  if (bytes.recurrent > 0) {
    table.add_cells({"recurrent layers", bytes_cell(bytes.recurrent)});
  }
  table.add_cells({"total", bytes_cell(bytes.total())});
  for (const auto& [key, value] : note_rows(note)) table.add({key, value});
  out.show(table);
  out.say("\n");
  show_norms(out, numbers, stats);
  show_clusters(out, numbers, stats);
  if (stats[0].queries > 0) {
    const double asked = stats[0].queries / static_cast<double>(s.kv_heads);
    const auto noted =
        static_cast<double>(std::min(cache.tokens(), o.policy.observed()) * s.queries_per_kv_head);
    show_attention(out, numbers, stats,
                   asked < noted ? fmt::format("{:.0f} of the last {:.0f} queries of a KV head, as "
                                               "the cache answers them",
                                               asked, noted)
                                 : "the last queries, as the cache answers them");
  } else {
    out.say(fmt::format("attention: not known, as {} keeps no queries\n", o.policy.info().name));
  }
  for (const std::string& report : reports_of(cache)) out.say(report + "\n");
  out.finish({{"kind", "cache"},
              {"file", path},
              {"method", o.policy.to_string()},
              {"protocol", to_string(o.protocol)},
              {"layers", s.layers},
              {"kv_heads", s.kv_heads},
              {"group", s.queries_per_kv_head},
              {"key_dim", s.key_dim},
              {"value_dim", s.value_dim},
              {"key_type", to_string(o.key_type)},
              {"value_type", to_string(o.value_type)},
              {"seed", o.seed},
              {"tokens", cache.tokens()},
              {"entries", {{"fewest", fewest}, {"most", most}}},
              {"bytes",
               {{"sink", bytes.sink},
                {"summary", bytes.summary},
                {"window", bytes.window},
                {"watch", bytes.attention_stats},
                {"rotary", bytes.rotary},
                {"recurrent", bytes.recurrent},
                {"total", bytes.total()}}},
              {"by_layer", to_json(numbers, stats)},
              {"note", note},
              {"reports", reports_of(cache)}});
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

/// Files of no kind that is known are named as what they seem to be, with the kinds that are.
bool is_unknown(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const MappedFile file{path};
  const std::string_view kind = sniff(file.bytes());
  return kind != "a safetensors file" && !kind.empty();
}

void refuse(const std::string& path, TableOutput&) {
  const MappedFile file{path};
  fail(ErrorCode::bad_file,
       "{}: not a safetensors file, nor of another kind that inspect knows (a GGUF file, a Hugging "
       "Face folder, a saved cache); it seems to be {}",
       path, sniff(file.bytes()));
}

/// Kinds of files in the order of their checks. The last one accepts every other file and reports
/// its error.
struct FileKind {
  bool (*recognises)(const std::string& path);
  void (*inspect)(const std::string& path, TableOutput& out);
};

constexpr std::array kFileKinds = {
    FileKind{[](const std::string& path) { return begins_with(path, "BALLASTC"); }, inspect_cache},
    FileKind{[](const std::string& path) { return begins_with(path, "BALLASTP"); }, inspect_packed},
    FileKind{is_model, inspect_model},
    FileKind{is_unknown, refuse},
    FileKind{is_kept, inspect_kept},
    FileKind{[](const std::string&) { return true; }, inspect_tensors},
};

}  // namespace

void add_inspect(CLI::App& parent, std::function<void()>& task) {
  struct Options {
    std::string file;
    TableOutput output;
  };
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "inspect", "Describe a model, a saved cache, or a file of queries, keys and values");
  app->add_option("FILE", options->file,
                  "A GGUF file, a Hugging Face folder, the name of a model that is here, a saved "
                  "cache, tensors layer.{i}.q|k|v "
                  "(safetensors), or what ballast compress -o kept")
      ->required()
      ->type_name("");
  options->output.add_to(*app);
  app->footer("Example:\n  ballast inspect model.gguf");
  app->callback([options, &task] {
    task = [options] {
      options->output.open();
      options->file = hub::resolve_model(options->file);
      for (const FileKind& kind : kFileKinds) {
        if (kind.recognises(options->file)) return kind.inspect(options->file, options->output);
      }
    };
  });
}

}  // namespace ballast::cli
