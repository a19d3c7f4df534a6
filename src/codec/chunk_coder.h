// What is in a chunk behind its head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ballast/heads.h"

namespace ballast {

/// Codes the body of chunks of one shape and preset. Views fit the shape; any thread may call.
class ChunkCoder {
 public:
  using Views = std::span<const HeadsView>;
  using MutableViews = std::span<const MutableHeadsView>;

  virtual ~ChunkCoder() = default;
  /// The most bytes of a body of so many tokens.
  virtual std::size_t bound(std::size_t tokens) const = 0;
  /// Returns the bytes written to the front of `out`, which has bound() of them. `position`: of the
  /// first token, -1: not known; the coder may set it to what it took for it.
  virtual std::size_t encode(Views keys, Views values, std::int64_t& position,
                             std::span<std::byte> out) const = 0;
  /// `position`: as encode() left it. Throws Error with ErrorCode::bad_file where the body does not
  /// fit the views.
  virtual void decode(std::span<const std::byte> body, std::int64_t position, MutableViews keys,
                      MutableViews values) const = 0;
};

}  // namespace ballast
