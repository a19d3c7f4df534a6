// ballast calibrate: what `--cache SIZE` scores entries with, so that a text is read once.
#include <fmt/format.h>

#include "ballast/engine/calibration.h"
#include "base/fail.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "report/progress.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  std::string file;
  std::string out;
  bool quiet = false;
  JsonOption json;
};

void run(Options& o) {
  o.json.open();
  TextModel m(o.model);
  const std::filesystem::path out = o.out.empty() ? calibration_path(m.model).string() : o.out;
  require(!out.empty(), "calibrate: HOME is not set: say where the file goes with --out");
  const std::string text = o.file.empty() ? "" : read_input(o.file);
  if (out.has_parent_path()) std::filesystem::create_directories(out.parent_path());
  OutputFile{out};  // fails now rather than after minutes
  const Stopwatch time;
  Progress progress("calibrate");
  const auto made = calibrate(
      m.model, m.tokenizer,
      [&](double done) {
        if (!o.quiet) progress.update(done);
        return true;
      },
      text);
  made->save(out);
  if (o.json.text()) {
    print(fmt::format("{}: calibrated in {:.0f} s\n", out.string(), time.seconds()));
  }
  o.json.write({{"file", out.string()},
                {"model", o.model},
                {"key", made->key()},
                {"seconds", time.seconds()},
                {"bytes", std::filesystem::file_size(out)}});
}

}  // namespace

void add_calibrate(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "calibrate", "Spare a model the second reading of texts: once a model, a few minutes");
  add_model_option(*app, o.model);
  app->add_option("-f,--file", o.file,
                  "A text of your own, 25,000 tokens or more, in place of the English one that "
                  "comes with Ballast; -: standard input")
      ->type_name("FILE");
  app->add_option("-o,--out", o.out,
                  "The file; --cache also finds model.gguf.scores beside model.gguf  [default: in "
                  "the user's cache folder]")
      ->type_name("FILE");
  app->add_flag("-q,--quiet", o.quiet, "Show no progress");
  o.json.add_to(*app);
  app->footer(
      "Fits a linear function from what enters a layer to what replay's second reading finds out.\n"
      "All quantizations of a model share the file.\n\nExample:\n  ballast calibrate -m "
      "model.gguf");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
