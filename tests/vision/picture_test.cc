// Decoding pictures, and cutting them as models want them.
#include <gmock/gmock.h>
#include <png.h>
#include <turbojpeg.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cmath>
#include <random>

#include "ballast/error.h"
#include "vision/resize.h"
#include "vision/tiles.h"
#include "vision/towers.h"

namespace ballast {
namespace {

using test::picture_of;
using test::towers_json;

std::span<const std::byte> bytes_of(const std::vector<std::uint8_t>& file) {
  return std::as_bytes(std::span(file));
}

std::vector<std::uint8_t> png_of(std::uint32_t width, std::uint32_t height, std::uint32_t format,
                                 const std::vector<std::uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = format;
  png_alloc_size_t size = 0;
  EXPECT_TRUE(png_image_write_get_memory_size(image, size, 0, pixels.data(), 0, nullptr));
  std::vector<std::uint8_t> out(size);
  EXPECT_TRUE(png_image_write_to_memory(&image, out.data(), &size, 0, pixels.data(), 0, nullptr));
  out.resize(size);
  return out;
}

std::vector<std::uint8_t> png_of(const Picture& p) {
  return png_of(static_cast<std::uint32_t>(p.width), static_cast<std::uint32_t>(p.height),
                PNG_FORMAT_RGB, p.pixels);
}

std::vector<std::uint8_t> jpeg_of(const Picture& p, int format = TJPF_RGB) {
  tjhandle handle = tjInitCompress();
  unsigned char* out = nullptr;
  unsigned long size = 0;
  EXPECT_EQ(tjCompress2(handle, p.pixels.data(), static_cast<int>(p.width), 0,
                        static_cast<int>(p.height), format, &out, &size, TJSAMP_444, 98, 0),
            0);
  std::vector<std::uint8_t> file(out, out + size);
  tjFree(out);
  tjDestroy(handle);
  return file;
}

std::vector<std::uint8_t> webp_of(const Picture& p) {
  std::uint8_t* out = nullptr;
  const std::size_t size =
      WebPEncodeLosslessRGB(p.pixels.data(), static_cast<int>(p.width), static_cast<int>(p.height),
                            static_cast<int>(3 * p.width), &out);
  std::vector<std::uint8_t> file(out, out + size);
  WebPFree(out);
  return file;
}

Picture smooth() {
  Picture out(40, 30);
  for (std::size_t y = 0; y < 30; ++y) {
    for (std::size_t x = 0; x < 40; ++x) {
      out.at(x, y)[0] = static_cast<std::uint8_t>(4 * x);
      out.at(x, y)[1] = static_cast<std::uint8_t>(6 * y);
      out.at(x, y)[2] = 200;
    }
  }
  return out;
}

std::string refusal(const std::vector<std::uint8_t>& file) {
  try {
    decode_picture(bytes_of(file), "a.file");
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "";
}

TEST(Pictures, AreDecodedFromPngAndWebPToTheByte) {
  const Picture picture = picture_of(37, 21);
  for (const auto& file : {png_of(picture), webp_of(picture)}) {
    const Picture found = decode_picture(bytes_of(file), "a");
    EXPECT_EQ(found.width, 37u);
    EXPECT_EQ(found.height, 21u);
    EXPECT_EQ(found.pixels, picture.pixels);
  }
}

TEST(Pictures, AreDecodedFromJpeg) {
  const Picture picture = smooth();
  const Picture found = decode_picture(bytes_of(jpeg_of(picture)), "a");
  ASSERT_EQ(found.pixels.size(), picture.pixels.size());
  for (std::size_t i = 0; i < found.pixels.size(); ++i) {
    EXPECT_NEAR(found.pixels[i], picture.pixels[i], 4);
  }
}

TEST(Pictures, AreDecodedFromPpm) {
  const std::string head = "P6\n2 1\n255\n";
  std::vector<std::uint8_t> file(head.begin(), head.end());
  file.insert(file.end(), {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(decode_picture(bytes_of(file), "a").pixels, testing::ElementsAre(1, 2, 3, 4, 5, 6));
  file.pop_back();
  EXPECT_THAT(refusal(file), testing::HasSubstr("a damaged PPM picture"));
  const std::string large = "P6 99999 99999 255 ";
  EXPECT_THAT(refusal({large.begin(), large.end()}), testing::HasSubstr("99999 × 99999 pixels"));
}

TEST(Pictures, OfGreyAndWithTransparencyBecomeColours) {
  const Picture grey = decode_picture(bytes_of(png_of(2, 1, PNG_FORMAT_GRAY, {7, 250})), "a");
  EXPECT_THAT(grey.pixels, testing::ElementsAre(7, 7, 7, 250, 250, 250));
  const Picture clear =
      decode_picture(bytes_of(png_of(2, 1, PNG_FORMAT_RGBA, {1, 2, 3, 0, 4, 5, 6, 255})), "a");
  EXPECT_THAT(clear.pixels, testing::ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Pictures, OfATiltedCameraStandUpright) {
  const Picture picture = smooth();
  const Picture plain = decode_picture(bytes_of(jpeg_of(picture)), "a");
  // Taken with the camera on its side: rows and columns change places.
  const std::vector<std::uint8_t> exif = {0xff, 0xe1, 0, 34, 'E', 'x', 'i', 'f', 0, 0,    'M', 'M',
                                          0,    42,   0, 0,  0,   8,   0,   1,   1, 0x12, 0,   3,
                                          0,    0,    0, 1,  0,   6,   0,   0,   0, 0,    0,   0};
  std::vector<std::uint8_t> file = jpeg_of(picture);
  file.insert(file.begin() + 2, exif.begin(), exif.end());
  const Picture found = decode_picture(bytes_of(file), "a");
  ASSERT_EQ(found.width, 30u);
  ASSERT_EQ(found.height, 40u);
  for (int c = 0; c < 3; ++c) {
    EXPECT_EQ(found.at(29, 0)[c], plain.at(0, 0)[c]);
    EXPECT_EQ(found.at(29, 39)[c], plain.at(39, 0)[c]);
    EXPECT_EQ(found.at(0, 0)[c], plain.at(0, 29)[c]);
  }
}

TEST(Pictures, OfInksBecomeColours) {
  // Full light through cyan, half through the others, black lets all through.
  Picture inks(0, 0);
  inks.width = inks.height = 8;
  for (int i = 0; i < 64; ++i) inks.pixels.insert(inks.pixels.end(), {255, 128, 128, 255});
  const Picture found = decode_picture(bytes_of(jpeg_of(inks, TJPF_CMYK)), "a");
  EXPECT_NEAR(found.at(4, 4)[0], 255, 4);
  EXPECT_NEAR(found.at(4, 4)[1], 128, 4);
}

TEST(Pictures, ThatAreTooLargeAreRefusedBeforeMemoryIsTaken) {
  std::vector<std::uint8_t> png = png_of(smooth());
  // The size, in the first chunk; its sum again.
  for (int i = 0; i < 8; ++i) png[16 + i] = i % 4 == 2 ? 0x70 : 0;
  const std::uint32_t sum = static_cast<std::uint32_t>(crc32(0, png.data() + 12, 17));
  for (int i = 0; i < 4; ++i) png[29 + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
  EXPECT_THAT(refusal(png), testing::HasSubstr("a.file: a picture of 28672 × 28672 pixels"));
  std::vector<std::uint8_t> jpeg = jpeg_of(smooth());
  for (std::size_t i = 0; i + 9 < jpeg.size(); ++i) {
    if (jpeg[i] == 0xff && jpeg[i + 1] == 0xc0) {
      for (int k = 0; k < 4; ++k) jpeg[i + 5 + k] = 0xf0;
      break;
    }
  }
  EXPECT_THAT(refusal(jpeg), testing::HasSubstr("a.file: a picture of 61680 × 61680 pixels"));
}

TEST(Pictures, ThatAreDamagedAreRefusedInOneLine) {
  for (std::vector<std::uint8_t> file :
       {png_of(picture_of(37, 21)), jpeg_of(smooth()), webp_of(picture_of(37, 21))}) {
    file.resize(file.size() / 2);
    EXPECT_THAT(refusal(file), testing::StartsWith("a.file: a damaged"));
  }
  EXPECT_THAT(refusal({'G', 'I', 'F', '8'}), testing::HasSubstr("no picture in JPEG, PNG or WebP"));
  EXPECT_THAT(refusal({}), testing::HasSubstr("no picture"));
}

TEST(Pictures, WithAnyByteChangedDoNoHarm) {
  std::mt19937 random(1);
  for (const auto& whole :
       {png_of(picture_of(37, 21)), jpeg_of(smooth()), webp_of(picture_of(37, 21))}) {
    for (int i = 0; i < 300; ++i) {
      std::vector<std::uint8_t> file = whole;
      for (int k = 0; k < 1 + i % 3; ++k) {
        file[random() % file.size()] = static_cast<std::uint8_t>(random());
      }
      try {
        const Picture found = decode_picture(bytes_of(file), "a");
        EXPECT_EQ(found.pixels.size(), 3 * found.width * found.height);
      } catch (const Error&) {
      }
    }
  }
}

TEST(Resizing, GivesPillowsBytes) {
  for (const auto& one : towers_json()["resized"]) {
    const Picture found = resize(picture_of(one[0], one[1]), one[2], one[3]);
    EXPECT_EQ(found.width, one[2]);
    EXPECT_EQ(crc32(0, found.pixels.data(), static_cast<unsigned>(found.pixels.size())), one[4])
        << one.dump();
  }
}

TEST(Tiles, AreThoseOfTheModelCardFor40Shapes) {
  ASSERT_EQ(towers_json()["grids"].size(), 40u);
  for (const auto& one : towers_json()["grids"]) {
    const TileGrid expected{one[2], one[3]};
    EXPECT_EQ(choose_grid(one[0], one[1], {}), expected) << one.dump();
  }
}

TEST(Tiles, HaveTheModelsPixels) {
  const TileOptions options{.size = 56, .patch = 14, .most = 6};
  const std::vector<Picture> tiles = cut_tiles(test::kPicture, options);
  ASSERT_EQ(tiles.size(), towers_json()["tiles"]);
  const std::vector<float> expected = test::numbers_of(towers_json()["pixels"]);
  std::vector<Matrix> patches;
  for (const Picture& tile : tiles) patches.push_back(patches_of(tile, options));
  constexpr std::size_t kTile = 3 * 56 * 56;
  ASSERT_EQ(expected.size(), (tiles.size() * kTile + 96) / 97);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t at = 97 * i, x = at % 56, y = at / 56 % 56, c = at / (56 * 56) % 3;
    const float found = patches[at / kTile][y / 14 * 4 + x / 14][c * 196 + y % 14 * 14 + x % 14];
    EXPECT_NEAR(found, expected[i], 1e-4);
  }
}

}  // namespace
}  // namespace ballast
