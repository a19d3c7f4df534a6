#include "serve/server.h"

#include <arpa/inet.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <deque>
#include <thread>

#include "ballast/engine/question_form.h"
#include "ballast/version.h"
#include "base/fail.h"
#include "base/interruption.h"
#include "cache/cache_size.h"
#include "model/suggested_sampling.h"
#include "report/gauge_json.h"
#include "serve/answers.h"
#include "serve/embeddings.h"
#include "serve/formats/format.h"
#include "serve/formats/ollama_models.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/http/gate.h"
#include "serve/http/http.h"
#include "serve/http/memory.h"
#include "serve/http/metrics.h"
#include "serve/library.h"
#include "serve/page.h"
#include "serve/requests.h"
#include "serve/scheduling/scheduler.h"
#include "serve/session_calls.h"
#include "serve/texts/contexts.h"
#include "serve/texts/kept.h"
#include "serve/texts/sessions.h"

namespace ballast::serve {
namespace {

using namespace std::chrono_literals;

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

/// Whether a text begins with `word`, which is in small letters, whatever the case of the text.
bool begins(std::string_view text, std::string_view word) {
  return std::ranges::equal(text.substr(0, word.size()), word, {}, [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
}

/// Blanks around a value of a header are none of it (RFC 9110, 5.5).
std::string without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") + 1 - begin));
}

/// Names of schemes are compared without regard to case (RFC 9110, 11.1).
std::string key_of(const Request& request) {
  const std::string header = without_blanks(request.header("Authorization"));
  constexpr std::string_view kScheme = "bearer ";
  if (!begins(header, kScheme)) return without_blanks(request.header("X-Api-Key"));
  return without_blanks(std::string_view(header).substr(kScheme.size()));
}

/// Media types are compared without regard to case (RFC 9110, 8.3.1).
bool is_multipart(std::string_view type) { return begins(type, "multipart/"); }

/// Whether a header may be sent back: names of headers, one behind the other.
bool is_list_of_names(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_., ").find(c) != std::string_view::npos;
  });
}

/// Whether a path is of a pattern, in which * stands for what is between two slashes and ** for all
/// that is left. `parts`: what they stand for.
bool fits(std::string_view pattern, std::string_view path, std::vector<std::string>& parts) {
  parts.clear();
  while (!pattern.empty()) {
    if (path.empty()) return false;
    if (pattern == "**") {
      parts.emplace_back(path);
      return true;
    }
    if (pattern[0] == '*') {
      parts.emplace_back(path.substr(0, path.find('/')));
      if (parts.back().empty()) return false;
      path.remove_prefix(parts.back().size());
    } else {
      if (pattern[0] != path[0]) return false;
      path.remove_prefix(1);
    }
    pattern.remove_prefix(1);
  }
  return path.empty();
}

ApiError no_context(const std::string& id) {
  return ApiError(404, "context_not_found", fmt::format("there is no context {}", shown(Json(id))));
}

ApiError no_library() {
  return ApiError(404, "library_not_found", "this server has no library; start it with --library");
}

ApiError no_document(const std::string& id) {
  return ApiError(404, "document_not_found",
                  fmt::format("the library has no document {}", shown(Json(id))));
}

/// A number in a path.
std::size_t number_of(const std::string& part) {
  std::size_t out = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), out);
  if (error == std::errc() && end == part.data() + part.size()) return out;
  throw ApiError(404, "unknown_url", fmt::format("{} is not a number", shown(Json(part))));
}

/// Bodies above it are large: a few at once are read as texts, beside those that are not.
constexpr std::size_t kLargeBody = 256 << 10;
/// Answers up to it are not counted as memory.
constexpr std::size_t kSmallAnswer = 64 << 10;
/// Of an answer that its client has not taken: the model then waits, for so long at most.
constexpr std::size_t kMostUnsent = 1 << 20;
constexpr auto kUnsentTime = 2min;
/// How long a body waits for memory to be read in.
constexpr auto kMemoryTime = 2s;

/// Memory that a body takes while it is read: as JSON, as text of a template, as words and tokens.
std::size_t reading_memory(std::size_t body) {
  constexpr std::size_t kWords = 96 << 20;  // of the most tokens that a text may have
  return 4 * body + std::min(16 * body, kWords);
}

/// What a handler has while it works on a body.
struct TextWork {
  Gate::Place place;
  Lease memory;
};

/// A request and where its answer goes.
struct Call {
  Request& request;
  Response& response;
  TextWork work = {};
  std::vector<std::string> parts = {};  ///< of the path, where the route's pattern has stars

  /// The body as an object, once.
  Json take_object() {
    const std::string body = std::move(request.body);
    return parse_object(body);
  }
  /// The rest waits for the model.
  void end_work() {
    work = {};
    request.memory.shrink(0);
    request.share.shrink(0);
  }
  void reply(const Json& json) { response.set_content(line(json), "application/json"); }
};

ApiError shutting_down() { return {503, "shutting_down", "the server is stopping"}; }

/// Cancels a ticket that nobody waits for any more.
class Waiting {
 public:
  /// `held`: how many answers wait for their readers, at most `most_held`.
  Waiting(std::shared_ptr<Ticket> ticket, const Response& response, std::atomic<std::size_t>& held,
          std::size_t most_held)
      : ticket_(std::move(ticket)), response_(response), held_(held), most_held_(most_held) {}
  ~Waiting() { ticket_->cancel(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  /// The next event; an error when the server stops. Throws Interrupted.
  Event next() {
    keep_up();
    while (true) {
      if (response_.stopping()) return shutting_down();
      auto event = ticket_->wait(100ms);
      try {
        Interruption::check();
      } catch (const Interrupted&) {
        if (response_.stopping()) continue;  // which the client is told
        throw;
      }
      if (event) return std::move(*event);
    }
  }

 private:
  struct Held {
    std::atomic<std::size_t>& count;
    const std::size_t number = ++count;
    explicit Held(std::atomic<std::size_t>& of) : count(of) {}
    ~Held() { --count; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
  };
  /// Has the model wait while the client has much to read.
  void keep_up() {
    if (response_.unsent() <= kMostUnsent) return;
    // Each has a thread: where all clients read slowly, they are left.
    const Held held(held_);
    if (held.number > most_held_) throw Interrupted();
    ticket_->hold(true);
    const auto end = std::chrono::steady_clock::now() + kUnsentTime;
    while (response_.unsent() > kMostUnsent / 2 && !response_.stopping()) {
      Interruption::check();
      if (std::chrono::steady_clock::now() > end) throw Interrupted();
      std::this_thread::sleep_for(20ms);
    }
    ticket_->hold(false);
  }

  std::shared_ptr<Ticket> ticket_;
  const Response& response_;
  std::atomic<std::size_t>& held_;
  std::size_t most_held_;
};

}  // namespace

struct Server::Impl {
  Impl(const Model& model, const Tokenizer& tokenizer, const ServerOptions& options)
      : model(model),
        tokenizer(tokenizer.limited(kMostTokens)),
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
                      .admit = [this](const Request& request) { return refusal(request); },
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

  struct Route {
    std::string method, pattern;
    std::function<void(Call&)> handler;
  };

  void set_up();
  void set_up_sessions();
  bool knows_host(const Request& request) const;
  bool names_origin(std::string_view origin) const {
    return std::ranges::count(o.origins, "*") > 0 || std::ranges::count(o.origins, origin) > 0;
  }
  std::string client_of(const Request& request) const {
    return o.keys.empty() ? request.client : key_of(request);
  }
  /// Of what a request makes.
  std::string owner_of(const Request& request) const {
    return contexts.owners().of(key_of(request));
  }
  std::optional<ApiError> refusal(const Request& request) const;
  /// What a browser asks before its page may call, and read the answer.
  void allow_origin(const Request& request, Response& response) const;
  void answer(Request& request, Response& response);
  void route(Request& request, Response& response);
  /// Takes memory for an answer that waits whole for its client.
  void count_answer(Request& request, Response& response);
  static void answer_error(const Request& request, Response& response, const ApiError& error);
  /// Waits until a body may be read.
  TextWork begin_work(const Request& request);
  TextWork begin_work(Gate& gate, const Request& request, std::size_t bytes);
  TextRequest parse(const Format& format, const std::string& owner);
  void text(Call& call, Api api);
  /// The answers of sections, each asked alone, in their order.
  std::vector<Tried> try_each(const TextRequest& parsed,
                              std::span<const std::shared_ptr<const Context>> asked,
                              const Response& response);
  /// Leaves the section that a library answers from in the job, or two where none suffices alone.
  /// False: nothing supports an answer.
  bool choose_section(TextRequest& parsed, const Response& response);
  void count_tokens(Call& call);
  void embed(Call& call);
  void tokenize(Call& call) const;
  void detokenize(Call& call) const;
  void make_context(Call& call);
  void add_document(Call& call);
  std::shared_ptr<const Context> context_of(const Call& call);
  Json props() const;
  /// What holds for requests that do not say, as decimal numbers.
  Json sampling() const {
    const auto shown = [](float x) { return std::stod(fmt::format("{}", x)); };
    return {{"temperature", shown(limits.sampling.temperature)},
            {"top_p", shown(limits.sampling.top_p)}};
  }

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
  std::vector<Route> routes;
  std::atomic<std::size_t> held = 0;  ///< answers that wait for their readers
  Gate small_bodies{4}, large_bodies{2}, documents{2};
  Scheduler scheduler;
  std::optional<HttpServer> http;
};

void Server::Impl::answer(Request& request, Response& response) {
  // A client may close its side once it has asked: what is soon done is answered.
  constexpr double kSoon = 0.1;  // seconds
  const Interruption interruption([&] {
    return !response.stopping() && (request.since.seconds() < kSoon || !response.gone());
  });
  try {
    allow_origin(request, response);  // a page may read errors, too
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
  if (request.method == "POST") call.work = begin_work(request);
  for (const Route& one : routes) {
    if (one.method == request.method && fits(one.pattern, request.path, call.parts)) {
      return one.handler(call);
    }
  }
  throw ApiError(404, "unknown_url", "there is no " + to_utf8(request.method + " " + request.path));
}

void Server::Impl::answer_error(const Request& request, Response& response, const ApiError& error) {
  response.status = error.status();
  if (response.begun()) return response.abandon();
  if (error.status() == 429 || error.status() == 503) response.set_header("Retry-After", "2");
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(line(Format::error(request.path, error)), "application/json");
}

/// Whether a request may name this host. A page whose name was made to mean this machine names
/// itself; numbers mean what they say, and with a key the page would need it.
bool Server::Impl::knows_host(const Request& request) const {
  if (!o.keys.empty() || request.find("Host") == nullptr) return true;
  const std::string host = host_of(request.header("Host"));
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

/// Why a request is refused, whatever its body is.
std::optional<ApiError> Server::Impl::refusal(const Request& request) const {
  const std::string* encoding = request.find("Content-Encoding");
  if (encoding != nullptr &&
      ::strcasecmp(encoding->c_str(), "identity") != 0) {  // a few bytes could become gigabytes
    return ApiError(415, "unsupported_encoding", "send the body without a Content-Encoding");
  }
  if (is_multipart(request.header("Content-Type"))) {
    return ApiError(415, "unsupported_type", "send the body as application/json, not in parts");
  }
  if (!knows_host(request)) {
    return ApiError(403, "host_not_allowed",
                    fmt::format("this server does not have the name {}; use its address or "
                                "localhost, or start it with --api-key, or with --cors-origin "
                                "http://HOST",
                                shown(Json(to_utf8(request.header("Host"))))));
  }
  // A browser says which page calls; other clients send no origin.
  const std::string origin = request.header("Origin"), host = request.header("Host");
  const bool own = origin.empty() || origin == "http://" + host || origin == "https://" + host;
  if (!own && !names_origin(origin)) {
    return ApiError(403, "origin_not_allowed",
                    fmt::format("pages of {} may not call this server; start it with --cors-origin",
                                to_utf8(origin)));
  }
  const bool open = request.path == "/" || request.path == "/health" || request.method == "OPTIONS";
  if (open || o.keys.empty()) return std::nullopt;
  const std::string key = key_of(request);
  bool known = false;
  for (const std::string& one : o.keys) known |= same_secret(one, key);
  if (known) return std::nullopt;
  return ApiError(401, "invalid_api_key",
                  key.empty() ? "an API key is needed: Authorization: Bearer KEY"
                              : "the API key is not one of this server");
}

void Server::Impl::allow_origin(const Request& request, Response& response) const {
  const std::string origin = request.header("Origin");
  if (origin.empty() || !names_origin(origin)) return;
  response.set_header("Access-Control-Allow-Origin", names_origin("*") ? "*" : origin);
  response.set_header("Vary", "Origin, Access-Control-Request-Headers");
  response.set_header("Access-Control-Expose-Headers", "Retry-After");
  if (request.method != "OPTIONS") return;
  response.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  response.set_header("Access-Control-Max-Age", "600");
  // Each client library has headers of its own; none of them changes what a page may do.
  const std::string headers = request.header("Access-Control-Request-Headers");
  response.set_header(
      "Access-Control-Allow-Headers",
      is_list_of_names(headers) ? headers : "Authorization, Content-Type, X-Api-Key");
}

TextWork Server::Impl::begin_work(const Request& request) {
  const std::size_t body = request.body.size();
  const bool reads = request.path == "/v1/contexts" || request.path == "/v1/library";
  Gate& gate = reads ? documents : body > kLargeBody ? large_bodies : small_bodies;
  return begin_work(gate, request, reading_memory(body));
}

TextWork Server::Impl::begin_work(Gate& gate, const Request& request, std::size_t bytes) {
  const std::size_t ever = memory.total() - base.bytes();
  if (bytes > ever) {
    throw ApiError(400, "insufficient_memory",
                   fmt::format("{} bytes of memory are needed for the text of this request, "
                               "--memory leaves {}; give a shorter one",
                               bytes, ever));
  }
  TextWork out;
  out.place = gate.enter(client_of(request));
  Interruption::check();
  const auto end = std::chrono::steady_clock::now() + kMemoryTime;
  while (!memory.take(bytes, out.memory)) {
    memory.want(bytes);
    Interruption::check();
    if (std::chrono::steady_clock::now() > end) {
      throw ApiError(503, "insufficient_memory",
                     fmt::format("{} bytes of memory are needed for the text of this request, and "
                                 "are not free; try again later",
                                 bytes));
    }
    std::this_thread::sleep_for(20ms);
  }
  return out;
}

TextRequest Server::Impl::parse(const Format& format, const std::string& owner) {
  return format.is_chat() ? parse_chat(format.body(), limits, tokenizer, contexts, owner)
                          : parse_completion(format.body(), limits, tokenizer, contexts, owner);
}

std::vector<Tried> Server::Impl::try_each(const TextRequest& parsed,
                                          std::span<const std::shared_ptr<const Context>> asked,
                                          const Response& response) {
  std::deque<Waiting> waiting;
  for (const std::shared_ptr<const Context>& one : asked) {
    waiting.emplace_back(scheduler.submit(trial_of(parsed.job, one)), response, held, o.slots);
  }
  std::vector<Tried> out(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    while (!add_to(out[i], waiting[i].next())) {
    }
  }
  return out;
}

bool Server::Impl::choose_section(TextRequest& parsed, const Response& response) {
  std::vector<std::shared_ptr<const Context>> asked;
  for (const Candidate& one : parsed.candidates) asked.push_back(one.context);
  if (asked.empty()) return false;
  std::vector<AnswerEvidence> evidence;
  const auto ask = [&](std::size_t count) {  // more of them
    const auto some = std::span(asked).subspan(evidence.size(), count);
    for (const Tried& one : try_each(parsed, some, response)) {
      evidence.push_back(one.of({parsed.candidates[evidence.size()].found}, parsed.question));
    }
  };
  ask(1);           // which most often suffices
  double next = 0;  // the best score of the others
  for (const Candidate& one : std::span(parsed.candidates).subspan(1)) {
    next = std::max(next, one.found.score);
  }
  if (asked.size() > 1 && may_be_beaten(evidence, next)) ask(asked.size() - 1);
  const std::size_t best = best_answer(evidence), second = best == 0 ? 1 : 0;
  parsed.sections = {parsed.candidates[best].found};
  parsed.job.context = asked[best];
  if (is_supported(evidence[best])) return true;
  if (asked.size() < 2) return false;
  parsed.sections.push_back(parsed.candidates[second].found);
  parsed.job.context =
      joined_context(std::vector{asked[second], asked[best]}, parsed.chat, tokenizer);
  parsed.job.cite = false;
  const Tried joined = try_each(parsed, std::span(&parsed.job.context, 1), response)[0];
  return is_supported(joined.of(parsed.sections, parsed.question));
}

void Server::Impl::text(Call& call, Api api) {
  Response& response = call.response;
  const std::unique_ptr<Format> format = Format::of(api, call.take_object(), sampling());
  if (const Json done = format->answer_without_model(o.name); !done.is_null()) {
    return call.reply(done);
  }
  TextRequest parsed = parse(*format, owner_of(call.request));
  parsed.job.client = client_of(call.request);
  const bool answers = !parsed.asks_library || choose_section(parsed, response);
  std::deque<Waiting> waiting;  // what was submitted is cancelled if the next is refused
  for (std::size_t i = 0; answers && i < parsed.prompt_count(); ++i) {
    waiting.emplace_back(scheduler.submit(parsed.job_of(i)), response, held, o.slots);
  }
  format->drop_body();
  call.end_work();
  const bool streams = parsed.stream;
  AnswerWriter answer(std::move(parsed), o.name, tokenizer);
  if (streams) {
    response.set_header("Cache-Control", "no-store");
    response.begin(format->stream_type());
  }
  const auto send = [&](const std::vector<Json>& chunks) {
    for (const Json& chunk : chunks) response.write(format->chunk(chunk, answer.usage()));
  };
  if (!answers) send(answer.add_not_found());
  for (std::size_t i = 0; i < waiting.size();) {  // one prompt after the other
    const Event event = waiting[i].next();
    std::vector<Json> chunks;
    if (const auto* read = std::get_if<PromptRead>(&event)) chunks = answer.add(*read, i);
    if (const auto* piece = std::get_if<Piece>(&event)) chunks = answer.add(*piece, i);
    if (const auto* ended = std::get_if<Ended>(&event)) {
      answer.add(*ended);
      ++i;
    }
    if (const auto* error = std::get_if<ApiError>(&event)) {
      if (!streams) throw ApiError(*error);
      return response.write(format->fail(*error));
    }
    send(chunks);
  }
  response.usage = answer.usage();
  if (streams) return response.write(format->end(answer.usage()));
  call.reply(format->whole(answer.whole(), answer.usage()));
}

void Server::Impl::make_context(Call& call) {
  ContextRequest parsed = parse_context(call.take_object(), limits, tokenizer);
  parsed.job.client = client_of(call.request);
  parsed.info.owner = owner_of(call.request);
  contexts.check_room(0);
  const CacheOptions cache = model.cache_options(parsed.job.cache);
  const std::vector<Token> text = parsed.job.prompt;
  Waiting waiting(scheduler.submit(std::move(parsed.job)), call.response, held, o.slots);
  call.end_work();
  Response& response = call.response;
  if (parsed.stream) {
    response.set_header("Cache-Control", "no-store");
    response.begin("text/event-stream");
  }
  const auto send = [&](const Json& data) { response.write("data: " + line(data) + "\n\n"); };
  while (true) {
    Event event = waiting.next();
    if (const auto* error = std::get_if<ApiError>(&event)) {
      if (!parsed.stream) throw ApiError(*error);
      return send(error->to_json());
    }
    if (const auto* reading = std::get_if<Reading>(&event); reading != nullptr && parsed.stream) {
      send({{"progress", std::round(reading->done * 100) / 100}});
    }
    if (const auto* read = std::get_if<PromptRead>(&event)) {
      parsed.info.bytes = read->cache_bytes;
      parsed.info.read_seconds = read->read_seconds;
      parsed.info.compress_seconds = read->compress_seconds;
      if (read->gauge) parsed.info.gauge = ballast::to_json(*read->gauge, cache.policy);
    }
    if (auto* context = std::get_if<ContextRead>(&event)) {
      parsed.info.cache = describe_cache(context->cache->options());
      parsed.info.exact_bytes = model.exact_bytes(*context->cache);
      const ContextInfo info = contexts.add(std::move(parsed.info), std::move(*context->cache),
                                            std::move(context->lease), text);
      Json answer = info.to_json();
      if (!parsed.note.empty()) answer["note"] = parsed.note;
      return parsed.stream ? send(answer) : call.reply(answer);
    }
  }
}

void Server::Impl::add_document(Call& call) {
  if (!library) throw no_library();
  DocumentRequest parsed = parse_document(call.take_object());
  const auto document = library->add(std::move(parsed.name), std::move(parsed.text));
  call.end_work();
  Response& response = call.response;
  if (parsed.stream) {
    response.set_header("Cache-Control", "no-store");
    response.begin("text/event-stream");
  }
  const auto send = [&](const Json& data) { response.write("data: " + line(data) + "\n\n"); };
  double done = 0;
  const auto all = static_cast<double>(document->tokens() + 1);
  for (const LibrarySection& section : document->sections) {
    if (library->library().is_read(section)) continue;
    Job job = library->reading(*document, section);
    job.client = client_of(call.request);
    Waiting waiting(scheduler.submit(Job(job)), response, held, o.slots);
    for (bool over = false; !over;) {
      Event event = waiting.next();
      if (const auto* error = std::get_if<ApiError>(&event)) {
        if (!parsed.stream) throw ApiError(*error);
        return send(error->to_json());
      }
      if (const auto* reading = std::get_if<Reading>(&event); reading != nullptr && parsed.stream) {
        send({{"progress", (done + reading->done * static_cast<double>(section.tokens)) / all}});
      }
      if (const auto* context = std::get_if<ContextRead>(&event)) {
        library->keep(section, job, *context->cache);
        over = true;
      }
    }
    done += static_cast<double>(section.tokens);
  }
  Json answer = library->about(*document);
  if (!parsed.note.empty()) answer["note"] = parsed.note;
  return parsed.stream ? send(answer) : call.reply(answer);
}

void Server::Impl::embed(Call& call) {
  const bool ollama = call.request.path == "/api/embed";
  EmbeddingRequest parsed =
      parse_embeddings(call.take_object(), limits, tokenizer, model.config().width, ollama);
  call.end_work();
  Json data = Json::array();
  std::size_t tokens = 0;
  for (Job& job : parsed.jobs) {
    tokens += job.prompt.size();
    job.client = client_of(call.request);
    Waiting waiting(scheduler.submit(std::move(job)), call.response, held, o.slots);
    for (bool over = false; !over;) {
      const Event event = waiting.next();
      if (const auto* error = std::get_if<ApiError>(&event)) throw ApiError(*error);
      const auto* made = std::get_if<Embedded>(&event);
      over = made != nullptr;
      if (over) data.push_back(embedding_json(made->embedding, data.size(), parsed.base64));
    }
  }
  call.response.usage.prompt = tokens;
  Json answer = {{"model", o.name}};
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

void Server::Impl::count_tokens(Call& call) {
  const TextRequest parsed =
      parse(*Format::of(Api::anthropic, call.take_object()), owner_of(call.request));
  const Job& job = parsed.job;
  const std::size_t before = job.context ? job.context->info.tokens : 0;
  call.reply({{"input_tokens", before + job.prompt.size()}});
}

void Server::Impl::tokenize(Call& call) const {
  const Json body = call.take_object();
  Fields f(body);
  const auto content = f.text("content");
  if (!content) refuse("content", "content: the text is missing");
  const EncodeOptions options{.add_special = f.flag("add_special", false),
                              .parse_special = f.flag("parse_special", true)};
  f.end();
  call.reply({{"tokens", tokenizer.encode(*content, options)}});
}

void Server::Impl::detokenize(Call& call) const {
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

/// The context that the path names.
std::shared_ptr<const Context> Server::Impl::context_of(const Call& call) {
  auto context = contexts.get(call.parts[0], owner_of(call.request));
  if (!context) throw no_context(call.parts[0]);
  return context;
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
          {"sampling", sampling()},
          {"keeps_contexts", !o.cache_dir.empty()},
          {"library", library.has_value()},
          {"chat_template", !tokenizer.vocabulary().chat_template.empty()},
          {"methods", std::move(methods)}};
}

void Server::Impl::set_up() {
  const auto get = [this](const char* pattern, std::function<void(Call&)> handler) {
    routes.push_back({"GET", pattern, std::move(handler)});
  };
  const auto post = [this](const char* pattern, std::function<void(Call&)> handler) {
    routes.push_back({"POST", pattern, std::move(handler)});
  };
  const auto get_json = [&](const char* pattern, const Json& json) {
    get(pattern, [json](Call& call) { call.reply(json); });
  };

  get("/", [](Call& call) {
    call.response.set_header("Content-Security-Policy",
                             "default-src 'none'; connect-src 'self'; img-src data:; "
                             "style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    call.response.set_header("X-Content-Type-Options", "nosniff");
    call.response.set_content(std::string(page()), "text/html; charset=utf-8");
  });
  get("/health",
      [](Call& call) { call.response.set_content(R"({"status":"ok"})", "application/json"); });
  get("/metrics", [this](Call& call) {
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
  get("/v1/models/**", [this, about](Call& call) {
    if (call.parts[0] == o.name) return call.reply(about);
    throw ApiError(404, "model_not_found",
                   fmt::format("the model {} is not here", shown(Json(call.parts[0]))), "model");
  });
  for (const auto& [path, api] : std::initializer_list<std::pair<const char*, Api>>{
           {"/v1/chat/completions", Api::chat},
           {"/v1/completions", Api::completion},
           {"/v1/responses", Api::responses},
           {"/v1/messages", Api::anthropic},
           {"/api/chat", Api::ollama_chat},
           {"/api/generate", Api::ollama_generate}}) {
    post(path, [this, api = api](Call& call) { text(call, api); });
  }
  post("/v1/messages/count_tokens", [this](Call& call) { count_tokens(call); });
  for (const char* path : {"/v1/embeddings", "/api/embed"}) {
    post(path, [this](Call& call) { embed(call); });
  }
  const OllamaModel ollama{o.name, model, tokenizer};
  get_json("/api/version", {{"version", BALLAST_VERSION}});
  for (const char* path : {"/api/tags", "/api/ps"}) {
    get(path, [ollama](Call& call) { call.reply({{"models", Json::array({ollama.entry()})}}); });
  }
  post("/api/show", [ollama](Call& call) { call.reply(ollama.details()); });
  post("/tokenize", [this](Call& call) { tokenize(call); });
  post("/detokenize", [this](Call& call) { detokenize(call); });

  post("/v1/library", [this](Call& call) { add_document(call); });
  routes.push_back(
      {"DELETE", "/v1/library/*", [this](Call& call) {
         if (!library || !library->remove(call.parts[0])) {
           throw no_document(call.parts[0]);
         }
         call.reply({{"id", call.parts[0]}, {"object", "document"}, {"deleted", true}});
       }});
  get("/v1/library", [this](Call& call) {
    call.reply({{"object", "list"}, {"data", library ? library->list() : Json::array()}});
  });
  get("/v1/library/*", [this](Call& call) {
    const Json document = library ? library->document(call.parts[0]) : Json();
    if (document.is_null()) throw no_document(call.parts[0]);
    call.reply(document);
  });

  get("/v1/library/*/pages/*", [this](Call& call) {
    const std::size_t page = std::strtoul(call.parts[1].c_str(), nullptr, 10);
    std::string picture = library ? library->page(call.parts[0], page) : "";
    if (picture.empty()) throw no_document(call.parts[0] + " with a page " + call.parts[1]);
    call.response.set_content(std::move(picture), "image/png");
  });

  post("/v1/contexts", [this](Call& call) { make_context(call); });
  get("/v1/contexts", [this](Call& call) {
    Json list = Json::array();
    for (const ContextInfo& info : contexts.list(owner_of(call.request)))
      list.push_back(info.to_json());
    call.reply({{"object", "list"}, {"data", std::move(list)}});
  });
  get("/v1/contexts/*", [this](Call& call) {
    const auto info = contexts.info(call.parts[0], owner_of(call.request));
    if (!info) throw no_context(call.parts[0]);
    call.reply(info->to_json());
  });
  get("/v1/contexts/*/kept", [this](Call& call) {
    constexpr std::size_t kOfToken = 256;  // bytes, as JSON and as its text
    const auto context = context_of(call);
    call.work = begin_work(large_bodies, call.request, kOfToken * context->info.tokens);
    call.reply(kept_of_all(*context, tokenizer));
  });
  get("/v1/contexts/*/kept/*/*", [this](Call& call) {
    call.reply(kept_of_head(*context_of(call), number_of(call.parts[1]), number_of(call.parts[2])));
  });
  set_up_sessions();
  routes.push_back({"DELETE", "/v1/contexts/*", [this](Call& call) {
                      if (!contexts.remove(call.parts[0], owner_of(call.request)))
                        throw no_context(call.parts[0]);
                      call.reply({{"id", call.parts[0]}, {"object", "context"}, {"deleted", true}});
                    }});
}

void Server::Impl::set_up_sessions() {
  const auto add = [this](const char* method, const char* pattern, auto work) {
    routes.push_back(
        {method, pattern, [this, work](Call& call) {
           const SessionCalls calls(sessions, scheduler.prefixes(), limits, owner_of(call.request));
           const std::string id = call.parts.empty() ? "" : call.parts[0];
           const Json body = call.request.body.empty() ? Json::object() : call.take_object();
           call.reply(work(calls, id, body));
         }});
  };
  using Calls = const SessionCalls&;
  using Id = const std::string&;
  add("POST", "/v1/sessions", [](Calls c, Id, const Json& body) { return c.create(body); });
  add("GET", "/v1/sessions", [](Calls c, Id, const Json&) { return c.list(); });
  add("GET", "/v1/sessions/*", [](Calls c, Id id, const Json&) { return c.show(id); });
  add("DELETE", "/v1/sessions/*", [](Calls c, Id id, const Json&) { return c.remove(id); });
  add("POST", "/v1/sessions/*/fork", [](Calls c, Id id, const Json&) { return c.fork(id); });
  add("POST", "/v1/sessions/*/pin",
      [](Calls c, Id id, const Json& body) { return c.pin(id, body); });
  add("POST", "/v1/sessions/*/release", [](Calls c, Id id, const Json&) { return c.release(id); });
  add("POST", "/v1/sessions/*/compact",
      [](Calls c, Id id, const Json& body) { return c.compact(id, body); });
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
