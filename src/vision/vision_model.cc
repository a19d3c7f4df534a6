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

PictureTokens tokens_of(std::shared_ptr<const HeldPicture> held, const PictureLayout& layout) {
  PictureTokens out;
  out.layout = layout;
  for (std::size_t i = 0; i < held->rows.rows(); ++i) {
    out.tokens.push_back(held->first + static_cast<Token>(i));
  }
  out.rows = std::move(held);
  return out;
}

/// Where the model's own files lie, if they are no GGUF file.
std::filesystem::path folder_of(const Model& model) {
  const std::filesystem::path& path = model.file().path();
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return path;
  return path.has_parent_path() ? path.parent_path() : ".";
}

std::filesystem::path tower_path(const Model& model, const std::filesystem::path& mmproj) {
  if (!mmproj.empty()) return mmproj;
  require(VisionModel::is_in(model), ErrorCode::unsupported,
          "{}: the model sees no pictures: its files hold no vision tower of InternVL's (beside a "
          "GGUF file it is one of its own, which --mmproj names)",
          model.file().path().string());
  return folder_of(model);
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

  PictureLayout layout(std::size_t width, std::size_t height) const;
  PictureTokens see(const Picture& picture, const std::function<void(double)>& progress);
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

PictureTokens VisionModel::Impl::see(const Picture& picture,
                                     const std::function<void(double)>& progress) {
  std::string digest = digest_of(picture);
  auto held = rows->find(digest);
  if (held == nullptr) {
    const std::vector<Picture> tiles = cut_tiles(picture, tower.config().tiles);
    const std::size_t each = tower.config().tokens();
    Matrix seen(tiles.size() * each, tower.config().out_width);
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      tower.see(tiles[t], seen.view().slice(t * each, each));
      if (progress) progress(static_cast<double>(t + 1) / static_cast<double>(tiles.size()));
    }
    held = rows->add(std::move(digest), std::move(seen));
  }
  remember(held);
  return tokens_of(held, layout(picture.width, picture.height));
}

PictureLayout VisionModel::Impl::layout(std::size_t width, std::size_t height) const {
  const TowerConfig& config = tower.config();
  const TileGrid grid = choose_grid(width, height, config.tiles);
  return {.columns = grid.columns,
          .rows = grid.rows,
          .side = config.patches_across() / config.shuffle,
          .thumbnail = config.tiles.thumbnail && grid.tiles() > 1};
}

bool VisionModel::is_in(const Model& model) {
  return model.file().gguf() == nullptr && Tower::is_in(folder_of(model));
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

PictureTokens VisionModel::read(const Picture& picture,
                                const std::function<void(double)>& progress) const {
  require(picture.width > 0 && picture.pixels.size() == 3 * picture.width * picture.height,
          "a picture of {} × {} pixels with {} numbers", picture.width, picture.height,
          picture.pixels.size());
  const std::scoped_lock lock(impl_->mutex);
  return impl_->see(picture, progress);
}

PictureTokens VisionModel::read(std::span<const std::byte> file, std::string_view name,
                                const std::function<void(double)>& progress) const {
  const std::scoped_lock lock(impl_->mutex);  // so that one picture at a time takes memory
  return impl_->see(decode_picture(file, name), progress);
}

PictureLayout VisionModel::layout(std::size_t width, std::size_t height) const {
  return impl_->layout(width, height);
}

std::string VisionModel::place_holder() const { return std::string(kPlace) + "\n"; }

std::size_t VisionModel::places(std::span<const Token> text) const {
  return static_cast<std::size_t>(std::ranges::count(text, impl_->place));
}

std::vector<Token> VisionModel::place(std::span<const Token> text,
                                      std::span<const PictureTokens> pictures) const {
  require(places(text) == pictures.size(),
          "the text has {} places for pictures ({}), but {} pictures are given", places(text),
          kPlace, pictures.size());
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
