// Where a request's text stands: behind contexts, in a session, in a library, or alone in a cache,
// and how long it is kept.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "serve/http/fields.h"
#include "serve/requests.h"

namespace ballast::serve {

/// The job's cache: {"bytes": 0.125, "method": "replay", …}; null: that of the limits. Throws
/// ApiError, which names the field.
void parse_cache(const Json* value, const RequestLimits& limits, Job& job);

/// The first tokens of a job's text, as many as it shares with `other`, are never dropped.
void protect_head(Job& job, const std::vector<Token>& other, const RequestLimits& limits);

/// What a library is asked: the last question, and all of a conversation's.
struct Asked {
  std::string last, all;
};

/// context, cache, session, cite. Throws ApiError, which names the field.
void parse_place(Fields& request, const RequestLimits& limits, const Tokenizer& tokenizer,
                 Contexts& contexts, const std::string& owner, const Asked& asked,
                 TextRequest& out);

/// At least one context, one behind the other. Throws Error where they do not fit together.
std::shared_ptr<const Context> joined_context(
    std::span<const std::shared_ptr<const Context>> contexts, bool chat,
    const Tokenizer& tokenizer);

/// "ttl": "5m", "1h", "24h". Throws ApiError, which names the field.
std::chrono::seconds parse_ttl(Fields& object, const std::string& standard);

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
