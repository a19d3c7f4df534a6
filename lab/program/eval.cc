// ballast eval: a command for each experiment, with the outputs of a result.
#include <fmt/format.h>

#include "base/fail.h"
#include "cli/command.h"
#include "cli/mpi_ranks.h"
#include "experiments/experiment.h"
#include "program/commands.h"
#include "report/terminal.h"

namespace ballast::cli {
namespace {

/// --json, --csv, --markdown, --wide, --plot, -q.
class ResultOutput {
 public:
  void add_to(CLI::App& app) {
    json_.add_to(app);
    csv_.add_to(app);
    markdown_.add_to(app);
    app.add_flag("--wide", wide_, "Show every column, however long the lines are");
    app.add_option("--plot", plot_, "Draw the result: a .svg, .png or .pdf file")
        ->type_name("FILE");
    app.add_flag("-q,--quiet", quiet_, "Show no progress");
  }
  /// Before long work, so that unwritable files fail at once.
  void open() {
    if (!plot_.empty()) {
      check_plot(plot_);
      OutputFile{plot_};
    }
    require(json_.text() + csv_.text() + markdown_.text() >= 2,
            "standard output takes one of --json, --csv and --markdown; write --json=FILE");
    for (FormatOption* format : {static_cast<FormatOption*>(&json_), &csv_, &markdown_}) {
      format->open();
    }
  }
  Work::Options work(std::shared_ptr<Ranks> ranks) const {
    Work::Options out;
    // Findings of an interrupted run are FILE.progress with --json=FILE; each rank has its own.
    if (json_.wanted() && json_.text()) out.log = json_.file() + ".progress";
    out.quiet = quiet_;
    if (ranks != nullptr && ranks->rank() > 0) {
      if (!out.log.empty()) out.log += fmt::format(".{}", ranks->rank());
      out.quiet = true;
    }
    out.ranks = std::move(ranks);
    out.command = command_line();
    if (!out.quiet) out.note = [](std::string_view text) { tell(fmt::format("note: {}", text)); };
    return out;
  }
  void write(const Result& result) {
    if (json_.text() && csv_.text() && markdown_.text()) {
      print(result.to_text(wide_ ? 0 : terminal_width()));
    }
    json_.write(result.to_json());
    csv_.write(result.to_csv());
    markdown_.write(result.to_markdown());
    if (plot_.empty()) return;
    for (const auto& path : write_plots(result.plots, plot_)) name_written(path.string());
  }

 private:
  JsonOption json_;
  FormatOption csv_{"--csv", "CSV"};
  FormatOption markdown_{"--markdown", "Markdown"};
  bool wide_ = false;
  std::string plot_;
  bool quiet_ = false;
};

struct Command {
  explicit Command(const Experiment& experiment)
      : label("eval " + experiment.name), call(experiment.call()) {}

  void run() {
    const std::shared_ptr<Ranks> ranks = mpi_ranks();
    const bool first = ranks == nullptr || ranks->rank() == 0;  // the others show and write nothing
    if (first) output.open();
    Work work(label, output.work(ranks));
    const Result result = run_experiment(call, work);
    if (first) output.write(result);
    work.finish();
  }

  std::string label;
  Experiment::Call call;
  ResultOutput output;
};

}  // namespace

void add_eval(CLI::App& parent, std::function<void()>& task) {
  CLI::App* all = parent.add_subcommand("eval", "Run an experiment of the papers");
  all->require_subcommand(0, 1);
  all->fallthrough();
  all->footer("Example:\n  ballast eval attention --help");
  for (const Experiment& e : experiments()) {
    const std::string papers = e.paper.empty() ? "" : fmt::format(" ({})", e.paper);
    CLI::App* app = all->add_subcommand(e.name, e.title + papers);
    const auto command = std::make_shared<Command>(e);
    add_parameters(*app, command->call.parameters);
    command->output.add_to(*app);
    app->footer("Example:\n" + e.examples);
    app->callback([command, &task] { task = [command] { command->run(); }; });
  }
}

}  // namespace ballast::cli
