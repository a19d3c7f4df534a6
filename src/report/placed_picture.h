// Where the pictures of a text stand.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/engine/vision.h"
#include "report/json.h"

namespace ballast {

struct PlacedPicture {
  std::size_t begin = 0;  ///< token of the text
  PictureLayout layout;
  std::size_t end() const { return begin + layout.tokens(); }
};

/// The places of pictures in the text that shows them in this order. One that the text does not
/// hold whole ends the search.
std::vector<PlacedPicture> find_pictures(std::span<const Token> text,
                                         std::span<const PictureTokens> pictures);

/// An array of objects: begin, columns, rows, side, thumbnail.
Json to_json(std::span<const PlacedPicture> pictures);
/// Throws Error on anything else, and where pictures overlap or end after `tokens`.
std::vector<PlacedPicture> placed_pictures(const Json& json, std::size_t tokens);

}  // namespace ballast
