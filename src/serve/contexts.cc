#include "serve/contexts.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "ballast/engine/context_file.h"
#include "ballast/error.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "serve/api_error.h"
#include "serve/fields.h"

namespace ballast::serve {
namespace {

constexpr std::string_view kBegin = "ctx_";  ///< of ids, and of their files' names

bool belongs(const ContextInfo& info, const std::string& owner) {
  return owner.empty() || info.owner.empty() || info.owner == owner;
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
          {"compress_seconds", compress_seconds}};
}

SharedFolder::~SharedFolder() {
  if (file_ >= 0) ::close(file_);
}

void SharedFolder::open(const std::filesystem::path& folder, std::string_view begin) {
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (!error) file_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(file_ >= 0, ErrorCode::io,
          "--cache-dir {}: cannot use this folder: {}; choose another one", folder.string(),
          error ? error.message() : std::strerror(errno));
  const bool alone = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (alone) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(begin) && name.ends_with(".partial")) {  // others may write here too
        std::filesystem::remove(entry.path(), error);
      }
    }
  }
  // Waits at most for another server's start. Without locks no one ever takes itself to be alone.
  while (::flock(file_, LOCK_SH) != 0 && errno == EINTR) {
  }
}

Contexts::Contexts(const Model& model, Memory& memory, std::filesystem::path folder,
                   std::vector<std::string>& refused)
    : model_(model), memory_(memory), folder_(std::move(folder)) {
  if (folder_.empty()) return;
  shared_.open(folder_, kBegin);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() == ".cache") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const std::filesystem::path& path : files) {
    ContextInfo info;
    info.id = path.stem().string();
    try {
      describe(path, info);
    } catch (const Error& error) {
      refused.emplace_back(error.what());
      continue;
    }
    // Without these notes the context still answers; its text is then not known.
    try {
      const Json json = parse_object(read_file(notes(info.id), {.most = 1 << 20, .pipes = false}));
      Fields fields(json);
      info.name = fields.text("name").value_or("");
      info.owner = fields.text("owner").value_or("");
      info.before = fields.text("before").value_or("");
      info.system = fields.text("system").value_or("");
      if (const Json* all = fields.find("pictures")) {
        info.pictures = placed_pictures(*all, info.tokens);
      }
      info.created = static_cast<std::int64_t>(fields.count("created", 0, INT64_MAX).value_or(0));
      info.read_seconds = fields.number("read_seconds", 0, 1e9, 0);
      info.compress_seconds = fields.number("compress_seconds", 0, 1e9, 0);
    } catch (const std::exception&) {
      info.name = info.id;
    }
    slots_[info.id] = {info, path, nullptr, 0};
  }
}

void Contexts::describe(const std::filesystem::path& file, ContextInfo& info) const {
  const Cache cache = load_context(file, model_, &info.form);
  info.tokens = cache.tokens();
  info.cache = describe_cache(cache.options());
  info.bytes = cache.bytes().used();
  info.exact_bytes = model_.exact_bytes(cache);
}

void Contexts::lend(ContextInfo info, std::filesystem::path file) {
  describe(file, info);
  const std::scoped_lock lock(mutex_);
  slots_[info.id] = {info, std::move(file), nullptr, 0};
}

ContextInfo Contexts::add(ContextInfo info, Cache cache, Lease lease, std::span<const Token> text) {
  info.id = new_id(std::string(kBegin));
  if (!folder_.empty()) {
    // The cache comes last: a context exists once its cache does.
    const Json json = {{"name", info.name},
                       {"owner", info.owner},
                       {"before", info.before},
                       {"system", info.system},
                       {"pictures", ballast::to_json(info.pictures)},
                       {"created", info.created},
                       {"read_seconds", info.read_seconds},
                       {"compress_seconds", info.compress_seconds}};
    try {
      write_file(notes(info.id), to_text(json));
      save_context(file(info.id), model_, cache, info.form, text);
    } catch (const Error& error) {
      std::error_code none;
      std::filesystem::remove(notes(info.id), none);
      throw ApiError(500, "internal_error", error.what());
    }
  }
  auto context = std::make_shared<const Context>(Context{info, std::move(cache), std::move(lease)});
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
    if (belongs(slot.info, owner)) out.push_back(slot.info);
  }
  return out;
}

std::optional<ContextInfo> Contexts::info(const std::string& id, const std::string& owner) {
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
  Cache cache = load_context(slot.file, model_);
  lease.shrink(cache.bytes().total());
  return std::make_shared<const Context>(Context{info, std::move(cache), std::move(lease)});
}

std::shared_ptr<const Context> Contexts::get(const std::string& id, const std::string& owner) {
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
  const std::scoped_lock lock(mutex_);
  const Slot* slot = find(id, owner);
  if (slot == nullptr) return false;
  const bool ours = slot->file.empty() || slot->file == file(id);
  if (!ours) {
    throw ApiError(
        400, "invalid_value",
        fmt::format("{} is a document of the library: ballast library remove takes it out",
                    slot->info.name));
  }
  slots_.erase(id);
  if (!folder_.empty()) {
    std::filesystem::remove(file(id));
    std::filesystem::remove(notes(id));
  }
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

std::size_t Contexts::loaded_bytes() const {
  const std::scoped_lock lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [id, slot] : slots_) {
    if (slot.loaded) bytes += slot.loaded->lease.bytes();
  }
  return bytes;
}

std::size_t Contexts::size() const {
  const std::scoped_lock lock(mutex_);
  return slots_.size();
}

}  // namespace ballast::serve
