// Options of a command from the parameters of an experiment.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_choice.h"
#include "cli/model_options.h"
#include "program/commands.h"

namespace ballast::cli {
namespace {

using Entry = Parameters::Entry;

template <typename T>
CLI::Option* add_option(CLI::App& app, const Entry& p, T& variable) {
  CLI::Option* option = app.add_option(p.names, variable, p.help);
  if (variable != T{}) option->capture_default_str();
  const std::string type = std::is_same_v<T, std::string> ? "TEXT"
                           : std::is_integral_v<T>        ? "N"
                                                          : "X";
  return option->type_name(p.positional() ? "" : p.kind.type.empty() ? type : p.kind.type);
}

template <typename T>
CLI::Option* add_option(CLI::App& app, const Entry& p, std::vector<T>& variable) {
  CLI::Option* option = app.add_option(p.names, variable, p.help);
  if (!variable.empty()) option->default_str(fmt::format("{}", fmt::join(variable, ",")));
  if (p.positional()) return option->type_name("");
  if (p.separated()) option->delimiter(',');
  option->allow_extra_args(false);
  return option->type_name(p.kind.type.empty() ? "LIST" : p.kind.type);
}

CLI::Option* add_option(CLI::App& app, const Entry& p, bool& variable) {
  return app.add_flag(p.names, variable, p.help);
}

}  // namespace

void add_parameters(CLI::App& app, const Parameters& parameters) {
  for (const Entry& p : parameters.all()) {
    if (p.role == Entry::Role::model) {
      add_model_option(app, *std::get<std::string*>(p.target));
      continue;
    }
    if (p.role == Entry::Role::optional_model) {
      add_optional_model(app, *std::get<std::string*>(p.target), p.help);
      continue;
    }
    CLI::Option* option =
        std::visit([&](auto* variable) { return add_option(app, p, *variable); }, p.target);
    option->required(p.kind.needed);
    if (!p.group.empty()) option->group(p.group);
    if (p.kind.least > 0 || p.kind.most < UINT64_MAX) {
      option->transform(whole_number(p.kind.least, p.kind.most));
    }
  }
}

}  // namespace ballast::cli
