#include "ballast/engine/model_file.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/printable.h"
#include "formats/quant.h"
#include "model/families/families.h"
#include "model/weight_resolver.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

/// The config.json of a folder, or beside a .safetensors file or index.
fs::path folder_of(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

bool is_hugging_face(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) || path.extension() == ".safetensors" ||
         path.extension() == ".json";
}
}  // namespace

ModelFile::ModelFile(const fs::path& path) try : path_(path) {
  if (is_hugging_face(path)) {
    folder_ = folder_of(path);
    require(fs::exists(folder_ / "config.json"),
            "{}: no config.json, so it is no model in Hugging Face's layout", folder_.string());
    config_ = read_config(folder_ / "config.json");
    // A path to config.json means its folder.
    safetensors_ = std::make_unique<Safetensors>(path.filename() == "config.json" ? folder_ : path);
  } else {
    gguf_ = std::make_unique<Gguf>(path);
    gguf_->join_pieces();
    require(!gguf_->tensors().empty(), "{}: the file holds a vocabulary but no weights",
            path.string());
    config_ = read_config(*gguf_);
  }
  resolve_weights(*this);
} catch (const Error& error) {
  rethrow_from_file(error);
}

const TensorView* ModelFile::find(Weight weight, std::size_t layer, Part part,
                                  std::size_t expert) const {
  if (weight == Weight::output && config_.tied_embeddings) weight = Weight::token_embedding;
  if (layer >= config_.layers) return nullptr;
  auto found = tensors_.find(weight_slot(weight, layer, part, expert));
  return found == tensors_.end() ? nullptr : &found->second;
}

const TensorView& ModelFile::at(Weight weight, std::size_t layer, Part part) const {
  const TensorView* tensor = find(weight, layer, part);
  require(tensor != nullptr, "{}: the model has no {}{} in layer {}", path_.string(),
          to_string(weight), part == Part::bias ? " bias" : "", layer);
  return *tensor;
}

void ModelFile::require_finite() const {
  std::vector<std::size_t> slots;
  for (const auto& [slot, tensor] : tensors_) slots.push_back(slot);
  std::ranges::sort(slots);
  std::vector<float> row;
  for (std::size_t slot : slots) {
    const TensorView& tensor = tensors_.at(slot);
    if (tensor.size() == 0) continue;
    row.resize(tensor.shape.back());
    const std::size_t bytes = tensor_bytes(tensor.type, row.size());
    for (std::size_t r = 0; r < tensor.size() / row.size(); ++r) {
      decode(tensor.type, tensor.data.subspan(r * bytes, bytes), row);
      require(
          std::ranges::all_of(row, [](float x) { return std::isfinite(x); }), ErrorCode::bad_file,
          "{}: the tensor '{}' holds a number that is not finite in row {}: the file is damaged",
          path_.string(), printable(tensor.name), r);
    }
  }
}

std::size_t ModelFile::bytes() const {
  std::size_t sum = 0;
  for (const TensorView& tensor : gguf_ ? gguf_->tensors() : safetensors_->tensors()) {
    sum += tensor.data.size();
  }
  return sum;
}

std::vector<std::string> ModelFile::unused() const {
  std::vector<std::string> out;
  for (const TensorView& tensor : gguf_ ? gguf_->tensors() : safetensors_->tensors()) {
    const bool factors = tensor.name.starts_with("rope_f");  // of the configuration
    if (!factors && !used_.contains(tensor.name)) out.push_back(tensor.name);
  }
  return out;
}

std::size_t ModelFile::copied_bytes() const {
  std::size_t sum = 0;
  for (const std::vector<std::byte>& copy : copies_) sum += copy.size();
  return sum;
}

std::vector<fs::path> ModelFile::files() const {
  return gguf_ ? gguf_->files() : safetensors_->files();
}

TokenizerSource ModelFile::tokenizer() const {
  TokenizerSource source;
  if (gguf_ != nullptr) {
    source.gguf = gguf_.get();
    return source;
  }
  source.folder = folder_;
  if (fs::exists(folder_ / "tokenizer.json")) {
    source.tokenizer_json = folder_ / "tokenizer.json";
  } else if (fs::exists(folder_ / "tokenizer.model")) {
    source.tokenizer_model = folder_ / "tokenizer.model";
  }
  return source;
}

}  // namespace ballast
