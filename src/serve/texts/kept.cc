#include "serve/texts/kept.h"

#include "ballast/engine/question_form.h"
#include "base/interruption.h"
#include "serve/http/api_error.h"

namespace ballast::serve {

Json kept_of_all(const Context& context, const Tokenizer& tokenizer) {
  const CacheShape& shape = context.cache.shape();
  std::vector<std::size_t> kept(context.info.tokens);
  Json heads = Json::array();
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    Json row = Json::array();
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      Interruption::check();
      const std::vector<KeptEntry> entries = context.cache.kept(layer, head);
      row.push_back(entries.size());
      Position last = -1;
      for (const KeptEntry& entry : entries) {
        const auto at = static_cast<std::size_t>(entry.position);
        if (entry.position != last && at < kept.size()) ++kept[at];
        last = entry.position;
      }
    }
    heads.push_back(std::move(row));
  }
  Json texts = Json::array();
  if (!context.info.before.empty()) {
    const bool chat = context.info.form.starts_with("chat");
    const std::vector<Token> tokens = QuestionForm{chat, context.info.before, ""}.begin(tokenizer);
    auto picture = context.info.pictures.begin();
    // A character of several tokens stands with the last of them.
    TokenStream stream(tokenizer, {.special = true, .text_start = false});
    for (const Token& token : tokens) {
      // A place holder became the picture's tokens and one on either side.
      if (picture != context.info.pictures.end() && texts.size() + 1 == picture->begin) {
        for (std::size_t i = 0; i < picture->layout.tokens() + 2; ++i) texts.push_back("");
        ++picture;
        continue;
      }
      texts.push_back(stream.push(token));
    }
    if (texts.size() != context.info.tokens) texts = Json::array();
  }
  return {{"layers", shape.layers},
          {"kv_heads", shape.kv_heads},
          {"heads", std::move(heads)},
          {"tokens", std::move(texts)},
          {"kept", kept},
          {"pictures", ballast::to_json(context.info.pictures)}};
}

Json kept_of_head(const Context& context, std::size_t layer, std::size_t head) {
  const CacheShape& shape = context.cache.shape();
  if (layer >= shape.layers || head >= shape.kv_heads) {
    throw ApiError(404, "no_such_head",
                   fmt::format("the model has layers 0 to {} and KV heads 0 to {}",
                               shape.layers - 1, shape.kv_heads - 1));
  }
  Json positions = Json::array(), weights = Json::array();
  for (const KeptEntry& entry : context.cache.kept(layer, head)) {
    positions.push_back(entry.position);
    weights.push_back(entry.weight);
  }
  return {{"positions", std::move(positions)}, {"weights", std::move(weights)}};
}

}  // namespace ballast::serve
