// ballast eval quantised: multiple choice with a cache of 4 bits (H2O, table 6).
#include "cli/eval/choice.h"

namespace ballast::cli {

void add_eval_quantized(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<ChoiceFlags>();
  CLI::App* app =
      parent.add_subcommand("quantised", "Multiple choice with caches of 16 bits and of 4");
  options->add_to(*app, "exact;h2o", {.rates = {0.2}});
  app->footer(
      "Example:\n  ballast eval quantised -m model.gguf --data copa.jsonl --data piqa.jsonl "
      "--shots 0 --methods 'exact;h2o' --rates 0.2 --cache-types bf16,int4 --json=quantised.json");
  app->callback([options, &task] {
    task = [options] {
      if (options->flags.variants.types.empty()) options->flags.variants.types = {"bf16", "int4"};
      run_choice(*options, "quantised", "Multiple choice with caches of several types");
    };
  });
}

}  // namespace ballast::cli
