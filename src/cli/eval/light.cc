// ballast eval light: LongBench with little removed (BalanceKV, table 5).
#include "cli/eval/longbench.h"

namespace ballast::cli {

void add_eval_light(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<LongBenchFlags>();
  CLI::App* app = parent.add_subcommand("light", "LongBench with 5 to 20 per cent removed");
  options->add_to(*app, with_storage_only("balancekv;uniform:from=oldest;uniform"),
                  {.rates = {0.8, 0.9, 0.95}});
  app->footer(
      "Example:\n  ballast eval light -m model.gguf --data longbench/data "
      "--tasks hotpotqa,triviaqa,multifieldqa_en,qasper,lcc,passage_count --json=light.json");
  app->callback([options, &task] {
    task = [options] {
      run_longbench(*options, "light", "LongBench with little removed",
                    {"To remove m tokens, balancekv and uniform:from=oldest (the paper's uniform) "
                     "halve the 2m oldest; uniform draws from all of the middle."});
    };
  });
}

}  // namespace ballast::cli
