// Which model a command runs: what -m, -hf or neither names.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace ballast::cli {

/// `-hf`, as llama.cpp has it, is --hf here: the parser takes one letter behind one dash.
void spell_out_hf(std::vector<std::string>& words);

/// -m, -hf and --offline of a command that runs without a model, too; add_model_option() is for the
/// others. `help` begins the text on -m.
void add_optional_model(CLI::App& app, std::string& path, const std::string& help = "The model");

/// Fetches a model of the hub, or finds it here; returns its path.
using FetchModel = std::function<std::string(const std::string& name, bool offline)>;

/// Sets the option -m of the selected command, if it has one, to the path of the model: of a file
/// or folder, of the name of one that is here, of what -hf names, or, where a model is needed, of
/// the one that is here. Without `fetch`, -hf takes what is here. Throws Error that says what to
/// type.
void choose_model(CLI::App& app, const FetchModel& fetch = {});

}  // namespace ballast::cli
