// ballast eval paper: all tables and figures of a paper, one after another, and one page of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "ballast/engine/model.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "experiments/data/index_instance.h"
#include "experiments/data/kv_capture.h"
#include "experiments/data/synth.h"
#include "experiments/experiment.h"
#include "experiments/papers/paper_rows.h"
#include "formats/json_text.h"
#include "formats/utf8_text.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

struct PaperParameters {
  std::string paper;
  std::string model;
  std::string data;
  std::string text;
  std::string out;
  std::vector<std::string> rows;
  std::size_t longest = 0;
  std::size_t limit = 0;
  bool list = false;

  void describe(Parameters& p) {
    p.add("PAPER", paper, "balancekv, clustergen or h2o", {.needed = true});
    p.add_model(model, "The model");
    p.add("--data", data,
          "The folder of the benchmarks: longeval/, longbench/, choice/, summarise/",
          {.type = "DIR"});
    p.add("--text", text,
          "A text that the model reads for rows on its attention; without it a made-up stream",
          {.type = "FILE"});
    p.add("-o,--out", out, "The folder of results and the page [results/PAPER]", {.type = "DIR"});
    p.add("--rows", rows, "Only these", {.separated = true});
    p.add("--longest", longest,
          "Read no more tokens of a text or prompt; all of the model's positions if not given");
    p.add("--limit", limit, "Ask the first N samples of each group only");
    p.add("--list", list, "Show the rows, and what each needs");
  }
};

const Paper& find_paper(const std::string& name) {
  std::string known;
  for (const Paper& paper : papers()) {
    if (paper.name == name) return paper;
    known += (known.empty() ? "" : ", ") + paper.name;
  }
  fail("eval paper: there is no paper '{}'; known: {}", name, known);
}

/// Prompts that experiments on single layers take means over.
constexpr std::size_t kPrompts = 10;

class PaperRun {
 public:
  PaperRun(const PaperParameters& o, Work& work)
      : o_(o),
        work_(work),
        paper_(find_paper(o.paper)),
        out_(o.out.empty() ? "results/" + o.paper : o.out) {
    for (const std::string& row : o.rows) {
      require(std::ranges::any_of(paper_.rows, [&](const PaperRow& r) { return r.name == row; }),
              "--rows {}: {} has no such row; --list shows them", row, paper_.name);
    }
  }

  Result list() const {
    Result out;
    out.experiment = "paper";
    out.title = paper_.title;
    out.columns = {{"name", "name"}, {"row", "row"}, {"experiment", "experiment"}};
    for (const PaperRow& row : paper_.rows) {
      out.rows.push_back({{"name", row.name},
                          {"row", row.label},
                          {"experiment", !row.left_out.empty() ? "left out: " + row.left_out
                                         : missing(row)        ? "needs " + needs(row)
                                                               : "eval " + row.experiment}});
    }
    return out;
  }

  Result run() {
    require(!o_.model.empty(), "eval paper: give the model with -m");
    positions_ = Model(o_.model).config().max_positions;
    if (o_.longest > 0) positions_ = std::min(positions_, o_.longest);
    fs::create_directories(out_);
    std::vector<Json> table;
    std::vector<Result> results(1);
    std::vector<const PaperRow*> rows;
    for (const PaperRow& row : paper_.rows) {
      if (o_.rows.empty() || std::ranges::find(o_.rows, row.name) != o_.rows.end()) {
        rows.push_back(&row);
      }
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::string command, state;
      const std::optional<Result> result =
          measure(*rows[r], work_.part(r, rows.size()), command, state);
      add_claims(*rows[r], result, command, state, table);
      if (result) results.push_back(*result);
    }
    Result& summary = results[0];
    summary.experiment = "paper";
    summary.title = paper_.title;
    summary.settings = {{"model", o_.model}, {"data", o_.data}, {"text", o_.text}};
    summary.columns = {{"row", "row"},
                       {"claim", "the paper says"},
                       {"paper", "its numbers"},
                       {"here", "here"},
                       {"verdict", "verdict"}};
    summary.named_by = {"row", "claim"};
    summary.gap_key = "row";
    summary.rows = std::move(table);
    summary.notes = {
        "its numbers, here  of the first and the second that the claim names; here: means over the "
        "settings that were measured",
        "verdict            agrees: in every setting, by more than 1.96 standard errors of the "
        "difference; level: within them, though the paper's difference would show; undecided: too "
        "few samples for that",
        "exact at chance    the model answers no better with its whole cache than by guessing",
        fmt::format("Each row is an experiment of its own, its result {}/NAME.json",
                    out_.string())};
    summary.command = work_.options().command;
    OutputFile page{out_ / (paper_.name + ".html")};
    page.write(html_page(paper_.title, results));
    page.commit();
    work_.note(fmt::format("page: {}", (out_ / (paper_.name + ".html")).string()));
    return summary;
  }

 private:
  std::vector<std::string> found(const PaperRow& row) const {
    std::vector<std::string> out;
    for (const std::string& file : row.files) {
      if (o_.data.empty()) break;
      const fs::path path = fs::path(o_.data) / file;
      if (!fs::exists(path)) continue;
      // LongBench-E's file of a task comes first, and stands for the other.
      std::string of_e = path.string();
      of_e.insert(of_e.rfind('.'), "_e");
      if (std::ranges::find(out, of_e) == out.end()) out.push_back(path.string());
    }
    return out;
  }
  bool missing(const PaperRow& row) const { return !row.files.empty() && found(row).empty(); }
  std::string needs(const PaperRow& row) const {
    return fmt::format("{}{} in --data", row.files[0], row.files.size() > 1 ? " or the like" : "");
  }
  static bool wants(const PaperRow& row, std::string_view text) {
    return std::ranges::any_of(row.values, [&](const Json& value) { return value == text; });
  }
  std::size_t part_of_positions(double part) const {
    return static_cast<std::size_t>(static_cast<double>(positions_) * part);
  }
  /// Whether a file was made from the model, and from `text` if that is given.
  bool is_newer(const fs::path& file, const std::string& text = "") const {
    return fs::exists(file) && fs::last_write_time(file) >= fs::last_write_time(o_.model) &&
           (text.empty() || fs::last_write_time(file) >= fs::last_write_time(text));
  }
  CaptureOptions capture_options() const {
    CaptureOptions out;
    out.tokens = std::max<std::size_t>(positions_, 1);
    out.quiet = true;
    return out;
  }

  /// Parameters that name the captured file, made once, or a made-up stream.
  Json keys_and_values() const {
    if (o_.text.empty()) return {{"synth", true}, {"tokens", 8192}};
    const fs::path file = out_ / "captured.safetensors";
    if (!is_newer(file, o_.text)) {
      LoadedModel m(o_.model);
      capture_text(m, read_input(o_.text), o_.text, file, capture_options());
    }
    return {{"files", file.string()}};
  }

  /// Those of the folder of captured prompts of a benchmark, made once; without the benchmark of
  /// one text.
  Json prompts() const {
    for (const char* name : {"longbench/triviaqa.jsonl", "longeval/200_lines.jsonl"}) {
      const fs::path data = fs::path(o_.data) / name;
      if (o_.data.empty() || !fs::exists(data)) continue;
      const fs::path folder = out_ / "prompts";
      if (!is_newer(folder / fmt::format("{:04}.safetensors", kPrompts))) {
        LoadedModel m(o_.model);
        CaptureOptions options = capture_options();
        options.score = "none";
        capture_prompts(m, data, kPrompts, folder, options);
      }
      return {{"files", folder.string()}};
    }
    return keys_and_values();
  }

  Json values_of(const PaperRow& row) const {
    Json out = Json::object();
    for (const auto& [name, value] : row.values.items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : "";
      if (text == "{model}") {
        out[name] = o_.model;
      } else if (text == "{text}") {
        out[name] = o_.text;
      } else if (text == "{texts}") {
        out[name] = {o_.text};
        for (const char* other : {"longbench/multi_news.jsonl", "longeval/200_lines.jsonl"}) {
          const fs::path file = fs::path(o_.data) / other;
          if (!o_.data.empty() && fs::exists(file)) out[name].push_back(file.string());
        }
      } else if (text == "{kv}") {
        out.update(keys_and_values());
      } else if (text == "{prompts}") {
        out.update(prompts());
      } else if (text == "{index}") {
        const fs::path file = out_ / "index.safetensors";
        if (!fs::exists(file)) {
          write_source(IndexInstance({8192, 16, 4, 0}), {}, file, TensorType::f32);
        }
        out[name] = file.string();
      } else if (text == "{files}") {
        // One file is a value, since some parameters take no list.
        const std::vector<std::string> files = found(row);
        out[name] = files.size() == 1 ? Json(files[0]) : Json(files);
      } else if (text == "{memory}") {  // as much again as the weights, and 64 MB at least
        const std::uintmax_t weights =
            fs::is_directory(o_.model) ? std::uintmax_t{16} << 30 : fs::file_size(o_.model);
        out[name] = fmt::format("{}M", std::max<std::uintmax_t>(64, 2 * weights >> 20));
      } else if (text == "{prompt}") {  // BalanceKV's 16,384 tokens, where there is room
        out[name] = positions_ >= 17408 ? 16384 : part_of_positions(0.75);
      } else if (text == "{length}") {
        out[name] = part_of_positions(0.9);
      } else if (text == "{longest}") {
        if (o_.longest > 0) out[name] = positions_;
      } else if (text == "{lengths}") {
        // Short of the positions by what the answer and a template take.
        for (const double part : {0.25, 0.5, 0.75, 1.0}) {
          out[name].push_back(part_of_positions(0.97 * part));
        }
      } else {
        out[name] = value;
        const std::string windows = "{windows}";
        if (const auto at = text.find(windows); at != std::string::npos) {
          out[name] = std::string(text).replace(at, windows.size(),
                                                positions_ >= 8192
                                                    ? "kcenter:window=2048;kcenter:window=3072"
                                                    : "kcenter:window=512;kcenter:window=1024");
        }
      }
    }
    if (o_.limit == 0 || row.experiment == "throughput") return out;
    if (wants(row, "{files}")) out["limit"] = o_.limit;
    // Needles of four lengths at five depths.
    if (wants(row, "{lengths}")) out["repeat"] = std::max<std::size_t>(1, o_.limit / 5);
    return out;
  }

  std::optional<Result> measure(const PaperRow& row, const Advance& advance, std::string& command,
                                std::string& state) {
    if (!row.left_out.empty()) return state = "left out: " + row.left_out, std::nullopt;
    if (missing(row)) return state = "needs " + needs(row), std::nullopt;
    if ((wants(row, "{text}") || wants(row, "{texts}")) && o_.text.empty())
      return state = "needs --text", std::nullopt;
    const Json values = values_of(row);
    Experiment::Call call = find_experiment(row.experiment).call();
    command = command_of(row.experiment, call.parameters, values);
    const fs::path file = out_ / (row.name + ".json");
    if (const std::optional<Result> before = read(file, command)) {
      work_.note(fmt::format("{}: {}: as it was measured", row.name, row.label));
      return before;
    }
    work_.note(fmt::format("{}: {}: {}", row.name, row.label, command));
    Work::Options options = work_.options();
    options.log = file.string() + ".progress";
    options.command = command;
    if (options.advance) options.advance = advance;
    Work work("eval " + row.experiment, std::move(options));
    try {
      Result result = run_experiment(call, values, work);
      write_file(file, to_text(result.to_json()));
      work.finish();
      return result;
    } catch (const Error& error) {
      return state = fmt::format("failed: {}", error.what()), std::nullopt;
    }
  }

  /// A whole result of this very command that is not older than the model.
  std::optional<Result> read(const fs::path& file, const std::string& command) const {
    if (!is_newer(file)) return {};
    const std::string text = read_file(file, {.most = kMostJson});
    check_json(text, file.string(), {.fields = kMostFields});
    const Json json = parse_own_json(text);
    if (json.is_discarded()) return {};
    Result result = Result::from_json(json, file.string());
    if (result.command != command) return {};
    return result;
  }

  static std::string numbers(double a, double b) {
    if (!std::isfinite(a) || !std::isfinite(b)) return "";
    return fmt::format("{:.3g}, {:.3g}", a, b);
  }

  void add_claims(const PaperRow& row, const std::optional<Result>& result,
                  const std::string& command, const std::string& state, std::vector<Json>& table) {
    if (!result || row.claims.empty()) {
      table.push_back({{"row", row.label},
                       {"claim", ""},
                       {"paper", ""},
                       {"here", ""},
                       {"verdict", result ? "see its table" : state},
                       {"name", row.name},
                       {"row_command", command}});
      return;
    }
    std::string ranked;  // the last claim's column that was ranked: claims may share one
    for (const PaperClaim& claim : row.claims) {
      const ClaimVerdict verdict = judge(claim, result->rows);
      // Papers write scores in percent.
      const double scale = claim.metric == "score" && claim.paper_better > 1 ? 100 : 1;
      table.push_back({{"row", row.label},
                       {"claim", claim.text},
                       {"paper", numbers(claim.paper_better, claim.paper_worse)},
                       {"here", numbers(scale * verdict.better, scale * verdict.worse)},
                       {"verdict", verdict.text()},
                       {"name", row.name},
                       {"model", o_.model},
                       {"longest", positions_},
                       {"samples", result->settings.value("samples", Json())},
                       {"pairs", verdict.pairs},
                       {"holds", verdict.holds},
                       {"level", verdict.level},
                       {"undecided", verdict.undecided},
                       {"at_chance", verdict.at_chance},
                       {"row_command", command}});
      const std::string column = claim.metric + " " + claim.by;
      if (column == ranked) continue;
      ranked = column;
      Json all = Json::array();
      for (const RankedName& name : ranking(claim, result->rows)) {
        all.push_back({{"name", name.name}, {"mean", name.mean}, {"settings", name.settings}});
      }
      table.back()["metric"] = claim.metric;
      table.back()["ranking"] = std::move(all);
    }
  }

  const PaperParameters& o_;
  Work& work_;
  const Paper& paper_;
  fs::path out_;
  std::size_t positions_ = 0;
};

Result measure(PaperParameters o, Work& work) {
  PaperRun run(o, work);
  return o.list ? run.list() : run.run();
}

}  // namespace

Experiment paper_experiment() {
  return experiment(
      "paper", "Every table and figure of a paper, and where its claims hold on this model", "",
      "  ballast eval paper balancekv -m model.gguf --data data --text book.txt\n"
      "Results that are there already are not measured again, so an interrupted run goes on.",
      &measure);
}

}  // namespace ballast
