// The subcommands pull, models and remove.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace ballast::cli {

void add_pull(CLI::App& parent, std::function<void()>& task);
void add_models(CLI::App& parent, std::function<void()>& task);
void add_remove(CLI::App& parent, std::function<void()>& task);

}  // namespace ballast::cli
