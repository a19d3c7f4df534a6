#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "ballast/error.h"
#include "ballast/method.h"
#include "ballast/storage.h"
#include "base/nearest.h"
#include "hub/catalogue.h"
#include "report/terminal.h"

namespace ballast::cli {
namespace {

/// Breaks a command so that a shell still takes it: not inside of quotes, a backslash at the end.
std::string wrap_command(std::string line, std::size_t width) {
  constexpr char kBlank = '\x01';
  char quote = 0;
  for (char& c : line) {
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else if (quote != 0 && c == ' ') {
      c = kBlank;
    }
  }
  line = wrap(line, width, 6, " \\");
  std::ranges::replace(line, kBlank, ' ');
  return line;
}

struct Hint {
  const char* name;
  const char* text;
};

/// Options of other programs.
constexpr std::array kHints = {
    Hint{"--ctx-size", "texts are read up to the model's positions; --cache bounds their memory"},
    Hint{"--n-ctx", "texts are read up to the model's positions; --cache bounds their memory"},
    Hint{"--max-model-len",
         "texts are read up to the model's positions; --cache bounds their memory"},
    Hint{"-c", "texts are read up to the model's positions; --cache bounds their memory"},
    Hint{"--n-predict", "did you mean --max-tokens?"},
    Hint{"--predict", "did you mean --max-tokens?"},
    Hint{"--max-new-tokens", "did you mean --max-tokens?"},
    Hint{"--temp", "did you mean --temperature?"},
    Hint{"--file", "did you mean --prompt-file?"},
    Hint{"--prompt", "the prompt stands without an option"},
    Hint{"-p", "the prompt stands without an option"},
    Hint{"-t", "did you mean --threads?"},
    Hint{"--dtype", "did you mean --cache-type? Weights stay as their file has them"},
    Hint{"--flash-attn", "attention always goes block by block; there is nothing to switch on"},
    Hint{"--flash-attention",
         "attention always goes block by block; there is nothing to switch on"},
    Hint{"-fa", "attention always goes block by block; there is nothing to switch on"},
    Hint{"--cache-type-k", "did you mean --key-type?"},
    Hint{"-ctk", "did you mean --key-type?"},
    Hint{"--cache-type-v", "did you mean --value-type?"},
    Hint{"-ctv", "did you mean --value-type?"},
    Hint{"--kv-cache-dtype", "did you mean --cache-type?"},
    Hint{"--n-gpu-layers", "models run on the processor"},
    Hint{"--gpu-layers", "models run on the processor"},
    Hint{"-ngl", "models run on the processor"},
    Hint{"--interactive", "ballast chat is a conversation"},
    Hint{"--conversation", "ballast chat is a conversation"},
};

std::string unknown_option(const CLI::App* at, const std::string& given) {
  std::string name = given.substr(0, given.find('='));
  const std::string text = "unknown option " + name;
  std::ranges::replace(name, '_', '-');
  std::vector<std::string> known;
  for (const CLI::Option* option : at->get_options()) {
    for (const std::string& one : option->get_lnames()) known.push_back("--" + one);
  }
  for (const Hint& hint : kHints) {
    if (name == hint.name) return text + "; " + hint.text;
  }
  return text + did_you_mean(name, known);
}

/// After an argument too many: what may have been meant.
std::string about_argument(const CLI::App* at) {
  const CLI::Option* model = at->get_option_no_throw("--model");
  if (model != nullptr && model->count() == 0) {
    return "; the model needs -m: " + full_name(at) + " -m MODEL";
  }
  const auto positional = at->get_options([](const CLI::Option* o) { return o->get_positional(); });
  return positional.empty() ? "" : "; several words need quotes";
}

/// Refuses what other programs call a cache's type, and methods, where an amount is wanted.
CLI::Validator amount_of_memory(const std::string& method_option) {
  return CLI::Validator(
      [method_option](std::string& text) {
        const std::string name = hub::lower_case(text.substr(0, text.find(':')));
        for (const MethodInfo* method : methods()) {
          if (name == method->name) {
            return text + " is a method; did you mean " + method_option + " " + name + "?";
          }
        }
        try {
          parse_storage_type(name);
        } catch (const Error&) {
          return std::string();  // what is no amount is refused with the forms of one
        }
        return text + " is a storage type; did you mean --cache-type " + name + "?";
      },
      "");
}

std::vector<std::string> names_of_commands(const CLI::App* app) {
  std::vector<std::string> out;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    out.push_back(command->get_name());
  }
  return out;
}

/// The parser's message in our words.
std::string plain_message(std::string what) {
  constexpr std::string_view kRepeated = ": At Most 1 required";
  constexpr std::string_view kNoValue = " required ";
  constexpr std::string_view kConversion = "Could not convert: ";
  if (const std::size_t at = what.find(kRepeated); at != std::string::npos) {
    return what.substr(0, at) + " is given more than once";
  }
  if (what.starts_with(kConversion)) {
    what.erase(0, kConversion.size());
    const std::size_t sign = what.find(" = ");
    return what.substr(0, sign) + ": " +
           (sign == std::string::npos ? "" : "'" + what.substr(sign + 3) + "' ") +
           "is not a number";
  }
  // "--seed: 1 required N missing"
  const std::size_t colon = what.find(": ");
  if (colon != std::string::npos && what.ends_with(" missing") &&
      what.find(kNoValue, colon) != std::string::npos) {
    return what.substr(0, colon) + " needs a value";
  }
  return what;
}

}  // namespace

HelpFormatter::HelpFormatter()
    : width_(terminal_width()), left_(std::min<std::size_t>(30, width_ * 2 / 5)) {}

std::string HelpFormatter::two_columns(const std::string& name, const std::string& text) const {
  std::string out = "  " + name;
  if (text.empty()) return out + '\n';
  if (out.size() + 2 > left_) {
    out += '\n' + std::string(left_, ' ');
  } else {
    out.resize(left_, ' ');
  }
  for (char c : wrap(text, width_ - left_)) {
    out += c;
    if (c == '\n') out.append(left_, ' ');
  }
  return out + '\n';
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  const std::string name = CLI::Formatter::make_option_name(option, is_positional);
  // A flag that may have a value, as it is to be typed.
  const std::size_t value = name.find('{');
  return value == std::string::npos ? name : name.substr(0, value) + "[=FILE]";
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  std::string out = CLI::Formatter::make_option_opts(option);
  const std::size_t empty = out.find("=[]");  // the default of a list without one
  return empty == std::string::npos ? out : out.erase(empty, 3);
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return two_columns(make_option_name(option, is_positional) + make_option_opts(option),
                     make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* sub) const {
  return two_columns(sub->get_display_name(true), sub->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return wrap(CLI::Formatter::make_description(app), width_);
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  return wrap(CLI::Formatter::make_usage(app, std::move(name)), width_, 7);
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  const std::string text = CLI::Formatter::make_footer(app);
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    out +=
        (line.starts_with("  ballast ") ? wrap_command(line, width_) : wrap(line, width_)) + '\n';
    begin = end + 1;
  }
  return out;
}

const CLI::App* selected_command(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string full_name(const CLI::App* app) {
  std::string name = app->get_name();
  for (const CLI::App* p = app->get_parent(); p != nullptr; p = p->get_parent()) {
    name = p->get_name() + " " + name;
  }
  return name;
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = selected_command(&app);
  const std::string help = "; see " + full_name(at) + " --help";
  const std::vector<std::string> extra = app.remaining(true);
  const std::vector<std::string> commands = names_of_commands(at);
  const bool option = !extra.empty() && extra[0].starts_with("-");
  if (option) return unknown_option(at, extra[0]) + help;
  if (!commands.empty()) {
    std::string known = "; known: ";
    for (const std::string& name : commands) known += (name == commands[0] ? "" : ", ") + name;
    if (extra.empty()) return full_name(at) + " needs a command" + known + help;
    return "unknown command '" + extra[0] + "'" + did_you_mean(extra[0], commands) + known + help;
  }
  if (!extra.empty()) {
    return "unexpected argument '" + extra[0] + "'" + about_argument(at) + help;
  }
  return plain_message(error.what()) + help;
}

std::string misread_option(const CLI::App& app, std::span<const std::string> words) {
  const CLI::App* at = &app;
  bool value = false;  // of the option before
  for (const std::string& word : words) {
    if (std::exchange(value, false)) continue;
    if (word == "--") break;
    if (!word.starts_with('-')) {
      const auto named =
          at->get_subcommands([&](const CLI::App* command) { return command->check_name(word); });
      if (!named.empty()) at = named[0];
      continue;
    }
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") && name.size() > 2 &&
        std::ranges::any_of(kHints, [&](const Hint& hint) { return name == hint.name; })) {
      return unknown_option(at, word) + "; see " + full_name(at) + " --help";
    }
    const CLI::Option* option = at->get_option_no_throw(word);
    value = option != nullptr && option->get_items_expected_min() > 0;
  }
  return "";
}

namespace {
constexpr const char* kWhole = "whole number";
}

CLI::Validator whole_number(std::uint64_t low, std::uint64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        std::uint64_t number = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, number);
        if (error == std::errc() && stop == end && number >= low && number <= high) {
          text = std::to_string(number);
          return std::string();
        }
        if (high == UINT64_MAX) return fmt::format("{} is not a whole number from {}", text, low);
        return fmt::format("{} is not a whole number from {} to {}", text, low, high);
      },
      "", kWhole);
}

CLI::Validator one_of(std::vector<std::string> names) {
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        if (std::ranges::find(names, text) != names.end()) return std::string();
        return fmt::format("{} is unknown; known: {}{}", text, fmt::join(names, ", "),
                           did_you_mean(text, names));
      },
      "");
}

void finish_options(CLI::App& app) {
  const CLI::Validator whole = whole_number(0, UINT64_MAX);
  const bool lists = app.get_option_no_throw("--methods") != nullptr;
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; })) {
    const std::string type = option->get_type_name();
    if (type == "UINT" || type == "INT") option->type_name("N");
    if (type == "FLOAT") option->type_name("X");
    if (type == "N" || type == "K" || type == "UINT") {
      try {
        option->get_validator(kWhole);
      } catch (const CLI::OptionNotFound&) {
        option->transform(whole);
      }
    }
    if (option->check_lname("cache")) {
      option->check(amount_of_memory(lists ? "--methods" : "--method"));
    }
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    finish_options(*command);
  }
}

}  // namespace ballast::cli
