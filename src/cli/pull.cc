// ballast pull, ballast models, ballast remove: the models that are here, and more of them.
#include "cli/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>

#include "ballast/engine/model.h"
#include "base/fail.h"
#include "cache/cache_size.h"
#include "cli/command.h"
#include "hub/pull.h"
#include "report/table.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

constexpr std::array<std::size_t, 2> kTokens = {8192, 32768};

std::string size_text(std::uintmax_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// --- pull ---

struct PullFlags {
  std::vector<std::string> names;
  bool offline = false;
  bool quiet = false;
};

void run_pull(const PullFlags& o) {
  for (const std::string& name : o.names) {
    hub::PullOptions options{.offline = o.offline, .quiet = o.quiet, .say = [](const auto&) {}};
    if (!o.quiet) options.say = [](const std::string& line) { tell(line); };
    const hub::LocalModel model = hub::pull(name, options);
    print(fmt::format("{}: {} in {}\n", model.name, size_text(model.bytes), model.path.string()));
    flush_output();
  }
}

// --- models ---

/// A model that is here, opened.
struct Opened {
  hub::LocalModel file;
  std::string licence;
  std::size_t positions = 0;
  std::array<std::optional<std::size_t>, kTokens.size()> memory;
  std::size_t spared = 0;  ///< bytes of the cache that 1/8 spares at 32K, or at all positions
  std::string error;       ///< why it does not run; else empty
};

Opened open(hub::LocalModel file) {
  Opened out{.file = std::move(file),
             .licence = {},
             .positions = 0,
             .memory = {},
             .spared = 0,
             .error = {}};
  out.licence = out.file.licence;
  try {
    const Model model(out.file.path);
    out.positions = model.config().max_positions;
    CacheOptions options;
    options.key_type = options.value_type = StorageType::bf16;
    for (std::size_t i = 0; i < kTokens.size(); ++i) {
      if (kTokens[i] <= out.positions) {
        out.memory[i] = model.estimate(options, kTokens[i]).total();
      }
    }
    const std::size_t longest = std::min(kTokens.back(), out.positions);
    out.spared = CacheSize(model.cache_shape(longest), options).exact(longest) / 8 * 7;
    const Gguf* gguf = model.file().gguf();
    if (out.licence.empty() && gguf != nullptr) {
      out.licence = gguf->find<std::string_view>("general.license").value_or("");
    }
  } catch (const Error& error) {
    out.error = error.what();
  }
  return out;
}

void show_here(TableOutput& out, const std::vector<Opened>& here) {
  Table table({{"installed"},
               {"size", Align::right},
               {"memory at 8K", Align::right},
               {"at 32K", Align::right},
               {"1/8 spares at 32K", Align::right},
               {"licence"},
               {"fetched by"}});
  for (const Opened& model : here) {
    auto memory = [&](std::size_t i) {
      if (!model.error.empty()) return Table::Cell("does not run");
      if (!model.memory[i]) return Table::Cell("too long");
      return Table::Cell(size_text(*model.memory[i]), static_cast<double>(*model.memory[i]));
    };
    table.add_cells(
        {model.file.name,
         Table::Cell(size_text(model.file.bytes), static_cast<double>(model.file.bytes)), memory(0),
         memory(1),
         model.error.empty()
             ? Table::Cell(size_text(model.spared), static_cast<double>(model.spared))
             : Table::Cell(""),
         model.licence.empty() ? "not known" : model.licence,
         model.file.owner.empty() ? "ballast" : model.file.owner});
  }
  out.show(table);
}

void show_catalogue(TableOutput& out, const std::vector<Opened>& here) {
  Table table({{"available"}, {"weights", Align::right}, {"licence"}, {"for"}});
  for (const hub::KnownModel& model : hub::catalogue()) {
    if (std::ranges::any_of(here, [&](const auto& h) { return h.file.name == model.name; }))
      continue;
    table.add({std::string(model.name), std::string(model.parameters), std::string(model.licence),
               std::string(model.why)});
  }
  if (table.rows() == 0) return;
  out.show(table);
}

Json here_json(const std::vector<Opened>& here) {
  Json out = Json::array();
  for (const Opened& model : here) {
    Json memory = Json::object();
    for (std::size_t i = 0; i < kTokens.size(); ++i) {
      memory[std::to_string(kTokens[i])] = model.memory[i] ? Json(*model.memory[i]) : Json();
    }
    Json one = {{"name", model.file.name},
                {"path", model.file.path.string()},
                {"bytes", model.file.bytes},
                {"positions", model.positions},
                {"memory", std::move(memory)},
                {"eighth_spares", model.spared},
                {"licence", model.licence.empty() ? Json() : Json(model.licence)},
                {"fetched_by", model.file.owner.empty() ? "ballast" : model.file.owner}};
    if (!model.error.empty()) one["error"] = model.error;
    out.push_back(std::move(one));
  }
  return out;
}

Json catalogue_json(const std::vector<Opened>& here) {
  Json out = Json::array();
  for (const hub::KnownModel& model : hub::catalogue()) {
    const bool have =
        std::ranges::any_of(here, [&](const auto& h) { return h.file.name == model.name; });
    out.push_back({{"name", model.name},
                   {"weights", model.parameters},
                   {"repository", model.repository},
                   {"file", model.file},
                   {"licence", model.licence},
                   {"for", model.why},
                   {"sha256", model.sha256.empty() ? Json() : Json(model.sha256)},
                   {"bytes", model.bytes == 0 ? Json() : Json(model.bytes)},
                   {"here", have}});
  }
  return out;
}

void run_models(TableOutput& out) {
  out.open();
  std::vector<Opened> here;
  for (hub::LocalModel& file : hub::local_models()) {
    Opened model = open(std::move(file));
    // The hub's cache has folders of all kinds of models.
    if (model.error.empty() || !std::filesystem::is_directory(model.file.path)) {
      here.push_back(std::move(model));
    }
  }
  if (!here.empty()) {
    show_here(out, here);
    out.say(
        "memory: weights and the exact bf16 cache of a text of 8,192 or 32,768 tokens; --cache "
        "1/8 makes the cache an eighth, and spares a tenth of what a token of the answer reads "
        "from "
        "the length given on\n\n");
  }
  show_catalogue(out, here);
  out.say("\nballast pull NAME fetches one; ORG/REPO[:QUANT] names any other of the hub\n");
  out.finish({{"folder", hub::store().string()},
              {"here", here_json(here)},
              {"catalogue", catalogue_json(here)}});
}

}  // namespace

std::string fetch_model(const std::string& name, bool offline) {
  hub::PullOptions options;
  options.offline = offline;
  options.say = [](const std::string& line) { tell(line); };
  return hub::pull(name, options).path.string();
}

void add_pull(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<PullFlags>();
  CLI::App* app = parent.add_subcommand("pull", "Fetch a model from the hub, for -m NAME");
  app->add_option("MODEL", options->names,
                  "A name that ballast models lists, ORG/REPO[:QUANT] of the hub, or the URL of a "
                  "GGUF file")
      ->required()
      ->type_name("");
  app->add_flag("--offline", options->offline, "Fetch nothing: say where the model is");
  app->add_flag("-q,--quiet", options->quiet, "Show no progress");
  app->footer(
      "A download that was cut goes on with the same command. The environment: BALLAST_MODELS, the "
      "folder of models; HF_TOKEN, for models whose terms are to be accepted; HF_ENDPOINT, a "
      "mirror "
      "of the hub; https_proxy.\n"
      "Example:\n  ballast pull smollm2-135m\n"
      "  ballast pull Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M");
  app->callback([options, &task] { task = [options] { run_pull(*options); }; });
}

void add_models(CLI::App& parent, std::function<void()>& task) {
  auto output = std::make_shared<TableOutput>();
  CLI::App* app = parent.add_subcommand(
      "models", "List the models that are installed, the memory they need, and those available");
  output->add_to(*app);
  app->footer("Example:\n  ballast models");
  app->callback([output, &task] { task = [output] { run_models(*output); }; });
}

void add_remove(CLI::App& parent, std::function<void()>& task) {
  auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* app = parent.add_subcommand("remove", "Delete a model that ballast pull fetched");
  app->add_option("MODEL", *names, "A name that ballast models lists")->required()->type_name("");
  app->footer("Example:\n  ballast remove smollm2-135m");
  app->callback([names, &task] {
    task = [names] {
      for (const std::string& name : *names) {
        const std::uintmax_t bytes = hub::remove(name);
        print(fmt::format("{}: removed, {} are free again\n", name, size_text(bytes)));
      }
    };
  });
}

}  // namespace ballast::cli
