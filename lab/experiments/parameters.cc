#include "experiments/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "base/fail.h"
#include "base/nearest.h"
#include "report/shell_line.h"

namespace ballast {
namespace {

std::string keyword_of(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Sets the variable of one parameter.
struct Assign {
  const std::string& name;
  const Parameters::Entry& parameter;
  const Json& value;

  void operator()(bool* x) const {
    require(value.is_boolean(), "{}: expected True or False, not {}", name, text_of(value));
    *x = value.get<bool>();
  }
  template <typename T>
  void operator()(T* x) const {
    require(!value.is_array(), "{}: expected one value", name);
    convert(value, *x);
  }
  template <typename T>
  void operator()(std::vector<T>* x) const {
    x->clear();
    for (const Json& part : values()) convert(part, x->emplace_back());
    require(!x->empty(), "{}: expected at least one value", name);
  }

 private:
  std::vector<Json> values() const {
    if (value.is_array()) return {value.begin(), value.end()};
    if (!value.is_string() || !parameter.separated()) return {value};
    std::vector<Json> out;
    const std::string text = value.get<std::string>();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      out.emplace_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return out;
  }
  static void convert(const Json& from, std::string& to) { to = text_of(from); }
  template <typename T>
  void convert(const Json& from, T& to) const {
    const std::string text = text_of(from);
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, to);
    const bool number = error == std::errc() && stop == end;
    if constexpr (std::is_integral_v<T>) {
      const auto [type, needed, separated, least, most] = parameter.kind;
      require(number && to >= least && to <= most, "{}: {} is not a whole number from {}{}", name,
              text, least, most == UINT64_MAX ? "" : fmt::format(" to {}", most));
    } else {
      require(number, "{}: '{}' is not a number", name, text);
    }
  }
};

}  // namespace

std::string Parameters::Entry::keyword() const {
  const std::string first = names.substr(0, names.find(",--", 1));
  const bool letter = first.size() == 2 && first[0] == '-';
  std::string name = letter ? names.substr(3) : first;
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

bool Parameters::Entry::separated() const {
  return kind.separated || std::holds_alternative<std::vector<std::size_t>*>(target) ||
         std::holds_alternative<std::vector<double>*>(target);
}

void Parameters::add_model(std::string& path, const std::string& help) {
  add("-m,--model", path, help);
  all_.back().role =
      help.empty() ? Parameters::Entry::Role::model : Parameters::Entry::Role::optional_model;
}

void Parameters::set(const Json& values) {
  for (const auto& [given, value] : values.items()) {
    const std::string keyword = keyword_of(given), name = "--" + keyword;
    const auto is_called = [&](const Parameters::Entry& p) {
      return p.positional() ? p.names == keyword || keyword == "files"
                            : ("," + p.names + ",").find("," + name + ",") != std::string::npos;
    };
    const auto found = std::ranges::find_if(all_, is_called);
    if (found == all_.end()) {
      std::vector<std::string> known;
      for (const Parameters::Entry& p : all_) known.push_back("--" + p.keyword());
      fail("unknown option {}{}", name, did_you_mean(name, known));
    }
    if (value.is_null() || value == false) continue;
    std::visit(Assign{found->positional() ? keyword : name, *found, value}, found->target);
    found->given = true;
  }
}

void Parameters::check() const {
  for (const Parameters::Entry& p : all_) {
    require(!p.kind.needed || p.given, "{} is required", p.names);
  }
}

std::string command_of(const std::string& name, const Parameters& parameters, const Json& values) {
  std::vector<std::string> words = {"ballast", "eval", name};
  for (const auto& [given, value] : values.items()) {
    if (value.is_null() || value == false) continue;
    const std::string keyword = keyword_of(given);
    const auto p = std::ranges::find_if(parameters.all(), [&](const Parameters::Entry& p) {
      return p.keyword() == keyword || (p.positional() && keyword == "files");
    });
    const bool known = p != parameters.all().end();
    const std::string option = keyword == "model" ? "-m" : "--" + keyword;
    std::vector<std::string> texts;
    if (value.is_array()) {
      for (const Json& part : value) texts.push_back(text_of(part));
    } else if (value != true) {
      texts.push_back(text_of(value));
    }
    if (known && p->separated() && texts.size() > 1) {
      for (std::size_t i = 1; i < texts.size(); ++i) texts[0] += "," + texts[i];
      texts.resize(1);
    }
    if (texts.empty()) words.push_back(option);
    for (const std::string& text : texts) {
      if (!known || !p->positional()) words.push_back(option);
      words.push_back(text);
    }
  }
  return shell_line(words);
}

std::vector<std::string> split_methods(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (std::string_view rest : texts) {
    bool option_may_follow = false;  // of the method before, after a ','
    while (true) {
      const std::size_t end = std::min(rest.find_first_of(",;"), rest.size());
      std::string_view item = rest.substr(0, end);
      while (item.starts_with(' ')) item.remove_prefix(1);
      while (item.ends_with(' ')) item.remove_suffix(1);
      const std::size_t sign = item.find_first_of(":=");
      const bool option = sign != std::string_view::npos && item[sign] == '=';
      if (option && option_may_follow) {
        out.back().append(",").append(item);
      } else if (!item.empty()) {
        out.emplace_back(item);
      }
      if (end == rest.size()) break;
      option_may_follow = rest[end] == ',' && (option_may_follow || !item.empty());
      rest.remove_prefix(end + 1);
    }
  }
  return out;
}

}  // namespace ballast
