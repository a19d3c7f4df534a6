#include "serve/requests/place.h"

#include <algorithm>
#include <span>

#include "ballast/engine/question_form.h"
#include "ballast/joined.h"
#include "base/fail.h"
#include "base/sha256.h"
#include "methods/replay.h"
#include "serve/http/api_error.h"

namespace ballast::serve {
namespace {

using namespace std::chrono_literals;

/// A share as a number, or an amount as text.
std::string bytes_of(const Json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number > 0 && number < 1) return fmt::format("{}", number);
  if (number == 1) return "100%";
  if (value.is_number_unsigned() && number > 1)
    return fmt::format("{}B", value.get<std::uint64_t>());
  refuse(name,
         "{}: {} is neither a share above 0 and up to 1, nor bytes, nor a text such as \"1/8\"",
         name, shown(value));
}

/// A conversation that is compacted goes on beyond the model's positions where these hold what it
/// never drops.
void go_on(CacheOptions& cache, const RequestLimits& limits) {
  if (!limits.endless || !takes_reach(cache.policy)) return;
  std::int64_t least = 0;
  for (const char* part : {"sink", "window", "chunk"}) least += cache.policy.integer(part);
  cache.positions = static_cast<std::size_t>(least) <= limits.positions ? Positions::rolling
                                                                        : Positions::absolute;
}

/// The cache of a conversation that is made small whenever its bytes are full.
void compact(CacheOptions& out, const RequestLimits& limits) {
  if (!out.policy.info().global_budget || !out.policy.has("bytes") ||
      out.policy.memory("bytes").needs_length()) {
    refuse("cache.compact",
           "cache.compact: needs bytes of a size, such as \"256M\", and calibrated or replay");
  }
  // An eighth of what the budget holds exactly comes between two divisions, and is never dropped.
  const std::size_t part = out.policy.memory("bytes").bytes(0, 0) / limits.token_bytes / 8;
  // Nor is it much beside the model's positions.
  const std::size_t most = std::clamp<std::size_t>(limits.positions / 8, 16, 4096);
  const std::string tokens = fmt::format("{}", std::clamp<std::size_t>(part, 16, most));
  out.policy = out.policy.with("chunk", tokens).with("window", tokens);
  out.protocol = Protocol::stream;
  go_on(out, limits);
}

void check_form(const Context& context, bool chat) {
  const bool is_chat = context.info.form.starts_with("chat");
  if (is_chat == chat) return;
  refuse("context", "context: {} is of the form \"{}\": use {}", context.info.id,
         is_chat ? "chat" : "raw", is_chat ? "/v1/chat/completions" : "/v1/completions");
}

std::shared_ptr<const Context> context_of(const Json& id, const std::string& owner, bool chat,
                                          Contexts& contexts) {
  if (!id.is_string()) {
    refuse("context", "context: {} is neither an id nor an array of at least one", shown(id));
  }
  std::shared_ptr<const Context> out;
  try {
    out = contexts.get(id.get<std::string>(), owner);
  } catch (const Error& error) {
    throw ApiError(500, "bad_context", error.what(), "context");
  }
  if (!out) {
    throw ApiError(404, "context_not_found",
                   fmt::format("context: there is no {}; POST /v1/contexts makes one", shown(id)),
                   "context");
  }
  check_form(*out, chat);
  return out;
}

/// The context of an id, or several joined.
std::shared_ptr<const Context> contexts_of(const Json& ids, const std::string& owner, bool chat,
                                           const Tokenizer& tokenizer, Contexts& contexts) {
  if (!ids.is_array() || ids.empty()) return context_of(ids, owner, chat, contexts);
  std::vector<std::shared_ptr<const Context>> all;
  for (const Json& id : ids) all.push_back(context_of(id, owner, chat, contexts));
  if (all.size() == 1) return all[0];
  return naming("context", [&] { return joined_context(all, chat, tokenizer); });
}

/// The sections that the last question may be about, and the one that the conversation is about.
/// The job stands behind the first of them.
void find_candidates(const Asked& asked, const RequestLimits& limits, TextRequest& out) {
  constexpr std::size_t kMost = 3;
  if (limits.library == nullptr) {
    refuse("context", "context: this server has no library; start it with --library");
  }
  out.asks_library = true;
  out.question = asked.all;
  out.candidates = naming("context", [&] { return limits.library->find(asked.last, kMost); });
  if (asked.all != asked.last) {
    for (Candidate& one : limits.library->find(asked.all, out.candidates.empty() ? kMost : 1)) {
      const bool there = std::ranges::count(out.candidates, one.context, &Candidate::context) > 0;
      if (!there) out.candidates.push_back(std::move(one));
    }
  }
  if (out.candidates.empty()) return;
  out.job.context = out.candidates.front().context;
  check_form(*out.job.context, out.chat);
}

/// The job goes on with a session.
void place_in_session(const std::string& id, const RequestLimits& limits, const std::string& owner,
                      Job& job) {
  const auto session = limits.sessions ? limits.sessions->find(id, owner) : std::nullopt;
  if (!session) {
    throw ApiError(
        404, "session_not_found",
        fmt::format("session: there is no {}; POST /v1/sessions makes one", shown(Json(id))),
        "session");
  }
  job.session = id;
  job.cache = session->cache;
  job.compacts = session->compacts;
  job.keep = std::max(job.keep, session->retention());
}

}  // namespace

void parse_cache(const Json* value, const RequestLimits& limits, Job& job) {
  CacheOptions& out = job.cache = limits.cache;
  if (value == nullptr) return;
  Fields f(*value, "cache.");
  const Json* bytes = f.find("bytes");
  const auto method = f.text("method");
  if (method) naming("cache.method", [&] { return Policy::parse(*method); });
  job.compacts = f.find("compact") != nullptr && f.one_of("compact", {"auto"}, "") == "auto";
  const bool guarded = bytes != nullptr && *bytes == "auto" && limits.guard != nullptr;
  if (guarded && (method || job.compacts)) {
    refuse("cache.bytes", "cache.bytes: auto chooses for itself; leave out method and compact");
  }
  naming("cache", [&] {
    if (guarded) bytes = nullptr;
    const std::string name = method.value_or(limits.sized_method);
    if (bytes != nullptr || method) out.policy = Policy::parse(name);
    if (bytes != nullptr) {
      require(!out.policy.has_memory(), "bytes and method {} both say how much to keep", name);
      out.policy = out.policy.with("bytes", bytes_of(*bytes, "cache.bytes"));
    }
    if (const auto protocol = f.text("protocol")) out.protocol = parse_protocol(*protocol);
    if (const auto positions = f.text("positions")) out.positions = parse_positions(*positions);
    const auto type = f.text("type");
    if (type) out.key_type = out.value_type = parse_storage_type(*type);
    if (const auto key = f.text("key_type")) out.key_type = parse_storage_type(*key);
    if (const auto values = f.text("value_type")) out.value_type = parse_storage_type(*values);
    if (guarded) out = limits.guard->reading(out);
  });
  f.end();
  if (job.compacts) compact(out, limits);
}

void protect_head(Job& job, const std::vector<Token>& other, const RequestLimits& limits) {
  constexpr std::size_t kLeast = 4;
  const auto head =
      static_cast<std::size_t>(std::ranges::mismatch(job.prompt, other).in1 - job.prompt.begin());
  job.cache.policy = job.cache.policy.with("sink", fmt::format("{}", std::max(kLeast, head)));
  go_on(job.cache, limits);
}

void parse_place(Fields& f, const RequestLimits& limits, const Tokenizer& tokenizer,
                 Contexts& contexts, const std::string& owner, const Asked& asked,
                 TextRequest& out) {
  Job& job = out.job;
  job.owner = owner;
  const Json* context = f.find("context");
  const Json* cache = f.find("cache");
  job.cite = out.cites = f.flag("cite", false);
  if (const auto id = f.text("session")) {
    if (context != nullptr || cache != nullptr || job.cite) {
      refuse("session", "session: {} has its own cache; leave out context, cache and cite",
             shown(Json(*id)));
    }
    return place_in_session(*id, limits, owner, job);
  }
  if (context == nullptr) {
    if (job.cite) {
      refuse("cite", "cite: only with a context: POST /v1/contexts reads the text to be cited");
    }
    return parse_cache(cache, limits, job);
  }
  if (cache != nullptr) {
    refuse("cache", "cache: the context {} has its own; leave it out", shown(*context));
  }
  if (*context == "library") return find_candidates(asked, limits, out);
  if (job.cite && context->is_array() && context->size() > 1) {
    refuse("cite", "cite: only with one context");
  }
  job.context = contexts_of(*context, owner, out.chat, tokenizer, contexts);
}

std::shared_ptr<const Context> joined_context(
    std::span<const std::shared_ptr<const Context>> contexts, bool chat,
    const Tokenizer& tokenizer) {
  std::vector<JoinedDocument> documents;
  ContextInfo info = contexts.front()->info;
  for (const std::shared_ptr<const Context>& one : contexts) {
    const std::size_t before =
        documents.empty() ? 0 : tokens_before_context(tokenizer, chat, one->info.system);
    documents.push_back({std::shared_ptr<const Cache>(one, &one->cache), before});
  }
  Cache cache = join_documents(std::move(documents));
  info.tokens = cache.tokens();
  info.gauge = nullptr;  // it was of the first alone
  return std::make_shared<const Context>(Context{std::move(info), std::move(cache), Lease()});
}

std::chrono::seconds parse_ttl(Fields& object, const std::string& standard) {
  const std::string ttl = object.one_of("ttl", {"5m", "1h", "24h"}, standard);
  return ttl == "5m" ? 5min : ttl == "1h" ? 1h : 24h;
}

void CacheMarks::read(Fields& object, std::size_t message, std::size_t bytes) {
  if (object.find("cache_control") == nullptr) return;
  Fields f = object.inside("cache_control");
  f.one_of("type", {"ephemeral"}, "ephemeral");
  keep_ = std::max(keep_, parse_ttl(f, "5m"));
  f.ignore({"scope"});
  f.end();
  last_ = Place{message, bytes};
}

std::chrono::seconds parse_retention(Fields& request) {
  request.text("prompt_cache_key");  // there is one machine, where all that begins alike is found
  const bool day = request.one_of("prompt_cache_retention", {"in_memory", "in-memory", "24h"},
                                  "in_memory") == "24h";
  return day ? 24h : 0h;
}

std::string parse_salt(Fields& request) {
  const auto salt = request.text("cache_salt");
  if (!salt) return "";
  if (salt->empty()) refuse("cache_salt", "cache_salt: an empty text; leave it out");
  Sha256 sum;  // it may be a secret, and names of files and kinds are none
  sum.add(std::as_bytes(std::span(*salt)));
  return sum.finish();
}

}  // namespace ballast::serve
