// ballast inspect: describes a file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "ballast/cache.h"
#include "ballast/pack.h"
#include "base/fail.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/inspect_model.h"
#include "cli/lab.h"
#include "formats/json_text.h"
#include "formats/sniff.h"
#include "hub/choice.h"
#include "report/table.h"
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
Cell bytes_cell(std::size_t n) {
  return {format_bytes(static_cast<double>(n)), static_cast<double>(n)};
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
              {"note", note},
              {"reports", reports_of(cache)}});
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

/// Kinds of files in the order of their checks. The last one is every other file: of ballast-eval.
struct FileKind {
  bool (*recognises)(const std::string& path);
  void (*inspect)(const std::string& path, TableOutput& out);
};

constexpr std::array kFileKinds = {
    FileKind{[](const std::string& path) { return begins_with(path, "BALLASTC"); }, inspect_cache},
    FileKind{[](const std::string& path) { return begins_with(path, "BALLASTP"); }, inspect_packed},
    FileKind{is_model, inspect_model},
    FileKind{is_unknown, refuse},
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
                  "(safetensors), or what ballast compress -o kept; the last two by ballast-eval")
      ->required()
      ->type_name("");
  options->output.add_to(*app);
  app->footer("Example:\n  ballast inspect model.gguf");
  app->callback([options, &task] {
    task = [options] {
      options->file = hub::resolve_model(options->file);
      for (const FileKind& kind : kFileKinds) {
        if (!kind.recognises(options->file)) continue;
        options->output.open();
        return kind.inspect(options->file, options->output);
      }
      MappedFile{options->file};  // one that cannot be read is named here
      start_lab(command_words(), options->file + ": inspect of tensors");
    };
  });
}

}  // namespace ballast::cli
