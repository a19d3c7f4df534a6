// A picture cut into the squares that a vision tower sees.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "ballast/engine/picture.h"
#include "ballast/matrix.h"

namespace ballast {

/// How a model's pictures are prepared.
struct TileOptions {
  std::size_t size = 448;  ///< pixels of a side
  std::size_t patch = 14;  ///< of a side; divides `size`
  std::size_t least = 1;   ///< tiles of a picture, the thumbnail not counted
  std::size_t most = 12;
  bool thumbnail = true;  ///< of pictures with several tiles: the whole in one more, the last
  std::array<float, 3> mean = {0.485f, 0.456f, 0.406f};  ///< of red, green, blue in [0, 1]
  std::array<float, 3> deviation = {0.229f, 0.224f, 0.225f};
};

struct TileGrid {
  std::size_t columns = 1;
  std::size_t rows = 1;
  std::size_t tiles() const { return columns * rows; }
  bool operator==(const TileGrid&) const = default;
};

/// The grid of least to most tiles whose shape is nearest to the picture's. Of grids of one shape,
/// the larger, if the picture has more than half of its pixels.
TileGrid choose_grid(std::size_t width, std::size_t height, const TileOptions& options);

/// The picture's tiles, row by row, then the thumbnail.
std::vector<Picture> cut_tiles(const Picture& picture, const TileOptions& options);

/// A tile's patches, row by row: each a row of 3 · patch² numbers, all of its red, all of its
/// green, all of its blue, standardised.
Matrix patches_of(const Picture& tile, const TileOptions& options);

}  // namespace ballast
