#include "serve/embeddings.h"

#include <span>

#include "base/base64.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kMostTexts = 2048;

}  // namespace

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

Json embedding_json(const std::vector<float>& embedding, std::size_t index, bool base64) {
  return {{"object", "embedding"},
          {"index", index},
          {"embedding",
           base64 ? Json(encode_base64(std::as_bytes(std::span(embedding)))) : Json(embedding)}};
}

}  // namespace ballast::serve
