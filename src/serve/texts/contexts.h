// Texts that were read once, for requests that name them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ballast/engine/model.h"
#include "ballast/pack.h"
#include "base/os/files.h"
#include "report/json.h"
#include "report/placed_picture.h"
#include "serve/http/memory.h"
#include "serve/texts/owners.h"

namespace ballast::serve {

/// What is known of a context without its cache.
struct ContextInfo {
  std::string id;
  std::string name;
  std::string owner;   ///< who made it (see Owners); empty: anyone's
  std::string form;    ///< of QuestionForm::to_text()
  std::string before;  ///< text that was read, with the words of the template; may be empty
  std::string system;  ///< what the template says first
  std::vector<PlacedPicture> pictures;
  std::string cache;  ///< method, types and seed
  std::int64_t created = 0;
  std::size_t tokens = 0;
  std::size_t bytes = 0;        ///< of the cache
  std::size_t exact_bytes = 0;  ///< that the exact cache would take
  double read_seconds = 0;
  double compress_seconds = 0;
  Json gauge;  ///< what the cache costs (report/gauge_json.h); null: it is not known

  Json to_json() const;
};

/// A context whose cache is in memory. Never changes.
struct Context {
  ContextInfo info;
  Cache cache;
  Lease lease;
  std::vector<Token> text = {};  ///< the last tokens read, as far as they are known
};

/// A folder that servers share: each holds a lock on it while it is there, killed or not.
class SharedFolder {
 public:
  /// Makes the folder if need be, for this user alone. Where no other server is there, files that
  /// are not whole and whose names start with `begin` have no owner and are removed. Throws Error
  /// if the folder cannot be used.
  void open(const std::filesystem::path& folder, std::string_view begin);

 private:
  Descriptor file_;
};

/// All contexts. Safe to use from many threads. A call sees the contexts of its `owner` and those
/// without one. A call without an owner also sees contexts whose owner is not known.
class Contexts {
 public:
  /// Bytes of a name.
  static constexpr std::size_t kMostName = 256;

  /// `folder`: where they survive the process; empty: nowhere. Reads those that are there; files
  /// of another model and damaged ones stay where they are, and `refused` has a line for each.
  /// Several servers may use one folder; each sees what was there when it started, without what
  /// another has removed. `keys`: of Owners. `most`: bytes of the contexts there; 0: any.
  /// `pack`: how exact caches lie there; step 0: as they are. `unpacked`: of the caches that packed
  /// contexts of before this start, and of others, become; none: those that were packed.
  Contexts(const Model& model, Memory& memory, std::filesystem::path folder,
           std::vector<std::string>& refused, const std::vector<std::string>& keys = {},
           std::size_t most = 0, PackPreset pack = {}, std::optional<CacheOptions> unpacked = {});

  const Owners& owners() const { return *owners_; }

  /// Throws ApiError unless the folder has room for a context of so many bytes.
  void check_room(std::size_t bytes) const;
  /// Adds a context under a new id; saves it whole first where there is a folder, with the tokens
  /// read. Throws ApiError if that fails.
  ContextInfo add(ContextInfo info, Cache cache, Lease lease, std::span<const Token> text = {});
  std::vector<ContextInfo> list(const std::string& owner = "");
  std::optional<ContextInfo> info(const std::string& id, const std::string& owner = "");
  /// Loads it if need be. nullptr: there is none of this id. Throws ApiError if there is no memory
  /// for it, Error if its file is damaged.
  std::shared_ptr<const Context> get(const std::string& id, const std::string& owner = "");
  /// Adds one whose cache is in a file of others, which remove() leaves there and list() does not
  /// name. `info`: id, name and before; the rest is of the file. Throws Error if it cannot be used
  /// with this model.
  void lend(ContextInfo info, std::filesystem::path file);
  /// Called with an id that there is no context of, before that is said: may lend one. Set it
  /// before others call.
  void set_lender(std::function<void(const std::string& id)> lender) {
    lender_ = std::move(lender);
  }
  /// Whether there was one. Throws ApiError if its file cannot be removed; it then stays.
  bool remove(const std::string& id, const std::string& owner = "");
  /// Drops the cache used longest ago of those that are on disk and not in use. False: none, or,
  /// unless it may wait, a context is being loaded.
  bool evict(bool wait);
  struct Counts {
    std::size_t contexts = 0, loaded_bytes = 0;
  };
  /// Never waits: while a context is loaded, what was there before.
  Counts counts() const;

 private:
  struct Slot {
    ContextInfo info;
    std::filesystem::path file;  ///< of its cache; empty: none
    std::shared_ptr<const Context> loaded;
    std::uint64_t used = 0;
    bool unpacks = false;  ///< into `unpacked_`
    bool lent = false;
  };
  std::filesystem::path file(const std::string& id) const { return folder_ / (id + ".cache"); }
  /// Where earlier versions kept what is now in the file of the cache.
  std::filesystem::path notes(const std::string& id) const { return folder_ / (id + ".json"); }
  /// What its file says: form, cache, tokens, bytes. `about`: what save_context() was told about
  /// it.
  Slot describe(const std::filesystem::path& file, ContextInfo info,
                std::string* about = nullptr) const;
  /// What a server that made it knew of it.
  void take_notes(const std::string& json, ContextInfo& info) const;
  /// Whether its file is there, if it has one.
  static bool there(const Slot& slot);
  /// Asks for a context that is not there to be lent.
  void want(const std::string& id, const std::string& owner);
  /// nullptr: the owner has none, or its file is gone; it is then forgotten.
  Slot* find(const std::string& id, const std::string& owner);
  bool evict_locked();
  std::shared_ptr<const Context> load(const Slot& slot);

  const Model& model_;
  Memory& memory_;
  std::filesystem::path folder_;
  std::size_t most_;
  PackPreset pack_;
  std::optional<CacheOptions> unpacked_;
  SharedFolder shared_;
  std::optional<Owners> owners_;
  std::function<void(const std::string& id)> lender_;
  mutable std::mutex mutex_;
  std::map<std::string, Slot> slots_;
  std::uint64_t uses_ = 0;
  mutable std::mutex counts_mutex_;
  mutable Counts counts_;
};

/// Whether a cache is packed where stores pack with this preset: it has every token.
bool packs(const PackPreset& preset, const CacheOptions& options);
/// What packed contexts become in a server whose caches have these options: none, that is what they
/// were, where every token is kept or the method needs more than they have.
std::optional<CacheOptions> unpacked_form(const CacheOptions& options);

/// A random id of 24 letters and digits after `prefix`.
std::string new_id(const std::string& prefix);

/// The options of a cache as text; caches of equal text are of one kind.
std::string describe_cache(const CacheOptions& options);

}  // namespace ballast::serve
