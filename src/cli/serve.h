// ballast serve and generate.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace ballast::cli {

void add_serve(CLI::App& parent, std::function<void()>& task);
void add_generate(CLI::App& parent, std::function<void()>& task);

}  // namespace ballast::cli
