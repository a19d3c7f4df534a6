#include "serve/answers.h"

namespace ballast::serve {

AnswerWriter::AnswerWriter(const TextRequest& request, std::string model,
                           const Tokenizer& tokenizer)
    : chat_(request.chat),
      stream_(request.stream),
      logprobs_(request.logprobs),
      include_usage_(request.include_usage),
      several_calls_(request.several_calls),
      model_(std::move(model)),
      id_(new_id(request.chat ? "chatcmpl-" : "cmpl-")),
      created_(std::time(nullptr)),
      tokenizer_(tokenizer),
      choices_(request.job.choices) {
  for (Choice& choice : choices_) {
    if (!request.functions.empty()) choice.reader.emplace(request.functions);
  }
}

const char* AnswerWriter::reason(const Choice& choice) {
  if (choice.finish == Finish::length || choice.finish == Finish::positions) return "length";
  return choice.calls.empty() ? "stop" : "tool_calls";
}

std::string AnswerWriter::take_calls(Choice& choice, const Piece& piece) const {
  if (!choice.reader) return piece.text;
  std::vector<ToolCall> calls;
  std::string text = choice.reader->push(piece.text, calls);
  if (piece.finish) text += choice.reader->finish(calls);
  for (ToolCall& call : calls) {
    if (!several_calls_ && !choice.calls.empty()) break;
    choice.calls.push_back(
        {{"id", new_id("call_")},
         {"type", "function"},
         {"function", {{"name", std::move(call.name)}, {"arguments", std::move(call.arguments)}}}});
  }
  return text;
}

Json AnswerWriter::add(const Piece& piece) {
  Choice& choice = choices_.at(piece.choice);
  const std::size_t calls_before = choice.calls.size();
  const std::string text = take_calls(choice, piece);
  choice.text += text;
  choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  if (piece.finish) choice.finish = *piece.finish;
  if (!stream_) return nullptr;

  const bool chances = logprobs_ && !piece.tokens.empty();
  const bool calls = choice.calls.size() > calls_before;
  if (text.empty() && !calls && !chances && !piece.finish) return nullptr;
  Json one = {{"index", piece.choice}};
  if (chat_) {
    Json& delta = one["delta"] = Json::object();
    if (!text.empty()) delta["content"] = text;
    for (std::size_t i = calls_before; i < choice.calls.size(); ++i) {
      Json call = {{"index", i}};
      call.update(choice.calls[i]);
      delta["tool_calls"].push_back(std::move(call));
    }
  } else {
    one["text"] = text;
  }
  one["logprobs"] = chances ? logprobs(piece.tokens, choice.offset) : Json();
  one["finish_reason"] = piece.finish ? Json(reason(choice)) : Json();
  Json out = frame(Json::array({std::move(one)}), true);
  if (include_usage_) out["usage"] = nullptr;
  return out;
}

std::string AnswerWriter::token_text(Token token) const {
  return tokenizer_.decode({&token, 1}, {.special = true, .text_start = false});
}

Json AnswerWriter::logprobs(const std::vector<GeneratedToken>& tokens, std::size_t& offset) const {
  auto shown = [&](const TokenChance& chance) -> Json {
    const std::string text = token_text(chance.token);
    Json bytes = Json::array();
    for (char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return {
        {"token", to_utf8(text)}, {"logprob", chance.log_probability}, {"bytes", std::move(bytes)}};
  };
  if (chat_) {
    Json content = Json::array();
    for (const GeneratedToken& token : tokens) {
      Json one = shown(token.chosen);
      one["top_logprobs"] = Json::array();
      for (const TokenChance& other : token.likeliest) one["top_logprobs"].push_back(shown(other));
      content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  Json texts = Json::array(), chances = Json::array(), top = Json::array(), offsets = Json::array();
  for (const GeneratedToken& token : tokens) {
    const std::string text = to_utf8(token_text(token.chosen.token));
    texts.push_back(text);
    chances.push_back(token.chosen.log_probability);
    Json others = Json::object();
    for (const TokenChance& other : token.likeliest) {
      others[to_utf8(token_text(other.token))] = other.log_probability;
    }
    top.push_back(std::move(others));
    offsets.push_back(offset);
    offset += text.size();
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(chances)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

Json AnswerWriter::usage() const {
  std::size_t made = 0;
  for (const Choice& choice : choices_) made += choice.tokens.size();
  return {{"prompt_tokens", read_.tokens},
          {"completion_tokens", made},
          {"total_tokens", read_.tokens + made},
          {"prompt_tokens_details", {{"cached_tokens", read_.cached}}},
          {"cached_tokens", read_.cached},
          {"prompt_cache_bytes", read_.cache_bytes},
          {"cache_bytes", ended_.cache_bytes}};
}

Json AnswerWriter::frame(Json choices, bool chunk) const {
  const char* object = !chat_  ? "text_completion"
                       : chunk ? "chat.completion.chunk"
                               : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"choices", std::move(choices)}};
}

Json AnswerWriter::whole() const {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    std::size_t offset = 0;
    Json one = {{"index", i}};
    if (chat_) {
      const bool silent = choice.text.empty() && !choice.calls.empty();
      one["message"] = {{"role", "assistant"},
                        {"content", silent ? Json() : Json(choice.text)},
                        {"refusal", nullptr}};
      if (!choice.calls.empty()) one["message"]["tool_calls"] = choice.calls;
    } else {
      one["text"] = choice.text;
    }
    one["logprobs"] = logprobs_ ? logprobs(choice.tokens, offset) : Json();
    one["finish_reason"] = reason(choice);
    list.push_back(std::move(one));
  }
  Json out = frame(std::move(list), false);
  out["usage"] = usage();
  return out;
}

Json AnswerWriter::opening(std::size_t choice) const {
  Json one = {{"index", choice},
              {"delta", {{"role", "assistant"}, {"content", ""}}},
              {"logprobs", nullptr},
              {"finish_reason", nullptr}};
  Json out = frame(Json::array({std::move(one)}), true);
  if (include_usage_) out["usage"] = nullptr;
  return out;
}

Json AnswerWriter::usage_chunk() const {
  Json out = frame(Json::array(), true);
  out["usage"] = usage();
  return out;
}

}  // namespace ballast::serve
