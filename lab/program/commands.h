// The subcommands of ballast-eval.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "experiments/parameters.h"

namespace ballast::cli {

void add_eval(CLI::App& parent, std::function<void()>& task);
void add_bench(CLI::App& parent, std::function<void()>& task);
void add_report(CLI::App& parent, std::function<void()>& task);
void add_synth(CLI::App& parent, std::function<void()>& task);
void add_capture(CLI::App& parent, std::function<void()>& task);
void add_compress(CLI::App& parent, std::function<void()>& task);
void add_inspect_vectors(CLI::App& parent, std::function<void()>& task);

/// Options of a command, one for each parameter.
void add_parameters(CLI::App& app, const Parameters& parameters);

}  // namespace ballast::cli
