// Beginnings of conversations on disk, for the next start and for other servers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ballast/engine/model.h"
#include "serve/texts/contexts.h"
#include "serve/texts/prefixes.h"

namespace ballast::serve {

/// A folder of saved caches, each beside a note with its tokens. A thread writes them, kWait after
/// they came, so that the turns of a busy conversation are not all written. Files that were used
/// longest ago go where a new one does not fit. Several servers may use one folder. Calls come from
/// one thread.
class PrefixFiles {
 public:
  /// `most`: bytes of all files; `pack`: see Contexts. Throws Error if the folder cannot be used.
  PrefixFiles(const Model& model, std::filesystem::path folder, std::size_t most, PackPreset pack);
  /// Writes what waits.
  ~PrefixFiles();

  /// Those of this model that came to the folder since the last call, without their caches: at
  /// first all, then those of other servers. Damaged ones are removed.
  std::vector<Prefix> arrived();
  /// Has it written later; then removes `replaced`, which it continues.
  void write(std::shared_ptr<const Prefix> prefix, std::vector<std::string> replaced);
  /// The note of its file.
  std::string note_of(const Prefix& prefix) const;
  /// Whether it has a file.
  bool is_written(const std::string& id);
  /// What waits under this id becomes another form of the same prefix.
  void replace(const std::string& id, std::shared_ptr<const Prefix> other);
  /// Bytes of memory that load() takes.
  std::size_t size(const std::string& id);
  /// Gives `prefix` the cache and the logits of its file. False: it is not there or not whole.
  bool load(Prefix& prefix);
  /// Gives up its memory, if it waits. False: it has no file then.
  bool let_go(const std::string& id);
  /// Keeps it from being the one used longest ago.
  void used(const std::string& id) const;
  void remove(const std::string& id);  ///< with what it was to replace

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kWait{30};
  struct Waiting {
    std::shared_ptr<const Prefix> prefix;
    std::vector<std::string> replaced;
    Clock::time_point due;
  };

  std::filesystem::path cache(const std::string& id) const { return folder_ / (id + ".cache"); }
  std::filesystem::path note(const std::string& id) const { return folder_ / (id + ".json"); }
  void loop();
  void save(const Waiting& one);
  void remove_files(const std::string& id) const;
  /// Removes what was used longest ago until `bytes` more fit.
  void make_room(std::size_t bytes);
  /// The one of this id that waits or is being written; null: none.
  std::shared_ptr<const Prefix> unwritten(const std::string& id);

  const Model& model_;
  std::string of_model_;  ///< what the kinds of its files begin with
  std::filesystem::path folder_;
  std::size_t most_;
  PrefixPacker packer_;
  SharedFolder shared_;
  std::set<std::string> known_;  ///< ids that arrived() need not return
  std::filesystem::file_time_type seen_{};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Waiting> waiting_;
  std::shared_ptr<const Prefix> writing_;
  bool unwanted_ = false;  ///< what is being written has been removed
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ballast::serve
