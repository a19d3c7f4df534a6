#include "serve/answers.h"

#include <algorithm>

#include "ballast/engine/question_form.h"
#include "library/citing.h"
#include "report/citations.h"

namespace ballast::serve {
namespace {

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

/// A token's text; OpenAI's form of bytes that are no characters: bytes:\xf0\x9f.
std::string shown_token(const std::string& text) {
  if (to_valid_utf8(text) == text) return text;
  std::string out = "bytes:";
  for (char c : text) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

void append(std::vector<Compaction>& all, const std::vector<Compaction>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// GaugeReading::kl of a context; -1: it is not known.
double kl_of(const ContextInfo& info) {
  const auto kl = info.gauge.is_object() ? info.gauge.find("kl") : info.gauge.end();
  return kl != info.gauge.end() && kl->is_number() ? kl->get<double>() : -1;
}

/// Appends the lists of one object of lists to those of another.
void append(Json& all, const Json& more) {
  for (auto& [name, list] : all.items()) {
    if (list.is_array()) list.insert(list.end(), more[name].begin(), more[name].end());
  }
}

}  // namespace

AnswerWriter::AnswerWriter(TextRequest request, std::string model, const Tokenizer& tokenizer)
    : request_(std::move(request)),
      model_(std::move(model)),
      id_(new_id(request_.chat ? "chatcmpl-" : "cmpl-")),
      created_(std::time(nullptr)),
      tokenizer_(tokenizer) {
  const TextRequest& r = request_;
  const DecodeOptions decode{.special = false, .text_start = r.echo || r.job.generate.text_start};
  for (std::size_t i = 0; i < r.prompt_count() * r.job.choices; ++i) {
    Choice& choice = choices_.emplace_back(TokenStream(tokenizer, decode));
    if (r.logprobs) choice.logprobs = r.chat ? chat_logprobs({}) : logprobs({}, choice);
  }
}

const char* AnswerWriter::reason(const Choice& choice) {
  if (choice.finish == Finish::length || choice.finish == Finish::positions) return "length";
  return choice.calls.empty() ? "stop" : "tool_calls";
}

std::vector<Json> AnswerWriter::add(const PromptRead& read, std::size_t prompt) {
  usage_.prompt += read.tokens;
  usage_.cached += read.cached;
  usage_.kept += request_.job.marked - std::min(request_.job.marked, read.cached);
  usage_.keep = request_.job.keep;
  usage_.prompt_cache_bytes += read.cache_bytes;
  if (request_.job.context) usage_.kl = kl_of(request_.job.context->info);
  if (read.gauge) usage_.kl = read.gauge->kl;
  usage_.first_seconds = std::max(usage_.first_seconds, read.seconds);
  append(usage_.compactions, read.compactions);
  std::vector<Json> chunks;
  for (std::size_t i = 0; i < request_.job.choices; ++i) {
    const std::size_t index = prompt * request_.job.choices + i;
    Choice& choice = choices_[index];
    Json one = {{"index", index}};
    if (request_.chat) {
      one["delta"] = {{"role", "assistant"}, {"content", ""}};
    } else if (request_.echo) {
      const std::vector<Token>& tokens = request_.prompt(prompt);
      one["text"] = choice.text = to_valid_utf8(tokenizer_.decode(tokens));
      if (request_.logprobs) {
        std::vector<GeneratedToken> scored = read.scored;
        scored.insert(scored.begin(), GeneratedToken{{tokens[0], 0}, {}});
        append(choice.logprobs, logprobs(scored, choice, true));
      }
    } else {
      continue;
    }
    one["logprobs"] = request_.echo ? choice.logprobs : Json();
    one["finish_reason"] = nullptr;
    if (request_.stream) chunks.push_back(frame(Json::array({std::move(one)}), true));
  }
  return chunks;
}

std::vector<Json> AnswerWriter::add(const Piece& piece, std::size_t prompt) {
  const std::size_t index = prompt * request_.job.choices + piece.choice;
  Choice& choice = choices_.at(index);
  const std::size_t calls_before = choice.calls.size();
  const std::string &text = piece.text, &thoughts = piece.thoughts;
  choice.text += text;
  choice.thoughts += thoughts;
  for (const ToolCall& call : piece.calls) {
    if (!request_.several_calls && !choice.calls.empty()) break;
    choice.calls.push_back({{"id", call.id.empty() ? new_id("call_") : call.id},
                            {"type", "function"},
                            {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  usage_.made += piece.tokens.size();
  if (piece.thinks) usage_.thoughts += piece.tokens.size();
  if (piece.finish) choice.finish = *piece.finish;
  choice.stop = piece.stop;
  choice.unsure = piece.unsure;
  if (piece.finish && request_.cites) {
    choice.citations = request_.asks_library ? citations_of_library(piece) : citations(piece);
  }
  Json chances;
  if (request_.logprobs && !piece.tokens.empty()) {
    chances = request_.chat ? chat_logprobs(piece.tokens) : logprobs(piece.tokens, choice);
    append(choice.logprobs, chances);
  }
  if (!request_.stream) return {};

  const bool calls = choice.calls.size() > calls_before;
  if (text.empty() && thoughts.empty() && !calls && chances.is_null() && !piece.finish) return {};
  Json one = {{"index", index}};
  if (request_.chat) {
    Json& delta = one["delta"] = Json::object();
    if (!thoughts.empty()) delta["reasoning_content"] = thoughts;
    if (!text.empty()) delta["content"] = text;
    for (std::size_t i = calls_before; i < choice.calls.size(); ++i) {
      Json call = {{"index", i}};
      call.update(choice.calls[i]);
      delta["tool_calls"].push_back(std::move(call));
    }
  } else {
    one["text"] = text;
  }
  one["logprobs"] = std::move(chances);
  one["finish_reason"] = piece.finish ? Json(reason(choice)) : Json();
  if (!choice.stop.empty()) one["stop_reason"] = choice.stop;
  if (choice.unsure) one["unsure"] = true;
  if (!choice.citations.is_null()) one["citations"] = choice.citations;
  return {frame(Json::array({std::move(one)}), true)};
}

Json AnswerWriter::citations(const Piece& piece) const {
  const ContextInfo& info = request_.job.context->info;
  const bool chat = info.form.starts_with("chat");
  const std::vector<Token> text = QuestionForm{chat, info.before, ""}.begin(tokenizer_);
  if (text.size() != info.tokens) return Json::array();
  const std::size_t before = chat ? bytes_before_context(tokenizer_, info.system) : 0;
  std::vector<Citation> all = cite(tokenizer_, text, before, piece.attention);
  for (Citation& one : all) {
    if (one.place.document.empty()) one.place.document = info.name;
  }
  return to_json(all);
}

Json AnswerWriter::citations_of_library(const Piece& piece) const {
  Json out = Json::array();
  for (const FoundSection& section : request_.sections) {
    const bool alone = request_.sections.size() == 1;
    const std::vector<Citation> all =
        alone ? cite_section(section, tokenizer_, request_.job.context->text, piece.attention)
              : std::vector{found_passage(section)};
    const Json cited = to_json(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      out.push_back(cited[i]);
      out.back()["context"] = ServedLibrary::id_of(section.part());
      out.back()["library"] = {
          {"id", section.document->id()}, {"begin", all[i].part.begin}, {"end", all[i].part.end}};
    }
  }
  return out;
}

std::vector<Json> AnswerWriter::add_not_found() {
  request_.sections.clear();
  std::vector<Json> out = add(PromptRead{});
  for (std::size_t i = 0; i < request_.job.choices; ++i) {
    Piece piece;
    piece.choice = i;
    piece.text = "Not in the library.";
    piece.finish = Finish::end;
    for (Json& chunk : add(piece)) out.push_back(std::move(chunk));
  }
  return out;
}

void AnswerWriter::add(const Ended& ended) {
  usage_.cache_bytes += ended.cache_bytes;
  usage_.seconds = std::max(usage_.seconds, ended.seconds);
  append(usage_.compactions, ended.compactions);
}

std::string AnswerWriter::token_text(Token token) const {
  return tokenizer_.decode({&token, 1}, {.special = true, .text_start = false});
}

Json AnswerWriter::chat_logprobs(const std::vector<GeneratedToken>& tokens) const {
  const auto shown = [&](const TokenChance& chance) -> Json {
    const std::string text = token_text(chance.token);
    Json bytes = Json::array();
    for (char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return {
        {"token", to_utf8(text)}, {"logprob", chance.log_probability}, {"bytes", std::move(bytes)}};
  };
  Json content = Json::array();
  for (const GeneratedToken& token : tokens) {
    Json one = shown(token.chosen);
    one["top_logprobs"] = Json::array();
    for (const TokenChance& other : token.likeliest) one["top_logprobs"].push_back(shown(other));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json AnswerWriter::logprobs(const std::vector<GeneratedToken>& tokens, Choice& choice,
                            bool unknown) const {
  Json texts = Json::array(), chances = Json::array(), top = Json::array(), offsets = Json::array();
  for (const GeneratedToken& token : tokens) {
    texts.push_back(shown_token(token_text(token.chosen.token)));
    offsets.push_back(choice.offset);
    choice.offset += characters(choice.stream.push(token.chosen.token));
    if (std::exchange(unknown, false)) {
      chances.push_back(nullptr);
      top.push_back(nullptr);
      continue;
    }
    chances.push_back(token.chosen.log_probability);
    Json others = Json::object();
    for (const TokenChance& other : token.likeliest) {
      // Of tokens with one text the likeliest, which comes first.
      const std::string text = shown_token(token_text(other.token));
      if (!others.contains(text)) others[text] = other.log_probability;
    }
    top.push_back(std::move(others));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(chances)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

Json AnswerWriter::frame(Json choices, bool chunk) const {
  const char* object = !request_.chat ? "text_completion"
                       : chunk        ? "chat.completion.chunk"
                                      : "chat.completion";
  Json out = {{"id", id_},
              {"object", object},
              {"created", created_},
              {"model", model_},
              {"choices", std::move(choices)}};
  return out;
}

Json AnswerWriter::whole() const {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json one = {{"index", i}};
    if (request_.chat) {
      const bool silent = choice.text.empty() && !choice.calls.empty();
      one["message"] = {{"role", "assistant"},
                        {"content", silent ? Json() : Json(choice.text)},
                        {"refusal", nullptr}};
      if (!choice.thoughts.empty()) one["message"]["reasoning_content"] = choice.thoughts;
      if (!choice.calls.empty()) one["message"]["tool_calls"] = choice.calls;
    } else {
      one["text"] = choice.text;
    }
    one["logprobs"] = choice.logprobs;
    one["finish_reason"] = reason(choice);
    if (!choice.stop.empty()) one["stop_reason"] = choice.stop;
    if (choice.unsure) one["unsure"] = true;
    if (!choice.citations.is_null()) one["citations"] = choice.citations;
    list.push_back(std::move(one));
  }
  return frame(std::move(list), false);
}

}  // namespace ballast::serve
