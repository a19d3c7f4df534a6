#include "serve/document_calls.h"

#include "report/gauge_json.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/requests/documents.h"
#include "serve/texts/kept.h"

namespace ballast::serve {
namespace {

ApiError no_context(const std::string& id) {
  return ApiError(404, "context_not_found", fmt::format("there is no context {}", shown(Json(id))));
}

void make_context(const Service& s, Call& call) {
  ContextRequest parsed = parse_context(call.take_object(), s.limits, s.tokenizer);
  ContextInfo& info = parsed.info;
  info.owner = s.owner_of(call);
  s.contexts.check_room(0);
  const CacheOptions cache = s.model.cache_options(parsed.job.cache);
  const std::vector<Token> text = parsed.job.prompt;
  Waiting waiting = s.submit(std::move(parsed.job), call);
  call.end_work();
  answer_in_time(call, parsed.stream, [&](const auto& progress) -> Json {
    while (true) {
      Event event = waiting.next();
      if (const auto* reading = std::get_if<Reading>(&event)) progress(reading->done);
      if (const auto* read = std::get_if<PromptRead>(&event)) {
        info.bytes = read->cache_bytes;
        info.read_seconds = read->read_seconds;
        info.compress_seconds = read->compress_seconds;
        if (read->gauge) info.gauge = to_json(*read->gauge, cache.policy);
      }
      auto* context = std::get_if<ContextRead>(&event);
      if (context == nullptr) continue;
      info.cache = describe_cache(context->cache->options());
      info.exact_bytes = s.model.exact_bytes(*context->cache);
      Json answer =
          s.contexts
              .add(std::move(info), std::move(*context->cache), std::move(context->lease), text)
              .to_json();
      if (!parsed.note.empty()) answer["note"] = parsed.note;
      return answer;
    }
  });
}

/// The context that the path names.
std::shared_ptr<const Context> context_of(const Service& s, const Call& call) {
  auto context = s.contexts.get(call.parts[0], s.owner_of(call));
  if (!context) throw no_context(call.parts[0]);
  return context;
}

/// What it keeps, for people to look at.
void show_kept(const Service& s, Call& call) {
  constexpr std::size_t kOfToken = 256;  // bytes, as JSON and as its text
  const auto context = context_of(s, call);
  call.work =
      s.bodies.enter_large(s.doorman.client_of(call.request), kOfToken * context->info.tokens);
  call.reply(kept_of_all(*context, s.tokenizer));
}

ApiError no_document(const std::string& id) {
  return ApiError(404, "document_not_found",
                  fmt::format("the library has no document {}", shown(Json(id))));
}

/// Reads a section, unless it is read. `progress`: of it.
void read_section(const Service& s, const LibraryDocument& document, const LibrarySection& section,
                  const Call& call, const std::function<void(double)>& progress) {
  ServedLibrary& library = *s.limits.library;
  if (library.library().is_read(section)) return;
  const Job job = library.reading(document, section);
  Waiting waiting = s.submit(job, call);
  while (true) {
    const Event event = waiting.next();
    if (const auto* reading = std::get_if<Reading>(&event)) progress(reading->done);
    if (const auto* context = std::get_if<ContextRead>(&event)) {
      return library.keep(section, job, *context->cache);
    }
  }
}

void add_document(const Service& s, Call& call) {
  if (s.limits.library == nullptr) {
    throw ApiError(404, "library_not_found", "this server has no library; start it with --library");
  }
  DocumentRequest parsed = parse_document(call.take_object());
  const auto document = s.limits.library->add(std::move(parsed.name), std::move(parsed.text));
  call.end_work();
  answer_in_time(call, parsed.stream, [&](const auto& progress) {
    double done = 0;
    const auto all = static_cast<double>(document->tokens() + 1);
    for (const LibrarySection& section : document->sections) {
      const auto tokens = static_cast<double>(section.tokens);
      read_section(s, *document, section, call,
                   [&](double part) { progress((done + part * tokens) / all); });
      done += tokens;
    }
    Json answer = s.limits.library->about(*document);
    if (!parsed.note.empty()) answer["note"] = parsed.note;
    return answer;
  });
}

}  // namespace

void add_context_calls(Routes& routes, const Service& s) {
  routes.post("/v1/contexts", [&s](Call& call) { make_context(s, call); });
  routes.get("/v1/contexts", [&s](Call& call) {
    Json list = Json::array();
    for (const ContextInfo& info : s.contexts.list(s.owner_of(call)))
      list.push_back(info.to_json());
    call.reply({{"object", "list"}, {"data", std::move(list)}});
  });
  routes.get("/v1/contexts/*", [&s](Call& call) {
    const auto info = s.contexts.info(call.parts[0], s.owner_of(call));
    if (!info) throw no_context(call.parts[0]);
    call.reply(info->to_json());
  });
  routes.get("/v1/contexts/*/kept", [&s](Call& call) { show_kept(s, call); });
  routes.get("/v1/contexts/*/kept/*/*", [&s](Call& call) {
    call.reply(
        kept_of_head(*context_of(s, call), number_of(call.parts[1]), number_of(call.parts[2])));
  });
  routes.add("DELETE", "/v1/contexts/*", [&s](Call& call) {
    const std::string& id = call.parts[0];
    if (!s.contexts.remove(id, s.owner_of(call))) throw no_context(id);
    call.reply({{"id", id}, {"object", "context"}, {"deleted", true}});
  });
}

void add_library_calls(Routes& routes, const Service& s) {
  ServedLibrary* const library = s.limits.library;
  routes.post("/v1/library", [&s](Call& call) { add_document(s, call); });
  routes.get("/v1/library", [library](Call& call) {
    call.reply({{"object", "list"}, {"data", library ? library->list() : Json::array()}});
  });
  routes.get("/v1/library/*", [library](Call& call) {
    const Json document = library ? library->document(call.parts[0]) : Json();
    if (document.is_null()) throw no_document(call.parts[0]);
    call.reply(document);
  });
  routes.get("/v1/library/*/pages/*", [library](Call& call) {
    const std::size_t page = std::strtoul(call.parts[1].c_str(), nullptr, 10);
    std::string picture = library ? library->page(call.parts[0], page) : "";
    if (picture.empty()) throw no_document(call.parts[0] + " with a page " + call.parts[1]);
    call.response.set_content(std::move(picture), "image/png");
  });
  routes.add("DELETE", "/v1/library/*", [library](Call& call) {
    if (!library || !library->remove(call.parts[0])) throw no_document(call.parts[0]);
    call.reply({{"id", call.parts[0]}, {"object", "document"}, {"deleted", true}});
  });
}

}  // namespace ballast::serve
