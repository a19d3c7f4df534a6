#include <algorithm>
#include <list>
#include <mutex>

#include "ballast/engine/vision.h"
#include "base/fail.h"
#include "base/sha256.h"
#include "model/weights.h"
#include "vision/tower.h"

namespace ballast {
namespace {

constexpr std::size_t kRemembered = std::size_t{256} << 20;
constexpr const char* kPlace = "<IMG_CONTEXT>";

std::string digest_of(const Picture& picture) {
  Sha256 sum;
  const std::uint64_t size[] = {picture.width, picture.height};
  sum.add(std::as_bytes(std::span(size)));
  sum.add(std::as_bytes(std::span(picture.pixels)));
  return sum.finish();
}

PictureTokens tokens_of(std::shared_ptr<const HeldPicture> held) {
  PictureTokens out;
  for (std::size_t i = 0; i < held->rows.rows(); ++i) {
    out.tokens.push_back(held->first + static_cast<Token>(i));
  }
  out.rows = std::move(held);
  return out;
}

std::filesystem::path tower_path(const Model& model, const std::filesystem::path& mmproj) {
  if (!mmproj.empty()) return mmproj;
  const std::filesystem::path& path = model.file().path();
  require(VisionModel::is_in(model), ErrorCode::unsupported,
          "{}: the model sees no pictures: its files hold no vision tower of InternVL's (beside a "
          "GGUF file it is one of its own, which --mmproj names)",
          path.string());
  return path;
}

}  // namespace

struct VisionModel::Impl {
  Impl(const Model& model, const std::filesystem::path& mmproj)
      : tower(tower_path(model, mmproj), model.config().width), rows(model.weights().pictures) {}

  Tower tower;
  std::shared_ptr<PictureRows> rows;
  Token begin = kNoToken, place = kNoToken, end = kNoToken;
  std::mutex mutex;
  std::list<std::shared_ptr<const HeldPicture>> remembered;  ///< used last in front

  void remember(const std::shared_ptr<const HeldPicture>& picture) {
    remembered.remove(picture);
    remembered.push_front(picture);
    std::size_t bytes = 0;
    for (auto at = remembered.begin(); at != remembered.end();) {
      bytes += (*at)->rows.rows() * (*at)->rows.cols() * sizeof(float);
      at = bytes > kRemembered ? remembered.erase(at) : std::next(at);
    }
  }
};

bool VisionModel::is_in(const Model& model) {
  return model.file().gguf() == nullptr && Tower::is_in(model.file().path());
}

VisionModel::VisionModel(const Model& model, const Tokenizer& tokenizer,
                         const std::filesystem::path& mmproj)
    : impl_(std::make_unique<Impl>(model, mmproj)) {
  const auto id = [&](const char* piece) {
    const Token token = tokenizer.find(piece);
    require(token != kNoToken, ErrorCode::unsupported,
            "{}: the tokenizer has no {}, which stands for pictures", model.file().path().string(),
            piece);
    return token;
  };
  impl_->begin = id("<img>");
  impl_->place = id(kPlace);
  impl_->end = id("</img>");
}
VisionModel::~VisionModel() = default;

PictureTokens VisionModel::read(const Picture& picture) const {
  require(picture.width > 0 && picture.pixels.size() == 3 * picture.width * picture.height,
          "a picture of {} × {} pixels with {} numbers", picture.width, picture.height,
          picture.pixels.size());
  std::string digest = digest_of(picture);
  const std::scoped_lock lock(impl_->mutex);
  auto held = impl_->rows->find(digest);
  if (held == nullptr) {
    const Tower& tower = impl_->tower;
    const std::vector<Picture> tiles = cut_tiles(picture, tower.config().tiles);
    const std::size_t each = tower.config().tokens();
    Matrix rows(tiles.size() * each, tower.config().out_width);
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      tower.see(tiles[t], rows.view().slice(t * each, each));
    }
    held = impl_->rows->add(std::move(digest), std::move(rows));
  }
  impl_->remember(held);
  return tokens_of(held);
}

std::size_t VisionModel::tokens(std::size_t width, std::size_t height) const {
  const TowerConfig& config = impl_->tower.config();
  return count_tiles(width, height, config.tiles) * config.tokens();
}

std::string VisionModel::place_holder() const { return std::string(kPlace) + "\n"; }

std::vector<Token> VisionModel::place(std::span<const Token> text,
                                      std::span<const PictureTokens> pictures) const {
  const auto places = static_cast<std::size_t>(std::ranges::count(text, impl_->place));
  require(places == pictures.size(),
          "the text has {} places for pictures ({}), but {} pictures are given", places, kPlace,
          pictures.size());
  std::vector<Token> out;
  auto next = pictures.begin();
  for (Token token : text) {
    if (token != impl_->place) {
      out.push_back(token);
      continue;
    }
    out.push_back(impl_->begin);
    out.insert(out.end(), next->tokens.begin(), next->tokens.end());
    out.push_back(impl_->end);
    ++next;
  }
  return out;
}

}  // namespace ballast
