// ballast serve.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace ballast::cli {

void add_serve(CLI::App& parent, std::function<void()>& task);

}  // namespace ballast::cli
