#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/engine/gauge.h"
#include "ballast/engine/session.h"
#include "bindings/c/cache.h"
#include "bindings/c/guard.h"
#include "bindings/c/model.h"
#include "bindings/options.h"

struct ballast_context {
  explicit ballast_context(ballast::Session made)
      : session(std::move(made)), cache(&session.cache()) {}

  ballast::Session session;
  ballast_cache cache;
};

using namespace ballast;     // NOLINT
using namespace ballast::c;  // NOLINT

static_assert(BALLAST_FINISH_STOP == static_cast<int>(Finish::stop) &&
              BALLAST_FINISH_LENGTH == static_cast<int>(Finish::length) &&
              BALLAST_FINISH_POSITIONS == static_cast<int>(Finish::positions) &&
              BALLAST_FINISH_CANCELLED == static_cast<int>(Finish::cancelled));

ballast_status ballast_model_load(const char* path, ballast_model** out) {
  return guarded([&] {
    given(out, "out");
    auto text = std::make_shared<const TextModel>(&given(path, "path"));
    const ModelConfig& c = text->model.config();
    log(BALLAST_LOG_INFO, fmt::format("{}: {}, {} layers of {} KV heads, {} positions", path,
                                      to_string(c.family), c.layers, c.kv_heads, c.max_positions)
                              .c_str());
    *out = new ballast_model{std::move(text)};
  });
}

void ballast_model_free(ballast_model* model) { delete model; }

ballast_status ballast_model_get_info(const ballast_model* model, ballast_model_info* out) {
  return guarded([&] {
    const ModelConfig& c = given(model, "model").text->model.config();
    const Vocabulary& v = model->text->tokenizer.vocabulary();
    write_struct<ballast_model_info>(
        {sizeof(ballast_model_info), c.layers, c.width, c.heads, c.kv_heads, c.key_dim, c.value_dim,
         c.vocabulary, c.max_positions, v.bos, v.eos},
        out, "out");
  });
}

ballast_status ballast_tokenize(const ballast_model* model, const char* text, size_t length,
                                bool add_special, bool parse_special, int32_t* tokens,
                                size_t capacity, size_t* count) {
  return guarded([&] {
    require(text != nullptr || length == 0, "text is NULL, but its length is {}", length);
    const std::vector<Token> all =
        given(model, "model")
            .text->tokenizer.encode({text == nullptr ? "" : text, length},
                                    {add_special, parse_special});
    write_array(all.data(), all.size(), tokens, capacity, count, "tokens");
  });
}

ballast_status ballast_detokenize(const ballast_model* model, const int32_t* tokens,
                                  size_t token_count, bool special, char* text, size_t capacity,
                                  size_t* length) {
  return guarded([&] {
    require(tokens != nullptr || token_count == 0, "tokens is NULL, but there are {}", token_count);
    const std::string all =
        given(model, "model").text->tokenizer.decode({tokens, token_count}, {.special = special});
    write_array(all.data(), all.size(), text, capacity, length, "text");
  });
}

bool ballast_is_end(const ballast_model* model, int32_t token) {
  return model != nullptr && token >= 0 &&
         static_cast<std::size_t>(token) < model->text->tokenizer.size() &&
         model->text->tokenizer.is_end(token);
}

ballast_status ballast_chat_format(const ballast_model* model, const ballast_message* messages,
                                   size_t message_count, bool add_answer, char* text,
                                   size_t capacity, size_t* length) {
  return guarded([&] {
    const Tokenizer& tokenizer = given(model, "model").text->tokenizer;
    require(messages != nullptr || message_count == 0, "messages is NULL, but there are {}",
            message_count);
    std::vector<ChatMessage> all;
    for (std::size_t i = 0; i < message_count; ++i) {
      all.push_back({&given(messages[i].role, "role"), &given(messages[i].content, "content")});
    }
    const std::string formatted =
        ChatTemplate::of(tokenizer).format(all, chat_options(tokenizer, add_answer));
    write_array(formatted.data(), formatted.size(), text, capacity, length, "text");
  });
}

ballast_status ballast_context_new(const ballast_model* model, const ballast_cache_params* params,
                                   ballast_context** out) {
  return guarded([&] {
    given(out, "out");
    const std::shared_ptr<const TextModel>& text = given(model, "model").text;
    *out = new ballast_context(Session(text, cache_options(params, &text->model)));
  });
}

void ballast_context_free(ballast_context* context) { delete context; }

ballast_status ballast_context_clone(const ballast_context* context, ballast_context** out) {
  return guarded([&] {
    given(out, "out");
    *out = new ballast_context(given(context, "context").session.clone());
  });
}

ballast_status ballast_context_read(ballast_context* context, const int32_t* tokens, size_t count) {
  return guarded([&] {
    require(tokens != nullptr || count == 0, "tokens is NULL, but there are {}", count);
    given(context, "context").session.read({tokens, count});
  });
}

ballast_status ballast_context_finish_prompt(ballast_context* context) {
  return guarded([&] {
    finish_prompt(given(context, "context").session);
    log_reports(context->session.cache());
  });
}

ballast_status ballast_context_finish_prompt_measured(ballast_context* context, double* kl) {
  return guarded([&] {
    given(kl, "kl");
    const auto gauge = finish_prompt(given(context, "context").session, true);
    *kl = gauge ? gauge->kl : -1;
    log_reports(context->session.cache());
  });
}

ballast_status ballast_context_compact(ballast_context* context, size_t bytes) {
  return guarded([&] { given(context, "context").session.compact(bytes); });
}

const float* ballast_context_logits(const ballast_context* context) {
  return context == nullptr || context->session.logits().empty() ? nullptr
                                                                 : context->session.logits().data();
}

size_t ballast_context_tokens(const ballast_context* context) {
  return context == nullptr ? 0 : context->session.tokens();
}

const ballast_cache* ballast_context_cache(const ballast_context* context) {
  return context == nullptr ? nullptr : &context->cache;
}

ballast_generate_params ballast_generate_default_params(void) {
  ballast_generate_params params = {};
  params.size = sizeof(params);
  params.max_tokens = 256;
  params.top_p = 1.0f;
  params.repetition_penalty = 1.0f;
  return params;
}

GenerateOptions ballast::c::generate_options(const ballast_generate_params* params) {
  const ballast_generate_params p =
      read_struct(params, ballast_generate_default_params(), "params");
  GenerateOptions options;
  options.max_tokens = p.max_tokens;
  options.sampling.temperature = p.temperature;
  options.sampling.top_k = p.top_k;
  options.sampling.top_p = p.top_p;
  options.sampling.min_p = p.min_p;
  options.sampling.repetition_penalty = p.repetition_penalty;
  options.sampling.seed = p.seed;
  options.ignore_end = p.ignore_end;
  options.text_start = false;
  require(p.stop != nullptr || p.stop_count == 0, "stop is NULL, but there are {} texts",
          p.stop_count);
  for (std::size_t i = 0; i < p.stop_count; ++i) {
    options.stop.emplace_back(&given(p.stop[i], "stop"));
  }
  return options;
}

ballast_status ballast_context_generate(ballast_context* context,
                                        const ballast_generate_params* params,
                                        ballast_text_callback on_text, void* user_data,
                                        ballast_finish* finish) {
  return guarded([&] {
    const GenerateOptions options = generate_options(params);
    Session& session = given(context, "context").session;
    session.read({});
    if (session.tokens() > 0 && !session.prompt_finished()) finish_prompt(session);
    Generation generation = session.generate(options);
    generation.run([&](std::string_view text) {
      return on_text == nullptr || on_text(text.data(), text.size(), user_data);
    });
    session.take_in(generation);
    if (finish != nullptr) *finish = static_cast<ballast_finish>(generation.result().finish);
  });
}

ballast_status ballast_context_save(const ballast_context* context, const char* path) {
  return guarded([&] { given(context, "context").session.save(&given(path, "path")); });
}

ballast_status ballast_context_save_packed(const ballast_context* context, const char* path,
                                           const char* size) {
  return guarded(
      [&] { given(context, "context").session.save(&given(path, "path"), &given(size, "size")); });
}

ballast_status ballast_context_load(const ballast_model* model, const char* path,
                                    const ballast_cache_params* params, ballast_context** out) {
  return guarded([&] {
    given(out, "out");
    const std::shared_ptr<const TextModel>& text = given(model, "model").text;
    const CacheOptions options = cache_options(params, &text->model);
    const ballast_cache_params p = read_struct(params, ballast_cache_default_params(), "params");
    const bool asked = p.method != nullptr || p.bytes != nullptr;
    require(!options.recording.any(), "bytes auto has no effect on a saved cache; give a size");
    *out = new ballast_context(
        Session::load(text, &given(path, "path"), options.pool, asked ? &options : nullptr));
  });
}
