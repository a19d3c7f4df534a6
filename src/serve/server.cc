#include "serve/server.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include "ballast/version.h"
#include "base/fail.h"
#include "serve/answers.h"
#include "serve/api_error.h"
#include "serve/connection.h"
#include "serve/contexts.h"
#include "serve/embeddings.h"
#include "serve/fields.h"
#include "serve/formats/format.h"
#include "serve/formats/ollama_models.h"
#include "serve/kept.h"
#include "serve/memory.h"
#include "serve/metrics.h"
#include "serve/page.h"
#include "serve/requests.h"
#include "serve/scheduler.h"

namespace ballast::serve {
namespace {

using httplib::Request;
using httplib::Response;
using namespace std::chrono_literals;

/// Seconds for a request's body, and bytes a second that are added to them.
constexpr double kBodySeconds = 20, kBodyRate = 1 << 20;

/// Of one text, however many a model's file says it has room for.
constexpr std::size_t kMostTokens = std::size_t{1} << 20;

/// Bytes that the tokens of a request are turned into: a token of three digits may be a piece of a
/// kilobyte.
constexpr std::size_t kMostText = std::size_t{16} << 20;

/// Whether the texts are equal, in a time that depends on their lengths alone.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned char differs = a.size() != b.size();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return differs == 0;
}

/// The name of a Host header, in lower case, without port and brackets.
std::string host_of(std::string name) {
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (name.starts_with('[')) return name.substr(1, name.find(']') - 1);
  if (std::ranges::count(name, ':') == 1) name.erase(name.find(':'));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

bool is_address(const std::string& host) {
  in6_addr address;
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

std::string key_of(const Request& request) {
  const std::string header = request.get_header_value("Authorization");
  return header.starts_with("Bearer ") ? header.substr(7) : request.get_header_value("X-Api-Key");
}

/// Media types are compared without regard to case (RFC 9110, 8.3.1).
bool is_multipart(std::string_view type) {
  constexpr std::string_view kBegin = "multipart/";
  return std::ranges::equal(type.substr(0, kBegin.size()), kBegin, {}, [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
}

/// Of the answers that clients wait for.
struct Answering {
  std::atomic<bool> stopping = false;
  std::atomic<std::size_t> count = 0;
};

/// Cancels a ticket that nobody waits for any more.
class Waiting {
 public:
  Waiting(std::shared_ptr<Ticket> ticket, Answering& answering)
      : ticket_(std::move(ticket)), answering_(answering) {
    ++answering_.count;
  }
  ~Waiting() {
    ticket_->cancel();
    --answering_.count;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  /// The next event; none if the client has left. Events without text are written nowhere, so that
  /// they tell nothing of the client. An error when the server stops.
  std::optional<Event> next() {
    while (true) {
      if (answering_.stopping) return ApiError(503, "shutting_down", "the server is stopping");
      auto event = ticket_->wait(100ms);
      const auto now = std::chrono::steady_clock::now();
      if (!event || now - asked_ >= 100ms) {
        asked_ = now;
        const Connection* connection = Connection::current();
        if (connection != nullptr && connection->gone()) return std::nullopt;
      }
      if (event) return event;
    }
  }

 private:
  std::shared_ptr<Ticket> ticket_;
  Answering& answering_;
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

/// A client that left needs no answer.
struct ClientLeft {};

}  // namespace

struct Server::Impl {
  Impl(const Model& model, const Tokenizer& tokenizer, const ServerOptions& options)
      : model(model),
        tokenizer(tokenizer.limited(kMostTokens)),
        o(options),
        memory(options.memory),
        contexts(model, memory_for_contexts(), options.cache_dir, refused),
        limits{options.name, options.slots, options.max_tokens, options.cache,
               model.calibration() != nullptr ? "calibrated" : "replay"},
        scheduler(model, this->tokenizer, {options.slots, options.queue, options.patience}, memory,
                  contexts, metrics) {}

  Memory& memory_for_contexts() {
    const std::size_t own = Scheduler::own_memory(model, o.slots);
    require(
        memory.take(own, base), ErrorCode::out_of_memory,
        "--memory of {} bytes: the model and {} slots alone take {}; give more, or fewer --slots",
        o.memory, o.slots, own);
    return memory;
  }

  void set_up();
  bool knows_host(const Request& request) const;
  bool allowed(const Request& request, Response& response);
  void answer_error(const Request& request, Response& response, const ApiError& error);
  TextRequest parse(const Format& format);
  void text(const Request& request, Response& response, Api api);
  /// `waiting`: for the prompts of the request.
  void stream(std::shared_ptr<Format> format, AnswerWriter answer, std::deque<Waiting> waiting,
              Response& response);
  void make_context(const Request& request, Response& response);
  void embed(const Request& request, Response& response);
  Json props() const;

  /// Runs a handler and writes what it throws as a response.
  template <typename Handler>
  httplib::Server::Handler handle(Handler handler) {
    return [this, handler](const Request& request, Response& response) {
      try {
        handler(request, response);
      } catch (const ApiError& error) {
        answer_error(request, response, error);
      } catch (const Error& error) {
        answer_error(request, response, ApiError(400, "invalid_value", error.what()));
      } catch (const ClientLeft&) {
        Connection::current()->close_after();
        response.status = 499;
      } catch (const std::bad_alloc&) {
        answer_error(request, response, ApiError(503, "insufficient_memory", "out of memory"));
      } catch (const std::exception& error) {
        answer_error(request, response, ApiError(500, "internal_error", error.what()));
      }
    };
  }

  const Model& model;
  const Tokenizer tokenizer;
  ServerOptions o;
  std::vector<std::string> refused;
  Memory memory;
  Lease base;
  Metrics metrics;
  Contexts contexts;
  RequestLimits limits;
  Answering answering;
  HttpServer http;
  Scheduler scheduler;
  int port = 0;
  std::atomic<bool> started = false, stopped = false, ended = false;  ///< run(), stop()
};

void Server::Impl::answer_error(const Request& request, Response& response, const ApiError& error) {
  response.status = error.status();
  if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "2");
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(line(Format::error(request.path, error)), "application/json");
}

/// Whether a request may name this host. A page whose name was made to mean this machine names
/// itself; numbers mean what they say, and with a key the page would need it.
bool Server::Impl::knows_host(const Request& request) const {
  if (!o.keys.empty() || !request.has_header("Host")) return true;
  const std::string host = host_of(request.get_header_value("Host"));
  if (is_address(host) || host == "localhost" || host.ends_with(".localhost")) return true;
  if (host == host_of(o.host)) return true;
  char own[256] = "";
  if (::gethostname(own, sizeof own - 1) == 0) {
    const std::string name = host_of(own);
    if (host == name || host == name + ".local") return true;
  }
  return std::ranges::any_of(o.origins, [&](const std::string& origin) {
    return origin == "*" ||
           host_of(origin.substr(std::min(origin.size(), origin.find("//") + 2))) == host;
  });
}

bool Server::Impl::allowed(const Request& request, Response& response) {
  if (!knows_host(request)) {
    const std::string host = to_utf8(request.get_header_value("Host"));
    answer_error(
        request, response,
        ApiError(403, "host_not_allowed",
                 fmt::format("the host {} is none of this server's; use its address or "
                             "localhost, or start it with --api-key, or with --cors-origin "
                             "http://HOST",
                             shown(Json(host)))));
    return false;
  }
  // A browser says which page calls; other clients send no origin.
  const std::string origin = request.get_header_value("Origin");
  if (!origin.empty()) {
    const std::string host = request.get_header_value("Host");
    const bool own = origin == "http://" + host || origin == "https://" + host;
    const bool any = std::ranges::count(o.origins, "*") > 0;
    if (any || std::ranges::count(o.origins, origin) > 0) {
      response.set_header("Access-Control-Allow-Origin", any ? "*" : origin);
      response.set_header("Vary", "Origin");
      response.set_header("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key");
      response.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    } else if (!own) {
      answer_error(request, response,
                   ApiError(403, "origin_not_allowed",
                            fmt::format("pages of {} may not call this server; start it "
                                        "with --cors-origin",
                                        to_utf8(origin))));
      return false;
    }
  }
  if (request.method == "OPTIONS") {
    response.status = 204;
    return false;
  }
  const bool open = request.path == "/" || request.path == "/health";
  if (open || o.keys.empty()) return true;
  const std::string key = key_of(request);
  bool known = false;
  for (const std::string& one : o.keys) known |= same_secret(one, key);
  if (known) return true;
  answer_error(request, response,
               ApiError(401, "invalid_api_key",
                        key.empty() ? "an API key is needed: Authorization: Bearer KEY"
                                    : "the API key is not one of this server"));
  return false;
}

void Server::Impl::stream(std::shared_ptr<Format> format, AnswerWriter answer,
                          std::deque<Waiting> waiting, Response& response) {
  struct State {
    AnswerWriter answer;
    std::deque<Waiting> waiting;  ///< whose events are sent one prompt after the other
    std::size_t prompt = 0;
  };
  auto state = std::make_shared<State>(State{std::move(answer), std::move(waiting)});
  response.set_header("Cache-Control", "no-store");
  response.set_chunked_content_provider(
      format->stream_type(), [this, state, format](std::size_t, httplib::DataSink& sink) {
        AnswerWriter& answer = state->answer;
        const auto send = [&](const std::string& text) {
          return text.empty() || sink.write(text.data(), text.size());
        };
        const auto send_all = [&](const std::vector<Json>& chunks) {
          return std::ranges::all_of(chunks, [&](const Json& chunk) {
            return send(format->chunk(chunk, answer.usage()));
          });
        };
        const std::optional<Event> event = state->waiting[state->prompt].next();
        if (!event) return false;
        if (const auto* read = std::get_if<PromptRead>(&*event)) {
          return send_all(answer.add(*read, state->prompt));
        }
        if (const auto* piece = std::get_if<Piece>(&*event)) {
          return send_all(answer.add(*piece, state->prompt));
        }
        if (const auto* error = std::get_if<ApiError>(&*event)) {
          send(format->fail(*error));
          Connection::current()->close_after();
          sink.done();
          return true;
        }
        if (const auto* ended = std::get_if<Ended>(&*event)) answer.add(*ended);
        if (++state->prompt < state->waiting.size()) return true;
        Connection::current()->usage = answer.usage();
        if (!send(format->end(answer.usage()))) return false;
        sink.done();
        return true;
      });
}

TextRequest Server::Impl::parse(const Format& format) {
  return format.is_chat() ? parse_chat(format.body(), limits, tokenizer, contexts)
                          : parse_completion(format.body(), limits, tokenizer, contexts);
}

void Server::Impl::text(const Request& request, Response& response, Api api) {
  std::shared_ptr<Format> format = Format::of(api, parse_object(request.body));
  TextRequest parsed = parse(*format);
  parsed.job.client = o.keys.empty() ? request.remote_addr : key_of(request);
  std::deque<Waiting> waiting;  // what was submitted is cancelled if the next is refused
  for (std::size_t i = 0; i < parsed.prompt_count(); ++i) {
    waiting.emplace_back(scheduler.submit(parsed.job_of(i)), answering);
  }
  const bool streams = parsed.stream;
  AnswerWriter answer(std::move(parsed), o.name, tokenizer);
  if (streams) return stream(format, std::move(answer), std::move(waiting), response);
  for (std::size_t i = 0; i < waiting.size();) {
    const std::optional<Event> event = waiting[i].next();
    if (!event) throw ClientLeft();
    if (const auto* error = std::get_if<ApiError>(&*event)) throw ApiError(*error);
    if (const auto* read = std::get_if<PromptRead>(&*event)) answer.add(*read, i);
    if (const auto* piece = std::get_if<Piece>(&*event)) answer.add(*piece, i);
    if (const auto* ended = std::get_if<Ended>(&*event)) {
      answer.add(*ended);
      ++i;
    }
  }
  Connection::current()->usage = answer.usage();
  response.set_content(line(format->whole(answer.whole(), answer.usage())), "application/json");
}

void Server::Impl::make_context(const Request& request, Response& response) {
  ContextRequest parsed = parse_context(parse_object(request.body), limits, tokenizer);
  parsed.job.client = o.keys.empty() ? request.remote_addr : key_of(request);
  parsed.info.cache = describe_cache(parsed.job.cache);
  Waiting waiting(scheduler.submit(std::move(parsed.job)), answering);
  while (true) {
    std::optional<Event> event = waiting.next();
    if (!event) throw ClientLeft();
    if (const auto* error = std::get_if<ApiError>(&*event)) throw ApiError(*error);
    if (const auto* read = std::get_if<PromptRead>(&*event)) {
      parsed.info.bytes = read->cache_bytes;
      parsed.info.read_seconds = read->read_seconds;
      parsed.info.compress_seconds = read->compress_seconds;
    }
    if (auto* context = std::get_if<ContextRead>(&*event)) {
      parsed.info.exact_bytes = model.exact_bytes(*context->cache);
      const ContextInfo info = contexts.add(std::move(parsed.info), std::move(*context->cache),
                                            std::move(context->lease));
      response.set_content(line(info.to_json()), "application/json");
      return;
    }
  }
}

void Server::Impl::embed(const Request& request, Response& response) {
  EmbeddingRequest parsed =
      parse_embeddings(parse_object(request.body), limits, tokenizer, model.config().width);
  Json data = Json::array();
  std::size_t tokens = 0;
  for (Job& job : parsed.jobs) {
    tokens += job.prompt.size();
    job.client = o.keys.empty() ? request.remote_addr : key_of(request);
    Waiting waiting(scheduler.submit(std::move(job)), answering);
    for (bool over = false; !over;) {
      const std::optional<Event> event = waiting.next();
      if (!event) throw ClientLeft();
      if (const auto* error = std::get_if<ApiError>(&*event)) throw ApiError(*error);
      const auto* made = std::get_if<Embedded>(&*event);
      over = made != nullptr;
      if (over) data.push_back(embedding_json(made->embedding, data.size(), parsed.base64));
    }
  }
  Connection::current()->usage.prompt = tokens;
  Json answer = {{"model", o.name}};
  if (request.path == "/api/embed") {
    answer["embeddings"] = Json::array();
    for (Json& one : data) answer["embeddings"].push_back(std::move(one["embedding"]));
    answer["prompt_eval_count"] = tokens;
  } else {
    answer["object"] = "list";
    answer["data"] = std::move(data);
    answer["usage"] = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  }
  response.set_content(line(answer), "application/json");
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
          {"keeps_contexts", !o.cache_dir.empty()},
          {"chat_template", !tokenizer.vocabulary().chat_template.empty()},
          {"methods", std::move(methods)}};
}

void Server::Impl::set_up() {
  // A thread for each connection: more than answers and waiting requests, so that /health answers.
  const std::size_t threads = o.slots + o.queue + 32;
  http.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  // httplib's default, SO_REUSEPORT, lets two servers share a port in silence.
  http.set_socket_options([](int socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  http.set_payload_max_length(o.max_body);
  http.set_tcp_nodelay(true);
  http.set_pre_routing_handler([this](const Request& request, Response& response) {
    Connection* connection = Connection::current();
    connection->expect(kBodySeconds + static_cast<double>(o.max_body) / kBodyRate, o.max_body);
    if (request.has_header("Content-Encoding")) {  // a few bytes could become gigabytes
      answer_error(
          request, response,
          ApiError(415, "unsupported_encoding", "send the body without a Content-Encoding"));
      return httplib::Server::HandlerResponse::Handled;
    }
    if (request.is_multipart_form_data() ||
        is_multipart(request.get_header_value("Content-Type"))) {
      // The library reads the headers of its parts with expressions that take quadratic time.
      answer_error(
          request, response,
          ApiError(415, "unsupported_type", "send the body as application/json, not in parts"));
      return httplib::Server::HandlerResponse::Handled;
    }
    return allowed(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                      : httplib::Server::HandlerResponse::Handled;
  });
  http.set_error_handler([this](const Request& request, Response& response) {
    // What is left of the request would be taken for the next one.
    Connection::current()->close_after();
    response.set_header("Connection", "close");
    if (!response.body.empty()) return;
    const std::string what = to_utf8(request.method + " " + request.path);
    if (response.status == 404) {
      answer_error(request, response, ApiError(404, "unknown_url", "there is no " + what));
    } else if (response.status == 413) {
      answer_error(request, response,
                   ApiError(413, "request_too_large",
                            fmt::format("the body is larger than {} bytes", o.max_body)));
    } else {
      answer_error(request, response,
                   ApiError(response.status, "invalid_request", "the request is not valid HTTP"));
    }
  });
  http.set_logger([this](const Request& request, const Response& response) {
    metrics.count_response(response.status);
    const Connection* connection = Connection::current();
    const bool watched = request.path == "/health" || request.path == "/metrics";
    if (!o.log || connection == nullptr || (watched && response.status == 200)) return;
    o.log({connection->since_request.seconds(), request.remote_addr, request.method, request.path,
           response.status, connection->usage});
  });

  http.Get("/", handle([](const Request&, Response& response) {
             response.set_header("Content-Security-Policy",
                                 "default-src 'none'; connect-src 'self'; img-src data:; "
                                 "style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                                 "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
             response.set_header("X-Content-Type-Options", "nosniff");
             response.set_content(std::string(page()), "text/html; charset=utf-8");
           }));
  http.Get("/health", handle([](const Request&, Response& response) {
             response.set_content(R"({"status":"ok"})", "application/json");
           }));
  http.Get("/metrics", handle([this](const Request&, Response& response) {
             response.set_content(metrics.to_text(memory.taken(), memory.total(), contexts.size(),
                                                  contexts.loaded_bytes()),
                                  "text/plain; version=0.0.4");
           }));
  http.Get("/props", handle([this](const Request&, Response& response) {
             response.set_content(line(props()), "application/json");
           }));
  const Json about = {{"id", o.name},
                      {"object", "model"},
                      {"created", 0},
                      {"owned_by", "ballast"},
                      {"max_model_len", model.config().max_positions}};
  http.Get("/v1/models", handle([about](const Request&, Response& response) {
             response.set_content(line({{"object", "list"}, {"data", Json::array({about})}}),
                                  "application/json");
           }));
  http.Get("/v1/models/(.+)", handle([this, about](const Request& request, Response& response) {
             if (request.matches[1].str() != o.name) {
               throw ApiError(
                   404, "model_not_found",
                   fmt::format("the model {} is not here", shown(Json(request.matches[1].str()))),
                   "model");
             }
             response.set_content(line(about), "application/json");
           }));
  for (const auto& [path, api] : std::initializer_list<std::pair<const char*, Api>>{
           {"/v1/chat/completions", Api::chat},
           {"/v1/completions", Api::completion},
           {"/v1/responses", Api::responses},
           {"/v1/messages", Api::anthropic},
           {"/api/chat", Api::ollama_chat},
           {"/api/generate", Api::ollama_generate}}) {
    http.Post(path, handle([this, api = api](const Request& request, Response& response) {
                text(request, response, api);
              }));
  }
  http.Post("/v1/messages/count_tokens", handle([this](const Request& request, Response& response) {
              const auto format = Format::of(Api::anthropic, parse_object(request.body));
              const TextRequest parsed = parse(*format);
              const Job& job = parsed.job;
              const std::size_t before = job.context ? job.context->info.tokens : 0;
              response.set_content(line({{"input_tokens", before + job.prompt.size()}}),
                                   "application/json");
            }));
  const OllamaModel ollama{o.name, model, tokenizer};
  http.Get("/api/version", handle([](const Request&, Response& response) {
             response.set_content(line({{"version", BALLAST_VERSION}}), "application/json");
           }));
  http.Get(
      "/api/tags", handle([ollama](const Request&, Response& response) {
        response.set_content(line({{"models", Json::array({ollama.entry()})}}), "application/json");
      }));
  http.Get(
      "/api/ps", handle([ollama](const Request&, Response& response) {
        response.set_content(line({{"models", Json::array({ollama.entry()})}}), "application/json");
      }));
  http.Post("/api/show", handle([ollama](const Request&, Response& response) {
              response.set_content(line(ollama.details()), "application/json");
            }));
  for (const char* path : {"/v1/embeddings", "/api/embed"}) {
    http.Post(path, handle([this](const Request& request, Response& response) {
                embed(request, response);
              }));
  }
  http.Post("/tokenize", handle([this](const Request& request, Response& response) {
              const Json body = parse_object(request.body);
              Fields f(body);
              const auto content = f.text("content");
              if (!content) refuse("content", "content: the text is missing");
              const EncodeOptions options{.add_special = f.flag("add_special", false),
                                          .parse_special = f.flag("parse_special", true)};
              f.end();
              response.set_content(line({{"tokens", tokenizer.encode(*content, options)}}),
                                   "application/json");
            }));
  http.Post("/detokenize", handle([this](const Request& request, Response& response) {
              const Json body = parse_object(request.body);
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
              Json answer;
              answer["content"] = to_valid_utf8(text);
              response.set_content(line(answer), "application/json");
            }));

  http.Post("/v1/contexts", handle([this](const Request& request, Response& response) {
              make_context(request, response);
            }));
  http.Get("/v1/contexts", handle([this](const Request&, Response& response) {
             Json list = Json::array();
             for (const ContextInfo& info : contexts.list()) list.push_back(info.to_json());
             response.set_content(line({{"object", "list"}, {"data", std::move(list)}}),
                                  "application/json");
           }));
  auto missing = [](const std::string& id) {
    return ApiError(404, "context_not_found",
                    fmt::format("there is no context {}", shown(Json(id))));
  };
  http.Get("/v1/contexts/([^/]+)",
           handle([this, missing](const Request& request, Response& response) {
             const auto info = contexts.info(request.matches[1]);
             if (!info) throw missing(request.matches[1]);
             response.set_content(line(info->to_json()), "application/json");
           }));
  http.Get("/v1/contexts/([^/]+)/kept",
           handle([this, missing](const Request& request, Response& response) {
             const auto context = contexts.get(request.matches[1]);
             if (!context) throw missing(request.matches[1]);
             response.set_content(line(kept_of_all(*context, tokenizer)), "application/json");
           }));
  http.Get("/v1/contexts/([^/]+)/kept/(\\d{1,6})/(\\d{1,6})",
           handle([this, missing](const Request& request, Response& response) {
             const auto context = contexts.get(request.matches[1]);
             if (!context) throw missing(request.matches[1]);
             response.set_content(line(kept_of_head(*context, std::stoul(request.matches[2]),
                                                    std::stoul(request.matches[3]))),
                                  "application/json");
           }));
  http.Delete(
      "/v1/contexts/([^/]+)", handle([this, missing](const Request& request, Response& response) {
        if (!contexts.remove(request.matches[1])) throw missing(request.matches[1]);
        response.set_content(
            line({{"id", request.matches[1].str()}, {"object", "context"}, {"deleted", true}}),
            "application/json");
      }));
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
  impl_->set_up();
  impl_->port = options.port;
  bool bound = true;
  if (options.port == 0) {
    impl_->port = impl_->http.bind_to_any_port(options.host);
    bound = impl_->port > 0;
  } else {
    bound = impl_->http.bind_to_port(options.host, options.port);
  }
  require(bound, ErrorCode::io,
          "cannot listen on {} port {}: the port is taken or the address is not of this machine; "
          "choose others with --port and --host",
          options.host, options.port);
  impl_->http.allow_waiting(128);
}

Server::~Server() { stop(); }
int Server::port() const { return impl_->port; }
const std::string& Server::name() const { return impl_->o.name; }
std::size_t Server::memory() const { return impl_->o.memory; }
std::size_t Server::contexts() const { return impl_->contexts.size(); }
const std::vector<std::string>& Server::refused() const { return impl_->refused; }
void Server::run() {
  impl_->started = true;
  const bool listened = impl_->stopped || impl_->http.listen_after_bind();
  impl_->ended = true;
  require(listened, ErrorCode::io, "cannot go on listening on port {}", impl_->port);
}
void Server::stop() {
  impl_->stopped = true;
  // httplib cuts what is under way.
  impl_->answering.stopping = true;
  for (int i = 0; i < 200 && impl_->answering.count > 0; ++i) std::this_thread::sleep_for(10ms);
  // httplib's stop() does nothing before it listens.
  while (impl_->started && !impl_->ended && !impl_->http.is_running()) {
    std::this_thread::sleep_for(1ms);
  }
  impl_->http.stop();
}

}  // namespace ballast::serve
