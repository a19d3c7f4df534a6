#include "serve/texts/contexts.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "ballast/engine/context_file.h"
#include "ballast/error.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "formats/json_text.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"

namespace ballast::serve {
namespace {

constexpr std::string_view kBegin = "ctx_";  ///< of ids, and of their files' names

bool belongs(const ContextInfo& info, const std::string& owner) {
  if (info.owner == Owners::kNobody) return owner.empty();
  return info.owner.empty() || info.owner == owner;
}

}  // namespace

std::string new_id(const std::string& prefix) {
  static constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::uniform_int_distribution<std::size_t> any(0, letters.size() - 1);
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id += letters[any(random)];
  return id;
}

std::string describe_cache(const CacheOptions& o) {
  std::string out = fmt::format("{}, keys {}, values {}, seed {}", o.policy.to_string(),
                                to_string(o.key_type), to_string(o.value_type), o.seed);
  if (o.protocol != Protocol::prefill) out += ", protocol stream";
  if (o.positions != Positions::absolute) out += ", positions rolling";
  return out;
}

Json ContextInfo::to_json() const {
  return {{"id", id},
          {"object", "context"},
          {"name", name},
          {"created", created},
          {"form", form.starts_with("chat") ? "chat" : "raw"},
          {"cache", cache},
          {"tokens", tokens},
          {"cache_bytes", bytes},
          {"exact_bytes", exact_bytes},
          {"read_seconds", read_seconds},
          {"compress_seconds", compress_seconds},
          {"gauge", gauge}};
}

void SharedFolder::open(const std::filesystem::path& folder, std::string_view begin) {
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (!error) file_ = Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  require(file_.number() >= 0, ErrorCode::io,
          "--cache-dir {}: cannot use this folder: {}; choose another one", folder.string(),
          error ? error.message() : std::strerror(errno));
  const bool alone = lock_file(file_.number(), Lock::alone_or_not);
  if (alone) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(begin) && name.ends_with(".partial")) {  // others may write here too
        std::filesystem::remove(entry.path(), error);
      }
    }
  }
  // Waits at most for another server's start. Without locks no one ever takes itself to be alone.
  lock_file(file_.number(), Lock::shared);
}

bool packs(const PackPreset& preset, const CacheOptions& options) {
  return preset.step > 0 && options.policy.info().window_policy == WindowPolicy::all;
}

std::optional<CacheOptions> unpacked_form(const CacheOptions& options) {
  const bool all = options.policy.info().window_policy == WindowPolicy::all;
  const bool asks = options.needs_queries() || options.policy.needs().reads_again();
  return all || asks ? std::nullopt : std::optional(options);
}

Contexts::Contexts(const Model& model, Memory& memory, std::filesystem::path folder,
                   std::vector<std::string>& refused, const std::vector<std::string>& keys,
                   std::size_t most, PackPreset pack, std::optional<CacheOptions> unpacked)
    : model_(model),
      memory_(memory),
      folder_(std::move(folder)),
      most_(most),
      pack_(pack),
      unpacked_(std::move(unpacked)) {
  if (!folder_.empty()) shared_.open(folder_, kBegin);
  owners_.emplace(keys, folder_);
  if (folder_.empty()) return;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() == ".cache") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const std::filesystem::path& path : files) {
    ContextInfo info;
    info.id = info.name = path.stem().string();
    info.owner = Owners::kNobody;
    try {
      std::string about;
      Slot slot = describe(path, info, &about);
      take_notes(about, slot.info);
      slots_[info.id] = std::move(slot);
    } catch (const Error& error) {
      refused.emplace_back(error.what());
    }
  }
}

void Contexts::take_notes(const std::string& about, ContextInfo& info) const try {
  const bool beside = about.empty();
  const Json json =
      parse_object(beside ? read_file(notes(info.id), {.most = kMostJson, .pipes = false}) : about);
  Fields fields(json);
  ContextInfo out = info;
  out.name = fields.text("name").value_or("");
  if (const auto owner = fields.text("owner")) {
    out.owner = beside && !owner->empty() ? owners_->renamed(*owner) : *owner;
  }
  out.before = fields.text("before").value_or("");
  out.system = fields.text("system").value_or("");
  if (const Json* all = fields.find("pictures")) out.pictures = placed_pictures(*all, info.tokens);
  out.created = static_cast<std::int64_t>(fields.count("created", 0, INT64_MAX).value_or(0));
  out.read_seconds = fields.number("read_seconds", 0, 1e9, 0);
  out.compress_seconds = fields.number("compress_seconds", 0, 1e9, 0);
  if (const Json* gauge = fields.find("gauge")) out.gauge = *gauge;
  info = std::move(out);
} catch (
    const std::exception&) {  // it still answers, though not to everyone; its text is not known
}

Contexts::Slot Contexts::describe(const std::filesystem::path& file, ContextInfo info,
                                  std::string* about) const {
  SavedContext saved = describe_context(file, model_);
  const bool unpacks = saved.packed && unpacked_;
  info.form = std::move(saved.form);
  info.tokens = saved.tokens;
  info.cache = describe_cache(unpacks ? *unpacked_ : saved.options);
  info.bytes = saved.bytes;
  info.exact_bytes = saved.exact_bytes;
  if (about != nullptr) *about = std::move(saved.about);
  return {std::move(info), file, nullptr, 0, unpacks};
}

void Contexts::lend(ContextInfo info, std::filesystem::path file) {
  Slot slot = describe(file, std::move(info));
  slot.lent = true;
  const std::scoped_lock lock(mutex_);
  slots_[slot.info.id] = std::move(slot);
}

void Contexts::check_room(std::size_t bytes) const {
  if (folder_.empty() || most_ == 0) return;
  std::uintmax_t all = bytes;
  const std::scoped_lock lock(mutex_);
  for (const auto& [id, slot] : slots_) {
    std::error_code gone;
    const std::uintmax_t size =
        slot.file == file(id) ? std::filesystem::file_size(slot.file, gone) : 0;
    if (!gone) all += size;
  }
  if (all <= most_) return;
  throw ApiError(507, "insufficient_storage",
                 fmt::format("with this context all would take {} bytes on disk, --cache-dir-max "
                             "allows {}; delete some",
                             all, most_));
}

ContextInfo Contexts::add(ContextInfo info, Cache cache, Lease lease, std::span<const Token> text) {
  info.id = new_id(std::string(kBegin));
  if (!folder_.empty()) {
    const Json json = {{"name", info.name},
                       {"owner", info.owner},
                       {"before", info.before},
                       {"system", info.system},
                       {"pictures", ballast::to_json(info.pictures)},
                       {"created", info.created},
                       {"read_seconds", info.read_seconds},
                       {"compress_seconds", info.compress_seconds},
                       {"gauge", info.gauge}};
    try {
      if (packs(pack_, cache.options())) {
        const std::vector<std::byte> packed =
            pack_context(model_, cache, pack_, info.form, text, to_text(json));
        check_room(packed.size());
        OutputFile out(file(info.id));
        out.write(packed);
        out.commit();
      } else {
        check_room(cache.bytes().used());
        save_context(file(info.id), model_, cache, info.form, text, to_text(json));
      }
    } catch (const Error& error) {
      throw ApiError(500, "internal_error", error.what());
    }
  }
  auto context = std::make_shared<const Context>(
      Context{info, std::move(cache), std::move(lease), {text.begin(), text.end()}});
  const std::scoped_lock lock(mutex_);
  slots_[info.id] = {info, folder_.empty() ? "" : file(info.id), std::move(context), ++uses_};
  return info;
}

bool Contexts::there(const Slot& slot) {
  if (slot.file.empty()) return true;
  std::error_code unknown;  // a folder that cannot be read now says nothing
  return std::filesystem::exists(slot.file, unknown) || unknown;
}

Contexts::Slot* Contexts::find(const std::string& id, const std::string& owner) {
  const auto at = slots_.find(id);
  if (at == slots_.end() || !belongs(at->second.info, owner)) return nullptr;
  if (there(at->second)) return &at->second;
  slots_.erase(at);
  return nullptr;
}

std::vector<ContextInfo> Contexts::list(const std::string& owner) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(slots_, [&](const auto& slot) { return !there(slot.second); });
  std::vector<ContextInfo> out;
  for (const auto& [id, slot] : slots_) {
    if (!slot.lent && belongs(slot.info, owner)) out.push_back(slot.info);
  }
  return out;
}

void Contexts::want(const std::string& id, const std::string& owner) {
  if (!lender_) return;
  {
    const std::scoped_lock lock(mutex_);
    if (find(id, owner) != nullptr) return;
  }
  lender_(id);
}

std::optional<ContextInfo> Contexts::info(const std::string& id, const std::string& owner) {
  want(id, owner);
  const std::scoped_lock lock(mutex_);
  const Slot* slot = find(id, owner);
  if (slot == nullptr) return std::nullopt;
  return slot->info;
}

std::shared_ptr<const Context> Contexts::load(const Slot& slot) {
  const ContextInfo& info = slot.info;
  Lease lease;
  std::error_code unknown;
  const std::uintmax_t size = std::filesystem::file_size(slot.file, unknown);
  while (!memory_.take(std::max<std::size_t>(info.bytes, unknown ? 0 : size), lease)) {
    if (evict_locked()) continue;
    throw ApiError(503, "insufficient_memory",
                   fmt::format("no memory for the context {} now: {} bytes; try again later",
                               info.id, info.bytes));
  }
  std::vector<Token> text;
  Cache cache = load_context(slot.file, model_, nullptr, &text, nullptr,
                             slot.unpacks ? &*unpacked_ : nullptr);
  lease.shrink(cache.bytes().total());
  return std::make_shared<const Context>(
      Context{info, std::move(cache), std::move(lease), std::move(text)});
}

std::shared_ptr<const Context> Contexts::get(const std::string& id, const std::string& owner) {
  want(id, owner);
  const std::scoped_lock lock(mutex_);
  Slot* slot = find(id, owner);
  if (slot == nullptr) return nullptr;
  slot->used = ++uses_;
  try {
    if (!slot->loaded) slot->loaded = load(*slot);
  } catch (const Error&) {
    if (find(id, owner) != nullptr) throw;
    return nullptr;  // removed while it was read
  }
  return slot->loaded;
}

bool Contexts::remove(const std::string& id, const std::string& owner) {
  want(id, owner);
  const std::scoped_lock lock(mutex_);
  const Slot* slot = find(id, owner);
  if (slot == nullptr) return false;
  if (slot->lent) {
    throw ApiError(
        400, "invalid_value",
        fmt::format("{} is a document of the library: ballast library remove takes it out",
                    slot->info.name));
  }
  if (!slot->file.empty()) {
    std::error_code error;
    std::filesystem::remove(slot->file, error);
    if (error) {
      throw ApiError(
          500, "internal_error",
          fmt::format("{}: cannot be removed, so that the context stays: {}; see who may "
                      "write to the folder",
                      slot->file.string(), error.message()));
    }
    std::filesystem::remove(notes(id), error);
  }
  slots_.erase(id);
  return true;
}

bool Contexts::evict(bool wait) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (wait) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return false;
  }
  return evict_locked();
}

bool Contexts::evict_locked() {
  Slot* oldest = nullptr;
  for (auto& [id, slot] : slots_) {
    if (slot.file.empty() || !slot.loaded || slot.loaded.use_count() > 1) continue;
    if (oldest == nullptr || slot.used < oldest->used) oldest = &slot;
  }
  if (oldest == nullptr) return false;
  oldest->loaded.reset();
  return true;
}

Contexts::Counts Contexts::counts() const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const std::scoped_lock own(counts_mutex_);
  if (!lock) return counts_;
  counts_ = {slots_.size(), 0};
  for (const auto& [id, slot] : slots_) {
    if (slot.loaded) counts_.loaded_bytes += slot.loaded->lease.bytes();
  }
  return counts_;
}

}  // namespace ballast::serve
