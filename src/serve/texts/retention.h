// How long clients want what they have sent to be kept, as the APIs say it.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "serve/http/fields.h"

namespace ballast::serve {

/// "5m", "1h", "24h". Throws ApiError that names the field on another text.
std::chrono::seconds parse_keep(const std::string& text, const std::string& name);

/// Marks in a conversation up to which a client wants it kept: Anthropic's cache_control, which
/// other APIs' clients send, too.
class CacheMarks {
 public:
  /// Where the last mark is: behind so many bytes of a message's text.
  struct Place {
    std::size_t message = 0, bytes = 0;
  };

  /// Reads "cache_control" of an object that ends behind so many bytes of a message.
  void read(Fields& object, std::size_t message, std::size_t bytes);

  const std::optional<Place>& last() const { return last_; }
  /// The longest ttl.
  std::chrono::seconds keep() const { return keep_; }

 private:
  std::optional<Place> last_;
  std::chrono::seconds keep_{};
};

/// prompt_cache_key, prompt_cache_retention (OpenAI's): how long; 0: as long as there is room.
std::chrono::seconds parse_retention(Fields& request);

/// cache_salt (vLLM's): a hash of it; empty: none. Requests share nothing with those of others.
std::string parse_salt(Fields& request);

}  // namespace ballast::serve
