// Models split over several GGUF files, as llama-gguf-split writes them: each piece says which of
// how many it is (split.no from 0, split.count); the first has all metadata.
#include "ballast/engine/gguf.h"
#include "base/fail.h"
#include "base/mapped_file.h"
#include "base/printable.h"

namespace ballast {
namespace {

std::string ending(std::uint64_t piece, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", piece + 1, count);
}

}  // namespace

void Gguf::join_pieces() try {
  const auto count = find<std::uint64_t>("split.count").value_or(1);
  if (count <= 1 || !pieces_.empty()) return;
  const auto number = find<std::uint64_t>("split.no").value_or(0);
  std::string stem = path_.string();
  const std::string ours = ending(number, count);
  require(stem.ends_with(ours),
          "{}: piece {} of a model in {}; the pieces are found when their names end with {}",
          path_.string(), number + 1, count, ours);
  stem.resize(stem.size() - ours.size());
  require(number == 0, "{}: piece {} of a model in {}; give the first, {}", path_.string(),
          number + 1, count, stem + ending(0, count));
  for (std::uint64_t i = 1; i < count; ++i) {
    Gguf piece(stem + ending(i, count));
    require(piece.find<std::uint64_t>("split.no") == i &&
                piece.find<std::uint64_t>("split.count") == count,
            "{}: not piece {} of {}, as its name says", piece.path_.string(), i + 1, count);
    for (auto& [name, type] : piece.unreadable_) {
      require(!by_name_.contains(name) && unreadable_.emplace(name, type).second,
              "{}: the tensor '{}' appears twice", piece.path_.string(), printable(name));
    }
    for (TensorView& tensor : piece.tensors_) add_tensor(std::move(tensor));
    pieces_.push_back(std::move(piece.file_));
  }
  const std::size_t held = tensors_.size() + unreadable_.size();
  const auto tensors = find<std::uint64_t>("split.tensors.count").value_or(held);
  require(tensors == held, "{}: the model has {} tensors, its {} pieces hold {}", path_.string(),
          tensors, count, held);
} catch (const Error& error) {
  rethrow_from_file(error);
}

std::vector<std::filesystem::path> Gguf::files() const {
  std::vector<std::filesystem::path> files = {path_};
  for (const auto& piece : pieces_) files.push_back(piece->path());
  return files;
}

}  // namespace ballast
