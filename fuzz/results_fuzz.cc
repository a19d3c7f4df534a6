// Files of results, and the progress of an experiment that is resumed.
#include "ballast/error.h"
#include "experiments/result_log.h"
#include "memory_file.h"
#include "pages/result.h"
#include "target.h"

namespace {

using namespace ballast;

void read_results(std::string_view input) {
  const TempFile file("progress.jsonl", input);
  try {
    const ResultLog log(file.path(), {{"experiment", "fuzz"}});
    (void)log.find("a");
  } catch (const Error&) {
  }
  try {
    const Json json = Json::parse(input, nullptr, false);
    if (json.is_discarded()) return;
    const Result result = Result::from_json(json, "fuzz");
    (void)result.to_text();
    (void)Result::from_json(result.to_json(), "fuzz");
  } catch (const Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(results, read_results)
