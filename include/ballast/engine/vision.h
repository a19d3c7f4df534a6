// What a language model sees of pictures.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/engine/model.h"
#include "ballast/engine/picture.h"
#include "ballast/engine/tokenizer.h"

namespace ballast {

/// Where a picture's tokens lie on it: those of each tile row by row, tile after tile, also row by
/// row, then those of the thumbnail, which shows the whole.
struct PictureLayout {
  std::size_t columns = 1;  ///< of tiles
  std::size_t rows = 1;
  std::size_t side = 1;  ///< tokens across a tile
  bool thumbnail = false;
  std::size_t tokens() const { return (columns * rows + (thumbnail ? 1 : 0)) * side * side; }
};

/// A picture as tokens, for the model that it was read for. Their ids are negative and follow from
/// the pixels: the same picture has the same ones. They stand in a text like others, and the model
/// takes them as long as one copy of this lives: until the prompt has ended.
struct PictureTokens {
  std::vector<Token> tokens;
  PictureLayout layout;
  std::shared_ptr<const void> rows;
};

/// The vision tower of a model: InternVL's. Safe to use from many threads, which take turns.
class VisionModel {
 public:
  /// Whether the model's own files hold a tower.
  static bool is_in(const Model& model);
  /// `mmproj`: the GGUF file of the tower; empty: the model's own folder holds it. Throws Error
  /// that names the file and what is missing.
  VisionModel(const Model& model, const Tokenizer& tokenizer,
              const std::filesystem::path& mmproj = {});
  ~VisionModel();

  /// Cuts the picture into tiles and looks at each, which takes seconds; then tells `progress` the
  /// fraction that is done. The pictures read last are remembered, up to 256 MiB.
  PictureTokens read(const Picture& picture,
                     const std::function<void(double)>& progress = {}) const;
  /// The same of a file: see decode_picture().
  PictureTokens read(std::span<const std::byte> file, std::string_view name,
                     const std::function<void(double)>& progress = {}) const;
  /// Of a picture of this size.
  PictureLayout layout(std::size_t width, std::size_t height) const;

  /// The place holder of a picture in a text, a line end included.
  std::string place_holder() const;
  /// How many places for pictures a text has.
  std::size_t places(std::span<const Token> text) const;
  /// The text's tokens with the pictures in the places that place_holder() left, in order. Throws
  /// Error if there are more or fewer places.
  std::vector<Token> place(std::span<const Token> text,
                           std::span<const PictureTokens> pictures) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast
