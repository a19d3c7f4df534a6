#include "model/picture_rows.h"

#include <limits>

namespace ballast {

std::shared_ptr<const HeldPicture> PictureRows::next_holder(Token first) const {
  for (auto at = by_last_.lower_bound(first); at != by_last_.end(); at = by_last_.erase(at)) {
    if (auto held = at->second.lock()) return held;
  }
  return nullptr;
}

std::shared_ptr<const HeldPicture> PictureRows::find(std::string_view digest) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [last, picture] : by_last_) {
    if (auto held = picture.lock(); held && held->digest == digest) return held;
  }
  return nullptr;
}

std::shared_ptr<const HeldPicture> PictureRows::add(std::string digest, Matrix rows) {
  if (auto held = find(digest)) return held;
  const std::scoped_lock lock(mutex_);
  constexpr std::int64_t kFirst = std::numeric_limits<Token>::min();
  const auto count = static_cast<std::int64_t>(rows.rows());
  const auto number = static_cast<std::int64_t>(std::stoul(digest.substr(0, 8), nullptr, 16));
  const std::int64_t places = kNoToken - kFirst - count + 1;
  std::int64_t first = kFirst + number % places;
  while (auto other = next_holder(static_cast<Token>(first))) {
    if (other->first >= first + count) break;
    first = std::int64_t{other->first} + static_cast<std::int64_t>(other->rows.rows());
    if (first + count > kNoToken) first = kFirst;
  }
  auto held = std::make_shared<HeldPicture>(
      HeldPicture{static_cast<Token>(first), std::move(digest), std::move(rows)});
  by_last_[static_cast<Token>(first + count - 1)] = held;
  return held;
}

std::shared_ptr<const HeldPicture> PictureRows::holder(Token token) const {
  const std::scoped_lock lock(mutex_);
  auto held = next_holder(token);
  return held && held->first <= token ? held : nullptr;
}

}  // namespace ballast
