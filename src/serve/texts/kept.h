// What a context keeps, for people to look at.
#pragma once

#include <cstddef>

#include "ballast/engine/tokenizer.h"
#include "report/json.h"
#include "serve/texts/contexts.h"

namespace ballast::serve {

/// {"layers", "kv_heads", "heads": entries[layer][head], "tokens": texts, "kept": how many heads
/// keep an entry of each token, "pictures": see PlacedPicture}. A character of several tokens
/// stands with the last of them. `tokens` is empty where the text is not known.
Json kept_of_all(const Context& context, const Tokenizer& tokenizer);
/// {"positions", "weights"} of the entries of one head, in order. Throws ApiError outside the
/// model.
Json kept_of_head(const Context& context, std::size_t layer, std::size_t head);

}  // namespace ballast::serve
