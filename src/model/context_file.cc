#include "ballast/engine/context_file.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "ballast/engine/packing.h"
#include "base/fail.h"
#include "base/fnv.h"
#include "base/mapped_file.h"
#include "cache/cache_size.h"
#include "formats/json.h"
#include "formats/json_text.h"

namespace ballast {
namespace {

/// Enough bytes to tell models apart, and few enough to read little from disk.
constexpr std::size_t kBeginning = 256;

}  // namespace

std::string model_name(const Model& model) {
  const std::string& name = model.config().name;
  return name.empty() ? model.file().path().filename().string() : name;
}

namespace {

std::string note_of(const Model& model, const Cache& cache, std::string_view form,
                    std::span<const Token> text, std::string_view about) {
  Json note = {{"model", model_name(model)},
               {"fingerprint", fmt::format("{:016x}", fingerprint(model))},
               {"tokens", cache.tokens()},
               {"form", form},
               {"text", text}};
  if (!about.empty()) note["about"] = about;
  std::string written = note.dump(-1, ' ', false, Json::error_handler_t::replace);
  check_json(written, "a note");
  return written;
}

std::shared_ptr<const PackCodec> pack_codec_of(const Model& model) {
  auto codec = find_pack_codec(model);
  require(codec != nullptr,
          "{}: there is no basis to pack contexts with; make one with: ballast calibrate -m {}",
          model.file().path().string(), model.file().path().string());
  return codec;
}

/// The note of a saved context of this model.
SortedJson check_note(const std::string& written, const std::string& name, const Model& model) {
  check_json(written, name);
  SortedJson note = SortedJson::parse(written, nullptr, false);
  const bool ours = note.is_object() && note.contains("model") && note["model"].is_string() &&
                    note.contains("fingerprint") && note["fingerprint"].is_string() &&
                    note.contains("form") && note["form"].is_string();
  require(ours,
          "{}: a saved cache, but not of a text that a model read: it does not say of which "
          "model it is",
          name);
  require(note["fingerprint"] == fmt::format("{:016x}", fingerprint(model)),
          "{}: made with another model, '{}'; this one is '{}' ({})", name,
          note["model"].get<std::string>(), model_name(model), model.file().path().string());
  return note;
}

std::string about_of(const SortedJson& note) {
  return note.contains("about") && note["about"].is_string() ? note["about"].get<std::string>()
                                                             : "";
}

/// Bytes of a cache of the packed tokens.
std::size_t size_of(const PackedFile& packed, const CacheOptions& options) {
  return CacheSize(packed.shape, options).exact(packed.tokens);
}

}  // namespace

std::uint64_t fingerprint(const Model& model) {
  const ModelConfig& c = model.config();
  Fnv hash;
  for (std::size_t n : {static_cast<std::size_t>(c.family), c.layers, c.width, c.heads, c.kv_heads,
                        c.key_dim, c.value_dim, c.ffn_width, c.vocabulary}) {
    hash.add(n);
  }
  for (std::size_t layer = 0; layer < c.layers; ++layer) {
    for (int w = 0; w <= static_cast<int>(Weight::post_ffn_norm); ++w) {
      const TensorView* tensor = model.file().find(static_cast<Weight>(w), layer);
      if (tensor == nullptr) continue;
      hash.add(static_cast<std::uint64_t>(tensor->type));
      hash.add(tensor->data.first(std::min(kBeginning, tensor->data.size())));
    }
  }
  return hash.value();
}

void save_context(const std::filesystem::path& path, const Model& model, const Cache& cache,
                  std::string_view form, std::span<const Token> text, std::string_view about) {
  cache.save(path, note_of(model, cache, form, text, about));
}

std::vector<std::byte> pack_context(const Model& model, const Cache& cache,
                                    const PackPreset& preset, std::string_view form,
                                    std::span<const Token> text, std::string_view about) {
  return pack(cache, *pack_codec_of(model), preset, note_of(model, cache, form, text, about));
}

void save_packed_context(const std::filesystem::path& path, const Model& model, const Cache& cache,
                         const PackPreset& preset, std::string_view form,
                         std::span<const Token> text, std::string_view about) {
  save_packed(path, cache, *pack_codec_of(model), preset, note_of(model, cache, form, text, about));
}

Cache load_context(const std::filesystem::path& path, const Model& model, std::string* form,
                   std::vector<Token>* text, std::string* about, const CacheOptions* options) try {
  const std::string name = path.string();
  const MappedFile file(path);
  std::string written;
  std::optional<Cache> cache;
  if (is_packed(file.bytes())) {
    const PackedFile packed = PackedFile::parse(file.bytes(), name);
    written = packed.note;
    check_note(written, name, model);
    require_memory({.cache = size_of(packed, options != nullptr ? *options : packed.options)},
                   available_memory(), name);
    cache = unpack(file.bytes(), name, *pack_codec_of(model), options);
  } else {
    require(options == nullptr,
            "{}: not packed: its cache goes on in the form in which it was saved", name);
    cache = Cache::parse(file.bytes(), name, &written);
  }
  const SortedJson note = check_note(written, name, model);
  if (form != nullptr) *form = note["form"].get<std::string>();
  if (about != nullptr) *about = about_of(note);
  if (text != nullptr && note.contains("text")) {
    const auto valid = [&](const SortedJson& id) {
      return id.is_number_integer() && id >= 0 && id < model.config().vocabulary;
    };
    const SortedJson& all = note["text"];
    if (all.is_array() && all.size() <= cache->tokens()) {
      const auto last = std::find_if_not(all.rbegin(), all.rend(), valid).base();
      text->clear();
      std::for_each(last, all.end(),
                    [&](const SortedJson& id) { text->push_back(id.get<Token>()); });
    }
  }
  return std::move(*cache);
} catch (const Error& error) {
  rethrow_from_file(error);
}

std::size_t loaded_bytes(const std::filesystem::path& path) try {
  const MappedFile file(path);
  if (!is_packed(file.bytes())) return file.bytes().size();
  const PackedFile packed = PackedFile::parse(file.bytes(), path.string());
  return size_of(packed, packed.options);
} catch (const Error& error) {
  rethrow_from_file(error);
}

SavedContext describe_context(const std::filesystem::path& path, const Model& model) try {
  SavedContext out;
  const MappedFile file(path);
  if (is_packed(file.bytes())) {
    const PackedFile packed = PackedFile::parse(file.bytes(), path.string());
    const SortedJson note = check_note(packed.note, path.string(), model);
    out.form = note["form"].get<std::string>();
    out.about = about_of(note);
    require(packed.basis == pack_codec_of(model)->basis().hash(),
            "{}: packed with another basis than the one of the model: read the text again",
            path.string());
    out.packed = true;
    out.tokens = packed.tokens;
    out.options = packed.options;
    out.bytes = out.exact_bytes = size_of(packed, packed.options);
    return out;
  }
  const Cache cache = load_context(path, model, &out.form, nullptr, &out.about);
  out.tokens = cache.tokens();
  out.options = cache.options();
  out.bytes = cache.bytes().used();
  out.exact_bytes = model.exact_bytes(cache);
  return out;
} catch (const Error& error) {
  rethrow_from_file(error);
}

}  // namespace ballast
