// ballast eval: the table of experiments. Adding one: a line here and a file of its own.
#include <array>

#include "cli/command.h"

namespace ballast::cli {

void add_eval(CLI::App& parent, std::function<void()>& task) {
  static constexpr std::array experiments = {
      &add_eval_attention,   //
      &add_eval_ablation,    //
      &add_eval_memory,      //
      &add_eval_norms,       //
      &add_eval_clusters,    //
      &add_eval_heavy,       //
      &add_eval_submodular,  //
      &add_eval_neurons,     //
      &add_eval_needle,      //
      &add_eval_lines,       //
      &add_eval_records,     //
      &add_eval_longbench,   //
      &add_eval_light,       //
      &add_eval_ruler,       //
      &add_eval_summarise,   //
      &add_eval_choice,      //
      &add_eval_quantized,   //
      &add_eval_diversity,   //
      &add_eval_answers,     //
      &add_eval_stream,      //
      &add_eval_efficiency,  //
      &add_eval_throughput,  //
      &add_eval_paper,       //
  };
  CLI::App* app = parent.add_subcommand("eval", "Run an experiment of the papers");
  app->require_subcommand(0, 1);
  app->fallthrough();
  app->footer("Example:\n  ballast eval attention --help");
  for (AddCommand add : experiments) add(*app, task);
}

}  // namespace ballast::cli
