#include "vision/tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "vision/resize.h"

namespace ballast {

TileGrid choose_grid(std::size_t width, std::size_t height, const TileOptions& options) {
  std::vector<TileGrid> grids;
  for (std::size_t columns = 1; columns <= options.most; ++columns) {
    for (std::size_t rows = 1; columns * rows <= options.most; ++rows) {
      if (columns * rows >= options.least) grids.push_back({columns, rows});
    }
  }
  std::ranges::stable_sort(grids, {}, &TileGrid::tiles);
  const double shape = static_cast<double>(width) / static_cast<double>(height);
  const double pixels = static_cast<double>(width) * static_cast<double>(height);
  const auto tile = static_cast<double>(options.size * options.size);
  TileGrid best;
  double least = std::numeric_limits<double>::infinity();
  for (const TileGrid& grid : grids) {
    const double off =
        std::abs(shape - static_cast<double>(grid.columns) / static_cast<double>(grid.rows));
    const bool fills = pixels > 0.5 * tile * static_cast<double>(grid.tiles());
    if (off < least || (off == least && fills)) best = grid;
    least = std::min(least, off);
  }
  return best;
}

std::vector<Picture> cut_tiles(const Picture& picture, const TileOptions& options) {
  const TileGrid grid = choose_grid(picture.width, picture.height, options);
  const std::size_t size = options.size;
  const Picture whole = resize(picture, grid.columns * size, grid.rows * size);
  std::vector<Picture> out;
  for (std::size_t t = 0; t < grid.tiles(); ++t) {
    Picture& tile = out.emplace_back(size, size);
    const std::size_t left = t % grid.columns * size, top = t / grid.columns * size;
    for (std::size_t y = 0; y < size; ++y) {
      std::copy_n(whole.at(left, top + y), 3 * size, tile.at(0, y));
    }
  }
  if (options.thumbnail && out.size() > 1) out.push_back(resize(picture, size, size));
  return out;
}

Matrix patches_of(const Picture& tile, const TileOptions& options) {
  const std::size_t side = options.patch, across = options.size / side;
  Matrix out(across * across, 3 * side * side);
  for (std::size_t p = 0; p < out.rows(); ++p) {
    float* to = out[p].data();
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t y = 0; y < side; ++y) {
        const std::uint8_t* from = tile.at(p % across * side, p / across * side + y);
        for (std::size_t x = 0; x < side; ++x) {
          const float light = static_cast<float>(from[3 * x + c]) / 255.0f;
          *to++ = (light - options.mean[c]) / options.deviation[c];
        }
      }
    }
  }
  return out;
}

}  // namespace ballast
