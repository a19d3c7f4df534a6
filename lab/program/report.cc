// ballast report: results of experiments as one page.
#include <fmt/format.h>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "formats/json_text.h"
#include "pages/result.h"
#include "program/commands.h"

namespace ballast::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string out;
  std::string title = "Ballast: results";
};

Result read_result(const std::string& path) {
  const std::string text = read_file(path, {.most = kMostJson});
  check_json(text, path, {.fields = kMostFields});
  const Json json = parse_own_json(text);
  require(!json.is_discarded(), ErrorCode::bad_file,
          "{}: not a whole JSON file; report reads what ballast eval NAME --json=FILE writes",
          path);
  try {
    return Result::from_json(json, path);
  } catch (const Error& error) {
    rethrow_from_file(error);
  }
}

void run(const Options& o) {
  OutputFile file{o.out};
  std::vector<Result> results;
  for (const std::string& path : o.files) results.push_back(read_result(path));
  file.write(html_page(o.title, results));
  file.commit();
  name_written(o.out);
}

}  // namespace

void add_report(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand(
      "report", "Put results of experiments (--json=FILE) on one HTML page with tables and plots");
  app->add_option("FILE", options->files, "Results files, in the order of the page")
      ->required()
      ->type_name("");
  app->add_option("-o,--out", options->out, "The page to write")->required()->type_name("FILE");
  app->add_option("--title", options->title, "Its title")->capture_default_str()->type_name("TEXT");
  app->footer(
      "Example:\n  ballast eval memory --json=results/memory.json\n"
      "  ballast report results/*.json -o report.html");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
