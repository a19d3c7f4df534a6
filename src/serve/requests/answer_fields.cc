#include "serve/requests/answer_fields.h"

#include <charconv>
#include <cmath>
#include <random>

#include "serve/grammar/expression_rules.h"
#include "serve/grammar/gbnf.h"
#include "serve/grammar/json_schema.h"
#include "serve/http/api_error.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kMostStops = 16, kMostBiases = 1024;

/// Any whole number; none, and -1, which some clients send for none: drawn.
std::uint64_t seed_of(Fields& f) {
  const Json* seed = f.find("seed");
  if (seed == nullptr || *seed == -1) return std::random_device()();
  if (seed->is_number_unsigned()) return seed->get<std::uint64_t>();
  if (!seed->is_number_integer()) refuse("seed", "seed: {} is not a whole number", shown(*seed));
  return static_cast<std::uint64_t>(seed->get<std::int64_t>());
}

/// A number of tokens; none, and -1, which some clients send for no limit: those of the server.
std::optional<std::uint64_t> limit_of(Fields& f, const char* name, std::uint64_t least) {
  const Json* value = f.find(name);
  if (value != nullptr && *value == -1) return std::nullopt;
  return f.count(name, least, kMostTokens);
}

/// {"TOKEN": bias, …}
std::vector<std::pair<Token, float>> logit_bias_of(Fields& f, const Tokenizer& tokenizer) {
  std::vector<std::pair<Token, float>> out;
  const Json* all = f.find("logit_bias");
  if (all == nullptr) return out;
  if (!all->is_object() || all->size() > kMostBiases) {
    refuse("logit_bias", "logit_bias: {} is not an object of at most {} tokens", shown(*all),
           kMostBiases);
  }
  for (const auto& [name, bias] : all->items()) {
    Token token = kNoToken;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    const bool known = error == std::errc() && end == name.data() + name.size() && token >= 0 &&
                       static_cast<std::size_t>(token) < tokenizer.size();
    if (!known) {
      refuse("logit_bias", "logit_bias: {} is not a token from 0 to {}", shown(Json(name)),
             tokenizer.size() - 1);
    }
    const double value = bias.is_number() ? bias.get<double>() : std::nan("");
    if (!(value >= -100 && value <= 100)) {
      refuse("logit_bias", "logit_bias: {} of token {} is not a number from -100 to 100",
             shown(bias), token);
    }
    out.emplace_back(token, static_cast<float>(value));
  }
  return out;
}

/// response_format; nullptr: any text.
std::shared_ptr<const Grammar> parse_format(const Json& format) {
  Fields f(format, "response_format.");
  const std::string type = f.text("type").value_or("");
  if (type == "json_schema") {
    Fields about = f.inside("json_schema");
    f.end();
    about.text("name");
    about.text("description");
    about.flag("strict", false);  // answers are held to the schema in any case
    const Json* schema = about.find("schema");
    about.end();
    if (schema == nullptr) refuse(about.full("schema"), "{} is missing", about.full("schema"));
    return compile_schema(*schema, about.full("schema"));
  }
  const Json* own = type == "json_object" ? f.find("schema") : nullptr;
  f.end();
  if (type == "text") return nullptr;
  if (own != nullptr) return compile_schema(*own, "response_format.schema");
  if (type == "json_object") return any_json_object();
  unsupported("response_format.type", type, R"("text", "json_object", "json_schema")");
}

}  // namespace

void parse_sampling(Fields& f, const RequestLimits& limits, const Tokenizer& tokenizer,
                    SamplingOptions& out) {
  out = limits.sampling;
  const auto number = [&](const char* name, double low, double high, float standard) {
    return static_cast<float>(f.number(name, low, high, standard));
  };
  out.temperature = number("temperature", 0, 2, out.temperature);
  out.top_p = number("top_p", 0, 1, out.top_p);
  out.min_p = number("min_p", 0, 1, out.min_p);
  if (out.min_p == 1) refuse("min_p", "min_p: must be below 1");
  const Json* top_k = f.find("top_k");
  const bool all = top_k != nullptr && *top_k == -1;  // as vLLM's clients say
  out.top_k = all ? 0 : f.count("top_k", 0, kMostTokens).value_or(out.top_k);
  if (out.top_p == 0) {  // none but the likeliest
    out.top_p = 1;
    out.top_k = 1;
  }
  out.repetition_penalty = number("repetition_penalty", 1, 100, 1);
  out.presence_penalty = number("presence_penalty", -2, 2, 0);
  out.frequency_penalty = number("frequency_penalty", -2, 2, 0);
  out.logit_bias = logit_bias_of(f, tokenizer);
  out.seed = seed_of(f);
}

void parse_length(Fields& f, const RequestLimits& limits, std::uint64_t least,
                  GenerateOptions& out) {
  const auto most = limit_of(f, "max_tokens", least);
  const auto most_made = limit_of(f, "max_completion_tokens", 1);
  if (most && most_made && *most != *most_made) {
    refuse("max_tokens", "max_tokens and max_completion_tokens are both given and differ");
  }
  out.max_tokens = most_made.value_or(most.value_or(limits.max_tokens));
  out.ignore_end = f.flag("ignore_eos", false);
  const Json* stop = f.find("stop");
  if (stop == nullptr) return;
  const Json all = stop->is_string() ? Json::array({*stop}) : *stop;
  if (!all.is_array() || all.size() > kMostStops) {
    refuse("stop", "stop: {} is neither a string nor an array of at most {} strings", shown(*stop),
           kMostStops);
  }
  for (const Json& one : all) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
      refuse("stop", "stop: {} is not a string of at least one character", shown(one));
    }
    out.stop.push_back(one.get<std::string>());
  }
}

void parse_form(Fields& f, Job& job) {
  const char* given = nullptr;  // of the three
  const auto hold_to = [&](const char* name, std::shared_ptr<const Grammar> grammar) {
    if (given != nullptr) refuse(name, "{}: not together with {}", name, given);
    given = name;
    job.grammar.emplace(std::move(grammar));
  };
  const auto grammar = f.text("grammar"), regex = f.text("regex");
  if (grammar && !grammar->empty()) {
    hold_to("grammar", naming("grammar", [&] { return parse_gbnf(*grammar); }));
  }
  if (regex && !regex->empty()) {
    hold_to("regex", naming("regex", [&] { return parse_expression(*regex); }));
  }
  if (const Json* format = f.find("response_format")) {
    if (auto json = parse_format(*format)) hold_to("response_format", std::move(json));
  }
}

}  // namespace ballast::serve
