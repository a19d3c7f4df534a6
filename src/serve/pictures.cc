#include "serve/pictures.h"

#include <algorithm>

#include "base/base64.h"
#include "base/fail.h"
#include "base/interruption.h"
#include "serve/http/api_error.h"
#include "serve/http/gate.h"

namespace ballast::serve {

std::string Pictures::read(const std::string& url, const std::string& name) {
  if (vision_ == nullptr) {
    throw ApiError(400, "unsupported_parameter",
                   fmt::format("{}: this model sees no pictures", name), name);
  }
  const std::size_t comma = url.find(',');
  if (!url.starts_with("data:") || comma == url.npos ||
      !url.substr(0, comma).ends_with(";base64")) {
    refuse(name, "{}: pictures are fetched from nowhere; send one as data:image/jpeg;base64,…",
           name);
  }
  if (pictures_.size() == kMost) {
    refuse(name, "{}: at most {} pictures are read at once", name, kMost);
  }
  static Gate one_at_once(1);  // of whomever: a picture of a few KB may take a gigabyte
  const Gate::Place place = one_at_once.enter("");
  Interruption::check();
  try {
    const std::string file = decode_base64(std::string_view(url).substr(comma + 1));
    pictures_.push_back(vision_->read(std::as_bytes(std::span(file)), name));
  } catch (const Error& error) {
    throw ApiError(400, "invalid_value", error.what(), name);
  }
  return vision_->place_holder();
}

void Pictures::place_in(Job& job) {
  if (pictures_.empty()) return;
  const auto first = std::span(job.prompt).first(std::min(job.compress_at, job.prompt.size()));
  const std::size_t count = std::min(vision_->places(first), pictures_.size());
  job.compress_at = vision_->place(first, std::span(pictures_).first(count)).size();
  job.prompt = vision_->place(job.prompt, pictures_);
  job.pictures = std::move(pictures_);
}

}  // namespace ballast::serve
