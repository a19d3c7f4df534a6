// ballast calibrate: what `--cache SIZE` scores entries with, so that a text is read once.
#include <fmt/format.h>

#include "ballast/engine/calibration.h"
#include "ballast/pack.h"
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
  bool packing = false;
  bool quiet = false;
  JsonOption json;
};

void run(Options& o) {
  namespace fs = std::filesystem;
  o.json.open();
  TextModel m(o.model);
  const fs::path out = o.out.empty() ? calibration_path(m.model).string() : o.out;
  require(!out.empty(), "calibrate: HOME is not set: say where the file goes with --out");
  fs::path pack_out = out;
  pack_out.replace_extension(".pack");
  const std::string text = o.file.empty() ? "" : read_text(o.file);
  if (out.has_parent_path()) fs::create_directories(out.parent_path());
  if (!o.packing) OutputFile{out};  // fail now rather than after minutes
  OutputFile{pack_out};
  const Stopwatch time;
  Progress progress("calibrate");
  CalibrateOptions options;
  options.text = text;
  options.scores = !o.packing;
  options.progress = [&](double done) {
    if (!o.quiet) progress.update(done);
    return true;
  };
  const Calibrated made = calibrate(m.model, m.tokenizer, options);
  Json json = {
      {"model", o.model}, {"key", calibration_key(m.model)}, {"pack_file", pack_out.string()}};
  if (made.scores) {
    made.scores->save(out);
    json["file"] = out.string();
    json["bytes"] = fs::file_size(out);
  }
  made.packing->save(pack_out);
  json["pack_bytes"] = fs::file_size(pack_out);
  json["seconds"] = time.seconds();
  if (o.json.text()) {
    const std::string both = fmt::format("{}: for packing", pack_out.string());
    print(fmt::format("{}: calibrated in {:.0f} s\n",
                      made.scores ? fmt::format("{}\n{}", out.string(), both) : both,
                      time.seconds()));
  }
  o.json.write(json);
}

}  // namespace

void add_calibrate(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "calibrate", "Spare a model the replay pass over its texts: once a model, a few minutes");
  add_model_option(*app, o.model);
  app->add_option("-f,--file", o.file,
                  "A text of your own, 25,000 tokens or more, in place of those that come with "
                  "Ballast; -: standard input")
      ->type_name("FILE");
  app->add_option("-o,--out", o.out,
                  "The file; --cache also finds model.gguf.scores beside model.gguf, and packing "
                  "the file beside it that ends in .pack  [default: in the user's cache folder]")
      ->type_name("FILE");
  app->add_flag("--packing", o.packing,
                "Only the .pack file, which packed contexts need: a third of the time");
  app->add_flag("-q,--quiet", o.quiet, "Show no progress");
  o.json.add_to(*app);
  app->footer(
      "Fits a linear function from what enters a layer to the scores of a replay pass,\n"
      "and a linear transform in which entries are packed.\n"
      "All quantizations of a model share the file.\n\nExample:\n  ballast calibrate -m "
      "model.gguf");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
