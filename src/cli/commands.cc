// The table of subcommands. Adding one: a line here and a file of its own.
#include <array>

#include "cli/command.h"
#include "cli/lab.h"
#include "cli/pull.h"
#include "cli/serve.h"

namespace ballast::cli {

std::span<const AddCommand> commands() {
  static constexpr std::array all = {
      &add_run,         //
      &add_chat,        //
      &add_serve,       //
      &add_generate,    //
      &add_library,     //
      &add_pull,        //
      &add_models,      //
      &add_remove,      //
      &add_calibrate,   //
      &add_perplexity,  //
      &add_tokenize,    //
      &add_methods,     //
      &add_inspect,     //
      &add_lab,         //
  };
  return all;
}

}  // namespace ballast::cli
