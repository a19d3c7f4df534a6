// Encodes and decodes with a tokenizer that a hostile file gave.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/chat.h"
#include "ballast/engine/question_form.h"
#include "ballast/engine/tokenizer.h"
#include "target.h"

namespace ballast::fuzz {

inline void use(const Tokenizer& tokenizer, std::string_view text) {
  text = text.substr(0, 4096);
  for (const bool special : {false, true}) {
    std::vector<Token> tokens = tokenizer.encode(text, {.parse_special = special});
    for (Token token : tokens) {
      BALLAST_FUZZ_CHECK(token >= 0 && static_cast<std::size_t>(token) < tokenizer.size());
    }
    (void)tokenizer.decode(tokens, {.special = special});
    TokenStream stream(tokenizer, {.special = special});
    std::string written;
    for (Token token : tokens) written += stream.push(token);
    written += stream.flush();
    BALLAST_FUZZ_CHECK(to_valid_utf8(written) == written);
  }
  const std::string always = " ab\n\xff\xc3\xa9 <s>12";
  (void)tokenizer.decode(tokenizer.encode(always, {.parse_special = true}), {.special = true});
  (void)template_tokens(tokenizer);
  const std::vector<ChatMessage> messages = {{"system", "Be brief."}, {"user", "Hi <s>"}};
  (void)encode_chat(tokenizer, messages, true, "");
  Conversation conversation(tokenizer, "Be brief.");
  (void)conversation.say("Hi");
  conversation.answered("Ho");
  const QuestionForm form = conversation.next();
  (void)form.begin(tokenizer);
  (void)form.question(tokenizer, "Why? \n");
  (void)form.whole(tokenizer, "Why?");
}

}  // namespace ballast::fuzz
