#include <limits>

#include "ballast/engine/tokenizer.h"
#include "base/fail.h"

namespace ballast {

void Merges::add(std::string_view left, std::string_view right) {
  require(left.size() + right.size() <= std::numeric_limits<std::uint32_t>::max() - text_.size(),
          ErrorCode::over_limit, "merges of more than 4 GiB");
  text_ += left;
  ends_.push_back(static_cast<std::uint32_t>(text_.size()));
  text_ += right;
  ends_.push_back(static_cast<std::uint32_t>(text_.size()));
}

std::pair<std::string_view, std::string_view> Merges::operator[](std::size_t rank) const {
  const std::size_t begin = rank == 0 ? 0 : ends_[2 * rank - 1];
  const std::size_t middle = ends_[2 * rank], end = ends_[2 * rank + 1];
  const std::string_view text = text_;
  return {text.substr(begin, middle - begin), text.substr(middle, end - middle)};
}

}  // namespace ballast
