// Whose a context is.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::serve {

/// Names of those who make contexts and beginnings. A name does not tell the key that it is of: it
/// is a hash of the key behind 32 random bytes, which are in the folder and readable by its user
/// alone.
class Owners {
 public:
  /// Of what no one may see but clients of a server without keys: no file says whose it is.
  static constexpr std::string_view kNobody = "nobody";

  /// `keys`: those that clients may give; none: everything is anyone's. `folder`: where the random
  /// bytes outlive the process and are shared by servers; empty, or where that fails: nowhere.
  explicit Owners(const std::vector<std::string>& keys, const std::filesystem::path& folder = {});

  /// The name of a key's owner; empty: anyone, where there are no keys.
  std::string of(std::string_view key) const;
  /// The name of the owner whose key has the hash `old`, which earlier versions wrote. If no key
  /// has that hash: `old`, which no request can match.
  std::string renamed(std::string_view old) const;

 private:
  std::vector<std::string> keys_;
  std::string salt_;
};

}  // namespace ballast::serve
