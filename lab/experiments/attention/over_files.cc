#include "experiments/attention/over_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/attention/prompt_means.h"
#include "report/units.h"

namespace ballast {

Result over_files(KvParameters& source, Work& work, const FileExperiment& experiment) {
  const std::vector<KvParameters> files = source.each();
  const KvParameters given = source;
  if (files[0].file == given.file) {
    const auto opened = source.open(work.label());
    ResultLog& log = work.log(experiment.identity(*opened));
    return experiment.measure(*opened, &log, work.part(0, 1));
  }
  Json identities = Json::array();
  std::size_t least = 0, most = 0;
  for (const KvParameters& file : files) {
    source = file;
    const auto opened = source.open(work.label());
    identities.push_back(experiment.identity(*opened));
    const std::size_t tokens = opened->shape().tokens;
    least = least == 0 ? tokens : std::min(least, tokens);
    most = std::max(most, tokens);
  }
  ResultLog& log = work.log({{"experiment", work.label()}, {"files", identities}});
  std::vector<Result> results;
  for (std::size_t i = 0; i < files.size(); ++i) {
    source = files[i];
    const Json found = log.find_or_make(source.file, [&] {
      return experiment.measure(*source.open(work.label()), nullptr, work.part(i, files.size()))
          .to_json();
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
  return mean;
}

}  // namespace ballast
