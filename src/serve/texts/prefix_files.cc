#include "serve/texts/prefix_files.h"

#include <algorithm>
#include <map>

#include "ballast/engine/calibration.h"
#include "ballast/engine/context_file.h"
#include "ballast/error.h"
#include "base/fail.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "report/json.h"
#include "serve/http/fields.h"

namespace ballast::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "pre_";  ///< of ids
constexpr std::size_t kMostNote = 256 << 20;

}  // namespace

PrefixFiles::PrefixFiles(const Model& model, fs::path folder, std::size_t most, PackPreset pack)
    : model_(model),
      of_model_(fmt::format("{:016x}, scores {:016x}: ", fingerprint(model),
                            model.calibration() ? model.calibration()->hash() : 0)),
      folder_(std::move(folder)),
      most_(most),
      packer_(model, pack) {
  shared_.open(folder_, kBegin);
  thread_ = std::thread([this] { loop(); });
}

PrefixFiles::~PrefixFiles() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::vector<Prefix> PrefixFiles::arrived() {
  std::vector<Prefix> out;
  std::error_code error;
  const auto changed = fs::last_write_time(folder_, error);
  if (error || changed == seen_) return out;
  seen_ = changed;
  std::multimap<fs::file_time_type, Prefix> found;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string id = entry.path().stem().string();
    if (!id.starts_with(kBegin) || entry.path().extension() != ".cache") continue;
    if (!known_.insert(id).second) continue;
    try {
      const Json json = parse_object(read_file(note(id), {.most = kMostNote, .pipes = false}));
      const std::string kind = json.at("kind").get<std::string>();
      if (!kind.starts_with(of_model_)) continue;
      found.emplace(entry.last_write_time(), Prefix{kind.substr(of_model_.size()),
                                                    json.at("tokens").get<std::vector<Token>>(),
                                                    json.at("compressed").get<std::size_t>(),
                                                    json.at("whole").get<bool>(),
                                                    {},
                                                    std::nullopt,
                                                    Lease(),
                                                    id});
    } catch (const std::exception&) {
      remove(id);
    }
  }
  for (auto at = found.rbegin(); at != found.rend(); ++at) out.push_back(std::move(at->second));
  return out;
}

void PrefixFiles::write(std::shared_ptr<const Prefix> prefix, std::vector<std::string> replaced) {
  known_.insert(prefix->id);
  {
    const std::scoped_lock lock(mutex_);
    Clock::time_point due = Clock::now() + kWait;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const bool continued = std::ranges::count(replaced, at->prefix->id) > 0;
      if (continued) {
        due = std::min(due, at->due);  // a conversation that never rests is written as well
        replaced.insert(replaced.end(), at->replaced.begin(), at->replaced.end());
      }
      at = continued ? waiting_.erase(at) : std::next(at);
    }
    waiting_.push_back({std::move(prefix), std::move(replaced), due});
  }
  wake_.notify_all();
}

std::shared_ptr<const Prefix> PrefixFiles::unwritten(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  if (writing_ && writing_->id == id) return writing_;
  for (const Waiting& one : waiting_) {
    if (one.prefix->id == id) return one.prefix;
  }
  return nullptr;
}

std::string PrefixFiles::note_of(const Prefix& p) const {
  Json note = {{"kind", of_model_ + p.kind},
               {"compressed", p.compressed},
               {"whole", p.whole},
               {"tokens", p.tokens},
               {"logits", p.logits}};
  if (p.gauge) note["kl"] = p.gauge->kl;
  return to_text(note);
}

bool PrefixFiles::is_written(const std::string& id) {
  if (unwritten(id)) return false;
  std::error_code unknown;
  return fs::exists(cache(id), unknown);
}

void PrefixFiles::replace(const std::string& id, std::shared_ptr<const Prefix> other) {
  const std::scoped_lock lock(mutex_);
  for (Waiting& one : waiting_) {
    if (one.prefix->id == id) one.prefix = other;
  }
}

std::size_t PrefixFiles::size(const std::string& id) {
  if (const auto prefix = unwritten(id)) {
    return prefix->cache ? prefix->bytes() : prefix->unpacked_bytes;
  }
  std::error_code error;
  std::size_t cache_size = 0;
  try {
    cache_size = loaded_bytes(cache(id));
  } catch (const Error&) {  // load() will say so
    return 0;
  }
  const std::uintmax_t note_size = fs::file_size(note(id), error);
  return cache_size + (error ? 0 : note_size);
}

bool PrefixFiles::load(Prefix& prefix) {
  if (const auto other = unwritten(prefix.id)) {
    prefix.cache = other->cache ? other->cache->clone() : packer_.unpack(*other);
    prefix.logits = other->logits;
    return true;
  }
  try {
    const std::string text = read_file(note(prefix.id), {.most = kMostNote, .pipes = false});
    std::string written;
    Cache loaded = load_context(cache(prefix.id), model_, &written);
    const Json json = parse_object(text);
    require(written == text && json.at("tokens").get<std::vector<Token>>() == prefix.tokens &&
                loaded.tokens() == prefix.tokens.size(),
            "{}: the note beside it is of another cache", cache(prefix.id).string());
    prefix.logits = json.at("logits").get<std::vector<float>>();
    if (json.contains("kl")) prefix.gauge = {json.at("kl").get<double>()};
    prefix.cache = std::move(loaded);
    return true;
  } catch (const std::exception&) {
    remove(prefix.id);
    return false;
  }
}

bool PrefixFiles::let_go(const std::string& id) {
  std::vector<std::string> replaced;
  {
    const std::scoped_lock lock(mutex_);
    const auto at = std::ranges::find(waiting_, id, [](const auto& one) { return one.prefix->id; });
    if (at == waiting_.end()) return true;
    replaced = std::move(at->replaced);
    waiting_.erase(at);
  }
  for (const std::string& old : replaced) remove_files(old);  // nobody knows them any more
  return false;
}

void PrefixFiles::used(const std::string& id) const {
  std::error_code none;
  fs::last_write_time(cache(id), fs::file_time_type::clock::now(), none);
}

void PrefixFiles::remove(const std::string& id) {
  let_go(id);
  {
    const std::scoped_lock lock(mutex_);
    unwanted_ |= writing_ && writing_->id == id;
  }
  remove_files(id);
}

void PrefixFiles::remove_files(const std::string& id) const {
  std::error_code none;
  fs::remove(cache(id), none);
  fs::remove(note(id), none);
}

void PrefixFiles::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (waiting_.empty()) {
      if (stopping_) return;
      wake_.wait(lock);
      continue;
    }
    const auto next = std::ranges::min_element(waiting_, {}, &Waiting::due);
    if (!stopping_ && next->due > Clock::now()) {
      const Clock::time_point due = next->due;  // it may go meanwhile
      wake_.wait_until(lock, due);
      continue;
    }
    const Waiting one = std::move(*next);
    waiting_.erase(next);
    writing_ = one.prefix;
    unwanted_ = false;
    lock.unlock();
    save(one);
    for (const std::string& id : one.replaced) remove_files(id);
    lock.lock();
    if (unwanted_) remove_files(one.prefix->id);
    writing_.reset();
  }
}

void PrefixFiles::save(const Waiting& one) {
  const Prefix& p = *one.prefix;
  try {
    const std::string text = note_of(p);
    const std::shared_ptr<const Prefix> packed =
        p.cache ? packer_.packed(p, text) : one.prefix;  // null: it stays as it is
    const std::size_t bytes =
        packed ? packed->packed.size() + text.size() + sizeof(Prefix) : p.bytes();
    if (bytes > most_) return;
    make_room(bytes);
    // The cache comes last: a beginning exists once its cache does.
    write_file(note(p.id), text);
    if (packed) {
      OutputFile file(cache(p.id));
      file.write(packed->packed);
      file.commit();
    } else {
      save_context(cache(p.id), model_, *p.cache, text);
    }
  } catch (const std::exception&) {  // such as a full disk: the text is then read again
    remove_files(p.id);
  }
}

void PrefixFiles::make_room(std::size_t bytes) {
  std::multimap<fs::file_time_type, std::string> used;
  std::uintmax_t all = bytes;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    std::error_code gone;
    const std::uintmax_t size = entry.file_size(gone);
    if (!name.starts_with(kBegin) || gone) continue;
    all += size;
    if (entry.path().extension() == ".cache") {
      used.emplace(entry.last_write_time(), entry.path().stem().string());
    }
  }
  for (const auto& [time, id] : used) {
    if (all <= most_) return;
    std::error_code gone;
    for (const fs::path& path : {cache(id), note(id)}) {
      const std::uintmax_t size = fs::file_size(path, gone);
      if (!gone) all -= size;
    }
    remove(id);
  }
}

}  // namespace ballast::serve
