// The subcommands pull, models and remove.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace ballast::cli {

/// See FetchModel; notes go to standard error.
std::string fetch_model(const std::string& name, bool offline);

void add_pull(CLI::App& parent, std::function<void()>& task);
void add_models(CLI::App& parent, std::function<void()>& task);
void add_remove(CLI::App& parent, std::function<void()>& task);

}  // namespace ballast::cli
