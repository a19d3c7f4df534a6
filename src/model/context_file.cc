#include "ballast/engine/context_file.h"

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "base/fnv.h"
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
  Json note = {{"model", model_name(model)},
               {"fingerprint", fmt::format("{:016x}", fingerprint(model))},
               {"tokens", cache.tokens()},
               {"form", form},
               {"text", text}};
  if (!about.empty()) note["about"] = about;
  const std::string written = note.dump(-1, ' ', false, Json::error_handler_t::replace);
  check_json(written, path.string());
  cache.save(path, written);
}

Cache load_context(const std::filesystem::path& path, const Model& model, std::string* form,
                   std::vector<Token>* text, std::string* about) try {
  std::string written;
  Cache cache = Cache::load(path, &written);
  check_json(written, path.string());
  const auto note = SortedJson::parse(written, nullptr, false);
  const bool ours = note.is_object() && note.contains("model") && note["model"].is_string() &&
                    note.contains("fingerprint") && note["fingerprint"].is_string() &&
                    note.contains("form") && note["form"].is_string();
  require(ours,
          "{}: a saved cache, but not of a text that a model read: it does not say of which "
          "model it is",
          path.string());
  require(note["fingerprint"] == fmt::format("{:016x}", fingerprint(model)),
          "{}: made with another model, '{}'; this one is '{}' ({})", path.string(),
          note["model"].get<std::string>(), model_name(model), model.file().path().string());
  if (form != nullptr) *form = note["form"].get<std::string>();
  if (about != nullptr && note.contains("about") && note["about"].is_string()) {
    *about = note["about"].get<std::string>();
  }
  if (text != nullptr && note.contains("text")) {
    const auto valid = [&](const SortedJson& id) {
      return id.is_number_integer() && id >= 0 && id < model.config().vocabulary;
    };
    const SortedJson& all = note["text"];
    if (all.is_array() && all.size() == cache.tokens() && std::ranges::all_of(all, valid)) {
      *text = all.get<std::vector<Token>>();
    }
  }
  return cache;
} catch (const Error& error) {
  rethrow_from_file(error);
}

}  // namespace ballast
