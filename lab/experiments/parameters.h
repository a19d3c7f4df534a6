// What an experiment can be told. One description gives the options of its command, the keywords of
// its Python function, and the text of the command that repeats a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "report/json.h"

namespace ballast {

/// The parameters of one call. Their variables must outlive it.
class Parameters {
 public:
  struct Kind {
    std::string type = {};   ///< shown for a value; empty: by the variable's type
    bool needed = false;     ///< whether it has no default
    bool separated = false;  ///< of texts: whether commas separate them; numbers are
    std::uint64_t least = 0, most = UINT64_MAX;  ///< of whole numbers
  };

  /// One parameter: a name and the variable that it sets, which holds the default.
  struct Entry {
    using Target =
        std::variant<bool*, std::size_t*, double*, std::string*, std::vector<std::size_t>*,
                     std::vector<double>*, std::vector<std::string>*>;
    enum class Role : std::uint8_t { value, model, optional_model };
    std::string names;  ///< "--seed", "-o,--out"; "FILE": an argument without a name
    Target target;
    std::string help;
    Kind kind;
    std::string group;  ///< the heading in the help; empty: "Options"
    Role role = Role::value;
    bool given = false;  ///< by Parameters::set()

    /// "out" of "-o,--out".
    std::string keyword() const;
    bool positional() const { return !names.starts_with('-'); }
    bool separated() const;
  };

  template <typename T>
  void add(std::string names, T& variable, std::string help, Kind kind = {}) {
    all_.push_back({std::move(names), &variable, std::move(help), std::move(kind), group_});
  }
  /// The model that is run, by path. With `help`, which begins the text on it, it may be missing.
  void add_model(std::string& path, const std::string& help = "");
  /// Parameters added from now on stand under this heading.
  void group(std::string name) { group_ = std::move(name); }

  std::span<Entry> all() { return all_; }
  std::span<const Entry> all() const { return all_; }
  /// Sets variables from an object of keywords ('_' and '-' are the same; "files": arguments
  /// without a name); null and false leave the default. A text in place of numbers has them
  /// separated by commas. Throws Error that names the option on unknown names, wrong types or
  /// ranges.
  void set(const Json& values);
  /// Throws Error that names what is needed and was not set().
  void check() const;

 private:
  std::vector<Entry> all_;
  std::string group_;
};

/// "ballast eval NAME …", which sets the same values as Parameters::set() does.
std::string command_of(const std::string& name, const Parameters& parameters, const Json& values);

/// "exact,balancekv:rate=0.25,block=128;h2o" and more such texts: every method string given. Either
/// sign separates; what has a '=' first after a ',' is an option of the method before.
std::vector<std::string> split_methods(const std::vector<std::string>& texts);

}  // namespace ballast
