// Fetching a model into the store.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "hub/local.h"
#include "hub/reference.h"

namespace ballast::hub {

struct PullOptions {
  bool offline = false;  ///< also with HF_HUB_OFFLINE in the environment: ask no one
  bool quiet = false;    ///< no progress
  /// Takes notes for the person who waits, a line each.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

/// The model that `text` names (see parse_reference()): as it is here, else fetched. A download
/// that was cut goes on where it stopped, two processes share one, the file is checked against the
/// hub's SHA-256 and appears whole. Throws Error with what to do: a name that is unknown, a model
/// whose terms are to be accepted, a full disk, a wrong sum, no connection.
LocalModel pull(const std::string& text, const PullOptions& options);

/// Deletes a model of the store and what was fetched of it; returns the bytes. Throws Error for one
/// of another program's.
std::uintmax_t remove(const std::string& text);

}  // namespace ballast::hub
