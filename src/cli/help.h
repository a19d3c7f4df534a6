// Help that fits the terminal, and usage errors in one line.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

namespace ballast::cli {

/// Breaks lines at the terminal's width; examples stay commands that a shell takes.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string two_columns(const std::string& name, const std::string& text) const;
  std::size_t width_;
  std::size_t left_;  ///< columns of the names
};

/// The command that the arguments led to.
const CLI::App* selected_command(const CLI::App* app);
/// "ballast eval attention"
std::string full_name(const CLI::App* app);
/// What is wrong with the command line, what was meant, and where the help is.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);
/// The error for the first word that is an option of another program and that the parser would take
/// for a short one with its value (-ngl for -n gl); empty if there is none.
std::string misread_option(const CLI::App& app, std::span<const std::string> words);

/// A whole number from `low` to `high`.
CLI::Validator whole_number(std::uint64_t low, std::uint64_t high);
/// One of these words.
CLI::Validator one_of(std::vector<std::string> names);
/// To be called when all options are there. Options of whole numbers refuse others: CLI11 reads -1
/// as the largest value and 010 as 8. Help says N and X for numbers, not CLI11's types. --cache
/// refuses methods and storage types with a hint.
void finish_options(CLI::App& app);

}  // namespace ballast::cli
