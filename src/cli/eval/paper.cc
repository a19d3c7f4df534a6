// ballast eval paper: all tables and figures of a paper, one after another, and one page of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "ballast/engine/model.h"
#include "ballast/threads.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "cli/eval/experiment.h"
#include "cli/eval/paper_rows.h"
#include "cli/model_choice.h"
#include "formats/json_text.h"
#include "report/progress.h"

extern char** environ;

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string paper;
  std::string model;
  std::string data;
  std::string text;
  std::string out;
  std::vector<std::string> rows;
  std::size_t limit = 0;
  bool list = false;
  ResultOutput output;
};

const Paper& find_paper(const std::string& name) {
  std::string known;
  for (const Paper& paper : papers()) {
    if (paper.name == name) return paper;
    known += (known.empty() ? "" : ", ") + paper.name;
  }
  fail("eval paper: there is no paper '{}'; known: {}", name, known);
}

/// Runs this program with as many threads; its table goes nowhere, its errors to standard error.
int run_self(const std::vector<std::string>& words) {
  std::vector<std::string> all = {"ballast"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--threads", fmt::format("{}", threads())});
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::pid_t child = 0;
  const int error =
      ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail(ErrorCode::io, "cannot start the program again: {}", std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// The words of a command as typed, without quotes and without the number of threads.
std::string plain(std::string text) {
  std::erase(text, '\'');
  return text.substr(0, text.find(" --threads "));
}

/// Prompts that experiments on single layers take means over.
constexpr std::size_t kPrompts = 10;

class PaperRun {
 public:
  explicit PaperRun(Options& o) : o_(o), paper_(find_paper(o.paper)), out_(o.out) {
    for (const std::string& row : o.rows) {
      require(std::ranges::any_of(paper_.rows, [&](const PaperRow& r) { return r.name == row; }),
              "--rows {}: {} has no such row; --list shows them", row, paper_.name);
    }
  }

  void list() const {
    for (const PaperRow& row : paper_.rows) {
      print(fmt::format("{:14} {:24} {}\n", row.name, row.label,
                        !row.left_out.empty() ? "left out: " + row.left_out
                        : missing(row)        ? "needs " + needs(row)
                                              : "eval " + row.arguments[0]));
    }
  }

  void run() {
    require(!o_.model.empty(), "eval paper: give the model with -m");
    positions_ = Model(o_.model).config().max_positions;
    fs::create_directories(out_);
    o_.output.open();
    ResultLog log = o_.output.log({{"experiment", "paper"}, {"paper", paper_.name}});
    std::vector<Json> table;
    std::vector<Result> results(1);
    for (const PaperRow& row : paper_.rows) {
      if (!o_.rows.empty() && std::ranges::find(o_.rows, row.name) == o_.rows.end()) continue;
      std::string command, state;
      const std::optional<Result> result = measure(row, command, state);
      add_claims(row, result, command, state, table);
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
        "verdict            agrees: in every setting, by more than the standard error of the "
        "difference; level: within it",
        fmt::format("Each row is a command of its own, its result {}/NAME.json", out_.string())};
    summary.command = command_line();
    OutputFile page{out_ / (paper_.name + ".html")};
    page.write(html_page(paper_.title, results));
    page.commit();
    o_.output.write(summary, log);
    o_.output.note(fmt::format("page: {}", (out_ / (paper_.name + ".html")).string()));
  }

 private:
  std::vector<std::string> found(const PaperRow& row) const {
    std::vector<std::string> out;
    for (const std::string& file : row.files) {
      if (o_.data.empty()) break;
      const fs::path path = fs::path(o_.data) / file;
      if (!fs::exists(path)) continue;
      // LongBench-E's file of a task comes first, and stands for the other.
      const std::string text = path.string();
      std::string plain_name = text;
      if (const auto e = plain_name.rfind("_e.jsonl"); e != std::string::npos) {
        plain_name.replace(e, std::string::npos, ".jsonl");
      }
      const auto same = [&](const std::string& other) {
        return other.size() > 8 && other.ends_with("_e.jsonl") &&
               other.substr(0, other.size() - 8) + ".jsonl" == plain_name;
      };
      if (std::ranges::none_of(out, same)) out.push_back(text);
    }
    return out;
  }
  bool missing(const PaperRow& row) const { return !row.files.empty() && found(row).empty(); }
  std::string needs(const PaperRow& row) const {
    return fmt::format("{}{} in --data", row.files[0], row.files.size() > 1 ? " or the like" : "");
  }
  bool wants(const PaperRow& row, const char* word) const {
    return std::ranges::find(row.arguments, word) != row.arguments.end();
  }

  /// The captured file, made once, or the words for a made-up stream.
  std::vector<std::string> keys_and_values() {
    if (o_.text.empty()) return {"--synth", "--tokens", "8192"};
    const fs::path file = out_ / "captured.safetensors";
    const bool newer = fs::exists(file) &&
                       fs::last_write_time(file) >= fs::last_write_time(o_.model) &&
                       fs::last_write_time(file) >= fs::last_write_time(o_.text);
    if (!newer) {
      const int status =
          run_self({"capture", "-m", o_.model, "-f", o_.text, "-o", file.string(), "-q", "--tokens",
                    fmt::format("{}", std::max<std::size_t>(positions_, 1))});
      require(status == 0, "eval paper: ballast capture -f {} failed with status {}", o_.text,
              status);
    }
    return {file.string()};
  }

  /// The folder of captured prompts of a benchmark, made once; without the benchmark one text.
  std::vector<std::string> prompts() {
    for (const char* name : {"longbench/triviaqa.jsonl", "longeval/200_lines.jsonl"}) {
      const fs::path data = fs::path(o_.data) / name;
      if (o_.data.empty() || !fs::exists(data)) continue;
      const fs::path folder = out_ / "prompts";
      const fs::path last = folder / fmt::format("{:04}.safetensors", kPrompts);
      if (fs::exists(last) && fs::last_write_time(last) >= fs::last_write_time(o_.model)) {
        return {folder.string()};
      }
      const int status =
          run_self({"capture", "-m", o_.model, "--data", data.string(), "--limit",
                    fmt::format("{}", kPrompts), "-o", folder.string(), "--scores", "none", "-q",
                    "--tokens", fmt::format("{}", std::max<std::size_t>(positions_, 1))});
      require(status == 0, "eval paper: ballast capture --data {} failed with status {}",
              data.string(), status);
      return {folder.string()};
    }
    return keys_and_values();
  }

  std::vector<std::string> words_of(const PaperRow& row) {
    std::vector<std::string> out = {"eval"};
    bool files = false;
    for (const std::string& word : row.arguments) {
      if (word == "{model}") {
        out.push_back(o_.model);
      } else if (word == "{text}") {
        out.push_back(o_.text);
      } else if (word == "{texts}") {
        out.push_back(o_.text);
        // Contents of other kinds, as the files have them.
        for (const char* name : {"longbench/multi_news.jsonl", "longeval/200_lines.jsonl"}) {
          const fs::path file = fs::path(o_.data) / name;
          if (!o_.data.empty() && fs::exists(file)) out.push_back(file.string());
        }
      } else if (word == "{kv}") {
        for (const std::string& w : keys_and_values()) out.push_back(w);
      } else if (word == "{prompts}") {
        for (const std::string& w : prompts()) out.push_back(w);
      } else if (word == "{index}") {
        const std::string file = (out_ / "index.safetensors").string();
        const int status = run_self(
            {"synth", "--index", "--tokens", "8192", "--dim", "16", "--key-norm", "4", "-o", file});
        require(status == 0, "eval paper: ballast synth --index failed with status {}", status);
        out.push_back(file);
      } else if (word == "{files}") {
        files = true;
        for (const std::string& file : found(row)) out.insert(out.end(), {"--data", file});
      } else if (word == "{memory}") {  // as much again as the weights, and 64 MB at least
        const std::uintmax_t weights =
            fs::is_directory(o_.model) ? std::uintmax_t{16} << 30 : fs::file_size(o_.model);
        out.push_back(fmt::format("{}M", std::max<std::uintmax_t>(64, 2 * weights >> 20)));
      } else if (word == "{prompt}") {  // BalanceKV's 16,384 tokens, where there is room
        out.push_back(positions_ >= 17408
                          ? "16384"
                          : fmt::format("{}", static_cast<int>(positions_ * 3 / 4)));
      } else if (word == "{length}") {
        out.push_back(fmt::format("{}", static_cast<int>(static_cast<double>(positions_) * 0.9)));
      } else if (word == "{lengths}") {
        // Short of the positions by what the answer and a template take.
        const auto longest = static_cast<double>(positions_) * 0.97;
        out.push_back(fmt::format("{},{},{},{}", static_cast<int>(longest / 4),
                                  static_cast<int>(longest / 2), static_cast<int>(longest * 3 / 4),
                                  static_cast<int>(longest)));
      } else {
        out.push_back(word);
        const std::string windows = "{windows}";
        if (const auto at = word.find(windows); at != std::string::npos) {
          out.back().replace(at, windows.size(),
                             positions_ >= 8192 ? "kcenter:window=2048;kcenter:window=3072"
                                                : "kcenter:window=512;kcenter:window=1024");
        }
      }
    }
    if (o_.limit == 0 || row.arguments[0] == "throughput") return out;
    const auto set = [&](const char* flag, std::size_t value) {
      const auto at = std::ranges::find(out, flag);
      if (at != out.end()) out.erase(at, at + 2);
      out.insert(out.end(), {flag, fmt::format("{}", value)});
    };
    if (files) set("--limit", o_.limit);
    // Needles of four lengths at five depths.
    if (wants(row, "{lengths}")) set("--repeat", std::max<std::size_t>(1, o_.limit / 5));
    return out;
  }

  std::optional<Result> measure(const PaperRow& row, std::string& command, std::string& state) {
    if (!row.left_out.empty()) return state = "left out: " + row.left_out, std::nullopt;
    if (missing(row)) return state = "needs " + needs(row), std::nullopt;
    if ((wants(row, "{text}") || wants(row, "{texts}")) && o_.text.empty())
      return state = "needs --text", std::nullopt;
    std::vector<std::string> words = words_of(row);
    const fs::path file = out_ / (row.name + ".json");
    words.insert(words.end(), {"-q", "--json=" + file.string()});
    command = "ballast";
    for (const std::string& word : words) command += " " + word;
    if (const std::optional<Result> before = read(file, command)) {
      o_.output.note(fmt::format("{}: {}: as it was measured", row.name, row.label));
      return before;
    }
    o_.output.note(fmt::format("{}: {}: {}", row.name, row.label, command));
    const int status = run_self(words);
    if (status > 128)
      fail("eval paper: {} was ended by signal {}; the same command goes on", row.name,
           status - 128);
    if (status != 0) return state = fmt::format("failed with status {}", status), std::nullopt;
    return read(file, command);
  }

  /// A whole result of this very command that is not older than the model.
  std::optional<Result> read(const fs::path& file, const std::string& command) const {
    if (!fs::exists(file) || fs::last_write_time(file) < fs::last_write_time(o_.model)) return {};
    const std::string text = read_file(file, {.most = kMostJson});
    check_json(text, file.string(), {.fields = kMostFields});
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return {};
    Result result = Result::from_json(json, file.string());
    if (plain(result.command) != plain(command)) return {};
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
                       {"pairs", verdict.pairs},
                       {"holds", verdict.holds},
                       {"level", verdict.level},
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

  Options& o_;
  const Paper& paper_;
  fs::path out_;
  std::size_t positions_ = 0;
};

void run(Options& o) {
  if (o.out.empty()) o.out = "results/" + o.paper;
  PaperRun run(o);
  if (o.list) return run.list();
  run.run();
}

}  // namespace

void add_eval_paper(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "paper", "Every table and figure of a paper, and where its claims hold on this model");
  app->add_option("PAPER", o.paper, "balancekv, clustergen or h2o")->required()->type_name("");
  add_optional_model(*app, o.model);
  app->add_option("--data", o.data,
                  "The folder of the benchmarks: longeval/, longbench/, choice/, summarise/")
      ->type_name("DIR");
  app->add_option("--text", o.text,
                  "A text that the model reads for rows on its attention; without it a made-up "
                  "stream")
      ->type_name("FILE");
  app->add_option("-o,--out", o.out, "The folder of results and the page [results/PAPER]")
      ->type_name("DIR");
  app->add_option("--rows", o.rows, "Only these")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST");
  app->add_option("--limit", o.limit, "Ask the first N samples of each group only")->type_name("N");
  app->add_flag("--list", o.list, "Show the rows, and what each needs");
  o.output.add_to(*app);
  app->footer(
      "Results that are there already are not measured again, so an interrupted run goes on.\n"
      "Example:\n  ballast eval paper balancekv -m model.gguf --data data --text book.txt");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
