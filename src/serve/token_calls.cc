#include "serve/token_calls.h"

#include <span>

#include "base/base64.h"
#include "formats/utf8_text.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/requests.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kMostTexts = 2048;
/// Bytes that the tokens of a request are turned into: a token of three digits may be a piece of a
/// kilobyte.
constexpr std::size_t kMostText = std::size_t{16} << 20;

void tokenize(const Tokenizer& tokenizer, Call& call) {
  const Json body = call.take_object();
  Fields f(body);
  const std::string content = f.needed("content");
  const EncodeOptions options{.add_special = f.flag("add_special", false),
                              .parse_special = f.flag("parse_special", true)};
  f.end();
  call.reply({{"tokens", tokenizer.encode(content, options)}});
}

void detokenize(const Tokenizer& tokenizer, Call& call) {
  const Json body = call.take_object();
  Fields f(body);
  const Json* list = f.find("tokens");
  if (list == nullptr || !list->is_array()) {
    refuse("tokens", "tokens: an array of tokens is missing");
  }
  std::string text;
  for (const Json& token : *list) {
    if (!token.is_number_unsigned() || token.get<std::uint64_t>() >= tokenizer.size()) {
      refuse("tokens", "tokens: {} is not a token from 0 to {}", shown(token),
             tokenizer.size() - 1);
    }
    const Token one = token.get<Token>();
    text += tokenizer.decode({&one, 1}, {.special = true, .text_start = false});
    if (text.size() > kMostText) {
      refuse("tokens", "tokens: their text has more than {} bytes", kMostText);
    }
  }
  f.end();
  call.reply({{"content", to_valid_utf8(text)}});
}

/// POST /v1/embeddings and /api/embed: input (a text, tokens, or an array of either),
/// encoding_format,
/// dimensions, truncate.
struct EmbeddingRequest {
  std::vector<Job> jobs;  ///< of each text
  bool base64 = false;    ///< vectors as the base64 of float32, little-endian
};
/// `width`: of the model. `ollama`: nothing is a list of no
/// texts, and texts are cut to the model's positions unless `truncate` is false.
EmbeddingRequest parse_embeddings(const Json& body, const RequestLimits& limits,
                                  const Tokenizer& tokenizer, std::size_t width, bool ollama) {
  EmbeddingRequest out;
  Fields f(body);
  f.text("model");
  f.ignore({"user", "options", "keep_alive"});  // the last two are Ollama's
  const bool truncate = f.flag("truncate", ollama);
  const std::string format = f.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    refuse("encoding_format", "encoding_format: {} is neither \"float\" nor \"base64\"",
           shown(Json(format)));
  }
  out.base64 = format == "base64";
  f.only("dimensions", width);
  const Json* input = f.find("input");
  const bool nothing = input == nullptr || *input == "" || *input == Json::array();
  if (input == nullptr && !ollama) refuse("input", "input is missing");
  f.end();
  if (nothing && ollama) return out;
  std::vector<std::vector<Token>> all = prompts_of(*input, "input", kMostTexts, tokenizer);
  for (std::vector<Token>& tokens : all) {
    if (truncate && tokens.size() > limits.positions) {
      const Token last = tokens.back();
      tokens.resize(limits.positions);
      if (tokenizer.vocabulary().add_eos) tokens.back() = last;
    }
    Job job;
    job.prompt = tokens;
    job.compress_at = tokens.size();
    job.cache = limits.cache;
    job.cache.policy = Policy::parse("exact");
    job.cache.protocol = Protocol::prefill;
    job.cache.positions = Positions::absolute;
    job.choices = 0;
    job.embed = true;
    out.jobs.push_back(std::move(job));
  }
  return out;
}

/// An entry of the answer's data.
Json embedding_json(const std::vector<float>& embedding, std::size_t index, bool base64) {
  return {{"object", "embedding"},
          {"index", index},
          {"embedding",
           base64 ? Json(encode_base64(std::as_bytes(std::span(embedding)))) : Json(embedding)}};
}

/// OpenAI's embeddings, or Ollama's.
void embed(const Service& s, Call& call, bool ollama) {
  EmbeddingRequest parsed =
      parse_embeddings(call.take_object(), s.limits, s.tokenizer, s.model.config().width, ollama);
  call.end_work();
  Json data = Json::array();
  std::size_t tokens = 0;
  for (Job& job : parsed.jobs) {
    tokens += job.prompt.size();
    Waiting waiting = s.submit(std::move(job), call);
    while (true) {
      const Event event = waiting.next();
      const auto* made = std::get_if<Embedded>(&event);
      if (made == nullptr) continue;
      data.push_back(embedding_json(made->embedding, data.size(), parsed.base64));
      break;
    }
  }
  call.response.usage.prompt = tokens;
  Json answer = {{"model", s.limits.model}};
  if (ollama) {
    answer["embeddings"] = Json::array();
    for (Json& one : data) answer["embeddings"].push_back(std::move(one["embedding"]));
    answer["prompt_eval_count"] = tokens;
  } else {
    answer["object"] = "list";
    answer["data"] = std::move(data);
    answer["usage"] = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  }
  call.reply(answer);
}

}  // namespace

void add_token_calls(Routes& routes, const Service& s) {
  routes.post("/v1/embeddings", [&s](Call& call) { embed(s, call, false); });
  routes.post("/api/embed", [&s](Call& call) { embed(s, call, true); });
  routes.post("/tokenize", [&s](Call& call) { tokenize(s.tokenizer, call); });
  routes.post("/detokenize", [&s](Call& call) { detokenize(s.tokenizer, call); });
}

}  // namespace ballast::serve
