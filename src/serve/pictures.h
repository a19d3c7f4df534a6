// The pictures of a request.
#pragma once

#include <string>

#include "ballast/engine/vision.h"
#include "serve/scheduling/job.h"

namespace ballast::serve {

class Pictures {
 public:
  static constexpr std::size_t kMost = 64;

  /// `vision`: null: none can be read.
  explicit Pictures(const VisionModel* vision) : vision_(vision) {}

  /// Reads the picture of a data URL and returns its place holder. `name`: of the field.
  /// Throws ApiError.
  std::string read(const std::string& url, const std::string& name);
  /// Puts them in their places in the job's prompt, and moves the token at which it is compressed.
  void place_in(Job& job);

 private:
  const VisionModel* vision_;
  std::vector<PictureTokens> pictures_;
};

}  // namespace ballast::serve
