#include "report/placed_picture.h"

#include <algorithm>

#include "base/fail.h"

namespace ballast {

std::vector<PlacedPicture> find_pictures(std::span<const Token> text,
                                         std::span<const PictureTokens> pictures) {
  std::vector<PlacedPicture> out;
  auto at = text.begin();
  for (const PictureTokens& picture : pictures) {
    const auto found = std::search(at, text.end(), picture.tokens.begin(), picture.tokens.end());
    if (found == text.end()) break;
    out.push_back({static_cast<std::size_t>(found - text.begin()), picture.layout});
    at = found + static_cast<std::ptrdiff_t>(picture.tokens.size());
  }
  return out;
}

Json to_json(std::span<const PlacedPicture> pictures) {
  Json out = Json::array();
  for (const auto& [begin, layout] : pictures) {
    out.push_back({{"begin", begin},
                   {"columns", layout.columns},
                   {"rows", layout.rows},
                   {"side", layout.side},
                   {"thumbnail", layout.thumbnail}});
  }
  return out;
}

std::vector<PlacedPicture> placed_pictures(const Json& json, std::size_t tokens) try {
  constexpr std::size_t kMostSide = 4096;
  std::vector<PlacedPicture> out;
  std::size_t last = 0;
  for (const Json& one : json) {
    PlacedPicture& picture = out.emplace_back();
    one.at("begin").get_to(picture.begin);
    const auto size = [&](const char* key) {
      const std::size_t n = one.at(key);
      require(n >= 1 && n <= kMostSide, "a picture with {} = {}", key, n);
      return n;
    };
    picture.layout = {.columns = size("columns"),
                      .rows = size("rows"),
                      .side = size("side"),
                      .thumbnail = one.at("thumbnail")};
    require(picture.begin >= last && picture.begin <= tokens && picture.end() <= tokens,
            "a picture at token {} of a text of {}", picture.begin, tokens);
    last = picture.end();
  }
  return out;
} catch (const SortedJson::exception&) {
  fail("no layout of pictures");
}

}  // namespace ballast
