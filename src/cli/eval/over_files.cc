#include "cli/eval/over_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "eval/results/prompt_means.h"
#include "report/progress.h"
#include "report/units.h"

namespace ballast::cli {

void over_files(KvOptions& source, ResultOutput& output, const FileExperiment& experiment) {
  const std::vector<KvOptions> files = source.each();
  const KvOptions given = source;
  Progress progress(experiment.command);
  const auto advance = [&](std::size_t file) {
    return [&, file](double done) {
      if (output.quiet()) return;
      progress.update((static_cast<double>(file) + done) / static_cast<double>(files.size()));
    };
  };
  if (files[0].file == given.file) {
    const auto opened = source.open(experiment.command);
    const Json identity = experiment.identity(*opened);
    output.open();
    ResultLog log = output.log(identity);
    output.write(experiment.measure(*opened, &log, advance(0)), log);
    return;
  }
  Json identities = Json::array();
  std::size_t least = 0, most = 0;
  for (const KvOptions& file : files) {
    source = file;
    const auto opened = source.open(experiment.command);
    identities.push_back(experiment.identity(*opened));
    const std::size_t tokens = opened->shape().tokens;
    least = least == 0 ? tokens : std::min(least, tokens);
    most = std::max(most, tokens);
  }
  output.open();
  ResultLog log = output.log({{"experiment", experiment.command}, {"files", identities}});
  std::vector<Result> results;
  for (std::size_t i = 0; i < files.size(); ++i) {
    source = files[i];
    const Json found = log.find_or_make(source.file, [&] {
      Result result = experiment.measure(*source.open(experiment.command), nullptr, advance(i));
      result.command = command_line();
      return result.to_json();
    });
    results.push_back(Result::from_json(found, source.file));
  }
  source = given;
  Result mean = mean_over_prompts(std::move(results), experiment.keys);
  const std::string kind = mean.title.substr(0, mean.title.find(','));
  mean.title = fmt::format("{}, {}: {} texts of {} to {} tokens", kind, given.file, files.size(),
                           format_count(least), format_count(most));
  mean.settings["source"] = given.file;
  mean.settings["prompts"] = files.size();
  mean.settings["tokens"] = {least, most};
  mean.notes.push_back(fmt::format(
      "Means over {} texts; in brackets the 95% interval over texts, by Student's t. The plots are "
      "those of the first text.",
      files.size()));
  output.write(std::move(mean), log);
}

}  // namespace ballast::cli
