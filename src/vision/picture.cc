#include "ballast/engine/picture.h"

#include <png.h>
#include <turbojpeg.h>
#include <webp/decode.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <string>

#include "base/fail.h"
#include "base/printable.h"
#include "base/read_file.h"

namespace ballast {
namespace {

using Bytes = std::span<const std::byte>;

const std::uint8_t* first_of(Bytes file) {
  return reinterpret_cast<const std::uint8_t*>(file.data());
}

/// A black picture, if it is not too large.
Picture picture_of(std::string_view name, std::size_t width, std::size_t height) {
  require(width > 0 && height > 0 && width <= kMostPixels && height <= kMostPixels / width,
          ErrorCode::over_limit,
          "{}: a picture of {} × {} pixels; at most {} are read: make it smaller", name, width,
          height, kMostPixels);
  return {width, height};
}

[[noreturn]] void damaged(std::string_view name, std::string_view kind, std::string_view why) {
  fail(ErrorCode::bad_file, "{}: a damaged {} picture: {}", name, kind, printable(why));
}

Picture decode_jpeg(Bytes file, std::string_view name) {
  const std::unique_ptr<void, int (*)(tjhandle)> handle(tjInitDecompress(), tjDestroy);
  if (handle == nullptr) throw std::bad_alloc();
  int width = 0, height = 0, sampling = 0, colours = 0;
  if (tjDecompressHeader3(handle.get(), first_of(file), file.size(), &width, &height, &sampling,
                          &colours) != 0) {
    damaged(name, "JPEG", tjGetErrorStr2(handle.get()));
  }
  Picture out = picture_of(name, static_cast<std::size_t>(width), static_cast<std::size_t>(height));
  const bool inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
  std::vector<std::uint8_t> four;
  if (inks) four.resize(out.pixels.size() / 3 * 4);
  const int result = tjDecompress2(handle.get(), first_of(file), file.size(),
                                   inks ? four.data() : out.pixels.data(), width, 0, height,
                                   inks ? TJPF_CMYK : TJPF_RGB, TJFLAG_LIMITSCANS);
  if (result != 0) {
    // Many cameras write what the library warns of.
    const std::string_view why = tjGetErrorStr2(handle.get());
    if (tjGetErrorCode(handle.get()) == TJERR_FATAL || why.find("Premature") != why.npos) {
      damaged(name, "JPEG", why);
    }
  }
  for (std::size_t i = 0; i < four.size(); ++i) {
    // Such files hold the light that each ink lets through.
    const std::size_t pixel = i / 4, ink = i % 4;
    const unsigned light = unsigned{four[i]} * four[4 * pixel + 3];
    if (ink < 3) out.pixels[3 * pixel + ink] = static_cast<std::uint8_t>((light + 127) / 255);
  }
  return out;
}

/// What libpng reads from, and what it says of an error.
struct PngSource {
  Bytes left;
  std::array<char, 120> why{};
};

void read_png(png_structp png, png_bytep out, std::size_t count) {
  auto* source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (count > source->left.size()) png_error(png, "it ends too early");
  std::memcpy(out, source->left.data(), count);
  source->left = source->left.subspan(count);
}

[[noreturn]] void note_png_error(png_structp png, png_const_charp why) {
  auto* source = static_cast<PngSource*>(png_get_error_ptr(png));
  std::strncpy(source->why.data(), why, source->why.size() - 1);
  png_longjmp(png, 1);
}

void ignore_png_warning(png_structp, png_const_charp) {}

// An error jumps back into these two, which therefore hold nothing that must be destroyed.
bool begin_png(png_structp png, png_infop info, png_uint_32& width, png_uint_32& height) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  width = png_get_image_width(png, info);
  height = png_get_image_height(png, info);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_palette_to_rgb(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return true;
}
bool finish_png(png_structp png, png_bytepp rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_image(png, rows);
  return true;
}

Picture decode_png(Bytes file, std::string_view name) {
  PngSource source{file};
  struct Reader {
    png_structp png = nullptr;
    png_infop info = nullptr;
    ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  } reader;
  reader.png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, note_png_error, ignore_png_warning);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw std::bad_alloc();
  png_set_read_fn(reader.png, &source, read_png);
  png_uint_32 width = 0, height = 0;
  if (!begin_png(reader.png, reader.info, width, height)) damaged(name, "PNG", source.why.data());
  Picture out = picture_of(name, width, height);
  if (png_get_rowbytes(reader.png, reader.info) != 3 * out.width) {
    damaged(name, "PNG", "its colours are of an unknown kind");
  }
  std::vector<png_bytep> rows(out.height);
  for (std::size_t y = 0; y < out.height; ++y) rows[y] = out.at(0, y);
  if (!finish_png(reader.png, rows.data())) damaged(name, "PNG", source.why.data());
  return out;
}

Picture decode_webp(Bytes file, std::string_view name) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(first_of(file), file.size(), &features) != VP8_STATUS_OK) {
    damaged(name, "WebP", "its header cannot be read");
  }
  require(features.has_animation == 0, ErrorCode::unsupported,
          "{}: an animation; save one of its pictures", name);
  Picture out = picture_of(name, static_cast<std::size_t>(features.width),
                           static_cast<std::size_t>(features.height));
  if (WebPDecodeRGBInto(first_of(file), file.size(), out.pixels.data(), out.pixels.size(),
                        3 * features.width) == nullptr) {
    damaged(name, "WebP", "its pixels cannot be read");
  }
  return out;
}

}  // namespace

Picture decode_picture(std::span<const std::byte> file, std::string_view name) {
  const std::string_view start(reinterpret_cast<const char*>(file.data()),
                               std::min<std::size_t>(file.size(), 12));
  if (start.starts_with("\xff\xd8\xff")) return decode_jpeg(file, name);
  if (start.starts_with("\x89PNG\r\n")) return decode_png(file, name);
  if (start.starts_with("RIFF") && start.ends_with("WEBP")) return decode_webp(file, name);
  fail(ErrorCode::unsupported, "{}: no picture in JPEG, PNG or WebP: convert it to one of these",
       name);
}

Picture read_picture(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  return decode_picture(std::as_bytes(std::span(file)), path.string());
}

}  // namespace ballast
