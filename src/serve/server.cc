#include "serve/server.h"

#include <algorithm>

#include "ballast/version.h"
#include "base/fail.h"
#include "base/interruption.h"
#include "cache/cache_size.h"
#include "model/suggested_sampling.h"
#include "serve/calls.h"
#include "serve/document_calls.h"
#include "serve/formats/format.h"
#include "serve/formats/ollama_models.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/http/metrics.h"
#include "serve/page.h"
#include "serve/session_calls.h"
#include "serve/text_calls.h"
#include "serve/token_calls.h"

namespace ballast::serve {
namespace {

/// Of one text, however many a model's file says it has room for.
constexpr std::size_t kLongestText = std::size_t{1} << 20;
/// Answers up to it are not counted as memory.
constexpr std::size_t kSmallAnswer = 64 << 10;

}  // namespace

struct Server::Impl {
  Impl(const Model& model, const Tokenizer& tokenizer, const ServerOptions& options)
      : model(model),
        tokenizer(tokenizer.limited(kLongestText)),
        o(options),
        memory(options.memory),
        contexts(model, memory_for_contexts(), options.cache_dir, refused, options.keys,
                 options.cache_dir_max, options.pack, unpacked_form(options.cache)),
        limits{options.name,
               options.slots,
               options.max_tokens,
               options.cache,
               model.calibration() != nullptr ? "calibrated" : "replay",
               CacheSize(model.cache_shape(), options.cache).token(),
               model.config().max_positions,
               model.turns_only(),
               options.vision.get(),
               open_library(),
               &sessions,
               &guard,
               suggested_sampling(model.file().tokenizer(), RequestLimits().sampling)},
        scheduler(model, this->tokenizer,
                  {options.slots, options.queue, options.patience,
                   o.cache_dir_max > 0 && !o.cache_dir.empty() ? o.cache_dir / "beginnings" : "",
                   o.cache_dir_max, o.pack, &sessions},
                  memory, contexts, metrics) {
    if (o.port != ServerOptions::kNoPort) {
      http.emplace(
          HttpOptions{.host = o.host,
                      .port = o.port,
                      .max_body = o.max_body,
                      .bodies = memory.left() / 3,
                      // Answers, those that wait for their readers, for a slot, at the gates.
                      .most_handlers = 2 * o.slots + o.queue + 3 * 64 + 32,
                      .at_once = {"/health", "/metrics"},
                      .admit = [this](const Request& request) { return doorman.refusal(request); },
                      .handle = [this](Request& request,
                                       Response& response) { answer(request, response); }},
          memory);
    }
    if (library) {
      const std::vector<std::string> damaged = library->refused();
      refused.insert(refused.end(), damaged.begin(), damaged.end());
    }
    set_up();
  }

  ServedLibrary* open_library() {
    if (o.library.empty()) return nullptr;
    return &library.emplace(o.library, model, tokenizer, contexts);
  }

  Memory& memory_for_contexts() {
    const std::size_t own = Scheduler::own_memory(model, o.slots);
    require(
        memory.take(own, base), ErrorCode::out_of_memory,
        "--memory of {} bytes: the model and {} slots alone take {}; give more, or fewer --slots",
        o.memory, o.slots, own);
    return memory;
  }

  void set_up();
  void answer(Request& request, Response& response);
  void route(Request& request, Response& response);
  /// Takes memory for an answer that waits whole for its client.
  void count_answer(Request& request, Response& response);
  static void answer_error(const Request& request, Response& response, const ApiError& error);
  Json props() const;

  const Model& model;
  const Tokenizer tokenizer;
  ServerOptions o;
  std::vector<std::string> refused;
  Memory memory;
  Lease base;
  Metrics metrics;
  Contexts contexts;
  std::optional<ServedLibrary> library;
  Sessions sessions;
  Guard guard{model};
  RequestLimits limits;
  Scheduler scheduler;
  Doorman doorman{o.host, o.keys, o.origins};
  Bodies bodies{memory, memory.total() - base.bytes()};
  SlowReaders slow_readers{o.slots};
  const Service service{model,    tokenizer, limits,    doorman,     bodies,
                        contexts, sessions,  scheduler, slow_readers};
  Routes routes;
  std::optional<HttpServer> http;
};

void Server::Impl::answer(Request& request, Response& response) {
  // A client may close its side once it has asked: what is soon done is answered.
  constexpr double kSoon = 0.1;  // seconds
  const Interruption interruption([&] {
    return !response.stopping() && (request.since.seconds() < kSoon || !response.gone());
  });
  try {
    doorman.allow_origin(request, response);  // a page may read errors, too
    if (request.refused) throw ApiError(*request.refused);
    route(request, response);
  } catch (const ApiError& error) {
    answer_error(request, response, error);
  } catch (const Error& error) {
    answer_error(request, response, ApiError(400, "invalid_value", error.what()));
  } catch (const Interrupted&) {
    if (response.stopping()) {
      answer_error(request, response, shutting_down());
    } else {
      response.status = 499;
      response.abandon();
    }
  } catch (const std::bad_alloc&) {
    answer_error(request, response, ApiError(503, "insufficient_memory", "out of memory"));
  } catch (const std::exception& error) {
    answer_error(request, response, ApiError(500, "internal_error", error.what()));
  }
  count_answer(request, response);
  metrics.count_response(response.status);
  const bool watched = request.path == "/health" || request.path == "/metrics";
  if (!o.log || (watched && response.status == 200)) return;
  o.log({request.since.seconds(), request.client, request.method, request.path, response.status,
         response.usage});
}

void Server::Impl::count_answer(Request& request, Response& response) {
  const std::size_t size = response.begun() ? 0 : response.body().size();
  request.memory.shrink(size);
  if (size <= kSmallAnswer || request.memory.bytes() == size) return;
  if (memory.take(size, request.memory)) return;
  memory.want(size);
  answer_error(
      request, response,
      ApiError(503, "insufficient_memory",
               fmt::format("no memory is free for an answer of {} bytes; try again later", size)));
}

void Server::Impl::route(Request& request, Response& response) {
  if (request.method == "OPTIONS") {
    response.status = 204;
    return;
  }
  Call call{request, response};
  if (request.method == "POST") {
    const bool document = request.path == "/v1/contexts" || request.path == "/v1/library";
    call.work = bodies.enter(doorman.client_of(request), request.body.size(), document);
  }
  routes.answer(call);
}

void Server::Impl::answer_error(const Request& request, Response& response, const ApiError& error) {
  response.status = error.status();
  if (response.begun()) return response.abandon();
  if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "2");
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(line(Format::error(request.path, error)), "application/json");
}

Json Server::Impl::props() const {
  const ModelConfig& c = model.config();
  Json methods = Json::array();
  for (const MethodInfo* info : ballast::methods()) {
    methods.push_back({{"name", info->name}, {"title", info->title}});
  }
  return {{"version", BALLAST_VERSION},
          {"model", o.name},
          {"positions", c.max_positions},
          {"layers", c.layers},
          {"kv_heads", c.kv_heads},
          {"slots", o.slots},
          {"queue", o.queue},
          {"max_tokens", o.max_tokens},
          {"memory", o.memory},
          {"cache", describe_cache(o.cache)},
          {"sized_method", limits.sized_method},
          {"sampling", service.sampling()},
          {"keeps_contexts", !o.cache_dir.empty()},
          {"library", library.has_value()},
          {"chat_template", !tokenizer.vocabulary().chat_template.empty()},
          {"methods", std::move(methods)}};
}

void Server::Impl::set_up() {
  const auto get_json = [&](const char* pattern, const Json& json) {
    routes.get(pattern, [json](Call& call) { call.reply(json); });
  };
  routes.get("/", [](Call& call) {
    call.response.set_header("Content-Security-Policy",
                             "default-src 'none'; connect-src 'self'; img-src data:; "
                             "style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    call.response.set_header("X-Content-Type-Options", "nosniff");
    call.response.set_content(std::string(page()), "text/html; charset=utf-8");
  });
  routes.get("/health", [](Call& call) {
    call.response.set_content(R"({"status":"ok"})", "application/json");
  });
  routes.get("/metrics", [this](Call& call) {
    const auto [count, bytes] = contexts.counts();
    call.response.set_content(metrics.to_text(memory.taken(), memory.total(), count, bytes),
                              "text/plain; version=0.0.4");
  });
  get_json("/props", props());
  const Json about = {{"id", o.name},
                      {"object", "model"},
                      {"created", 0},
                      {"owned_by", "ballast"},
                      {"max_model_len", model.config().max_positions}};
  get_json("/v1/models", {{"object", "list"}, {"data", Json::array({about})}});
  routes.get("/v1/models/**", [this, about](Call& call) {
    if (call.parts[0] == o.name) return call.reply(about);
    throw ApiError(404, "model_not_found",
                   fmt::format("the model {} is not here", shown(Json(call.parts[0]))), "model");
  });
  const OllamaModel ollama{o.name, model, tokenizer};
  get_json("/api/version", {{"version", BALLAST_VERSION}});
  for (const char* path : {"/api/tags", "/api/ps"}) {
    routes.get(path, [ollama](Call& call) {
      call.reply({{"models", Json::array({ollama.entry()})}});
    });
  }
  routes.post("/api/show", [ollama](Call& call) { call.reply(ollama.details()); });
  add_text_calls(routes, service);
  add_token_calls(routes, service);
  add_context_calls(routes, service);
  add_library_calls(routes, service);
  add_session_calls(routes, service);
}

void Server::fit_weights(Model& model, std::size_t memory, std::size_t slots) {
  if (memory == 0 || Scheduler::own_memory(model, slots) <= memory) return;
  model.limit_weights(memory / 2);
}

Server::Server(const Model& model, const Tokenizer& tokenizer, const ServerOptions& given) {
  ServerOptions options = given;
  if (options.name.empty()) options.name = model.file().path().stem().string();
  if (options.memory == 0) options.memory = available_memory() / 10 * 9;
  require(options.slots > 0, "--slots: at least 1 is needed");
  for (const std::string& key : options.keys) {
    require(key.find_first_not_of(" \t\r\n") != std::string::npos,
            "--api-key: a key is empty, so that any client has it; give one of some characters");
  }
  impl_ = std::make_unique<Impl>(model, tokenizer, options);
}

Server::~Server() { stop(); }
int Server::port() const { return impl_->http->port(); }
const std::string& Server::name() const { return impl_->o.name; }
std::size_t Server::memory() const { return impl_->o.memory; }
std::size_t Server::contexts() const { return impl_->contexts.counts().contexts; }
const std::vector<std::string>& Server::refused() const { return impl_->refused; }
void Server::run() { impl_->http->run(); }
void Server::stop() {
  if (impl_->http) impl_->http->stop();
}

Server::Answer Server::answer(const std::string& path, std::string body) {
  Request request;
  request.method = "POST";
  request.path = path;
  request.body = std::move(body);
  Response response;
  impl_->answer(request, response);
  return {response.status, response.body(), response.usage};
}

}  // namespace ballast::serve
