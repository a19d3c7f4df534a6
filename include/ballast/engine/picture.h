// Pictures as pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace ballast {

/// Larger pictures are refused: 64 Mi pixels, which take 192 MiB.
inline constexpr std::size_t kMostPixels = std::size_t{1} << 26;

/// Rows of pixels from the top, each pixel red, green, blue.
struct Picture {
  std::size_t width = 0;
  std::size_t height = 0;
  std::vector<std::uint8_t> pixels;  ///< 3 · width · height

  Picture() = default;
  /// Black.
  Picture(std::size_t width, std::size_t height)
      : width(width), height(height), pixels(3 * width * height) {}
  std::uint8_t* at(std::size_t x, std::size_t y) { return pixels.data() + 3 * (y * width + x); }
  const std::uint8_t* at(std::size_t x, std::size_t y) const {
    return pixels.data() + 3 * (y * width + x);
  }
};

/// Decodes a JPEG, PNG, WebP or PPM (P6) file; photographs stand upright, as EXIF says.
/// Transparency is dropped, grey and palettes become colours, of 16 bits the upper 8 count. `name`
/// stands for the file in messages. Throws Error on other formats, damaged files and more than
/// kMostPixels pixels; sizes are checked before memory is taken.
Picture decode_picture(std::span<const std::byte> file, std::string_view name);
Picture read_picture(const std::filesystem::path& path);

}  // namespace ballast
