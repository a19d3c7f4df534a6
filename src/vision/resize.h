// Pictures in other sizes, as models were trained on them.
#pragma once

#include <cstddef>

#include "ballast/engine/picture.h"

namespace ballast {

/// Bicubic with a filter as wide as the reduction, in 8 bits, rows first: the bytes of Pillow
/// before version 13, with which models were trained. (Later ones resize some pictures' columns
/// first.)
Picture resize(const Picture& picture, std::size_t width, std::size_t height);

}  // namespace ballast
