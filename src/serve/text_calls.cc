#include "serve/text_calls.h"

#include <algorithm>
#include <span>

#include "serve/answers.h"
#include "serve/formats/format.h"
#include "serve/http/api_error.h"
#include "serve/requests/place.h"

namespace ballast::serve {
namespace {

TextRequest parse(const Service& s, const Format& format, const Call& call) {
  const auto parse = format.is_chat() ? parse_chat : parse_completion;
  return parse(format.body(), s.limits, s.tokenizer, s.contexts, s.owner_of(call));
}

/// The answers of sections, each asked alone, in their order.
std::vector<Tried> try_each(const Service& s, const TextRequest& parsed,
                            std::span<const std::shared_ptr<const Context>> asked,
                            const Call& call) {
  std::vector<Waiting> waiting;
  for (const std::shared_ptr<const Context>& one : asked) {
    waiting.push_back(s.submit(trial_of(parsed.job, one), call));
  }
  std::vector<Tried> out(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    while (!add_to(out[i], waiting[i].next())) {
    }
  }
  return out;
}

/// Leaves the section that a library answers from in the job, or two where none suffices alone.
/// False: nothing supports an answer.
bool choose_section(const Service& s, TextRequest& parsed, const Call& call) {
  std::vector<std::shared_ptr<const Context>> asked;
  for (const Candidate& one : parsed.candidates) asked.push_back(one.context);
  if (asked.empty()) return false;
  std::vector<AnswerEvidence> evidence;
  const auto ask = [&](std::size_t count) {  // more of them
    const auto some = std::span(asked).subspan(evidence.size(), count);
    for (const Tried& one : try_each(s, parsed, some, call)) {
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
      joined_context(std::vector{asked[second], asked[best]}, parsed.chat, s.tokenizer);
  parsed.job.cite = false;
  const Tried joined = try_each(s, parsed, std::span(&parsed.job.context, 1), call)[0];
  return is_supported(joined.of(parsed.sections, parsed.question));
}

/// Writes what the jobs of the prompts say, one prompt after the other.
void write(std::vector<Waiting>& waiting, const std::function<void(const std::vector<Json>&)>& send,
           AnswerWriter& answer) {
  for (std::size_t i = 0; i < waiting.size();) {
    const Event event = waiting[i].next();
    if (const auto* read = std::get_if<PromptRead>(&event)) send(answer.add(*read, i));
    if (const auto* piece = std::get_if<Piece>(&event)) send(answer.add(*piece, i));
    if (const auto* ended = std::get_if<Ended>(&event)) {
      answer.add(*ended);
      ++i;
    }
  }
}

void text(const Service& s, Call& call, Api api) {
  Response& response = call.response;
  const std::unique_ptr<Format> format = Format::of(api, call.take_object(), s.sampling());
  if (const Json done = format->answer_without_model(s.limits.model); !done.is_null()) {
    return call.reply(done);
  }
  TextRequest parsed = parse(s, *format, call);
  const bool answers = !parsed.asks_library || choose_section(s, parsed, call);
  std::vector<Waiting> waiting;  // what was submitted is cancelled if the next is refused
  for (std::size_t i = 0; answers && i < parsed.prompt_count(); ++i) {
    waiting.push_back(s.submit(parsed.job_of(i), call));
  }
  format->drop_body();
  call.end_work();
  const bool streams = parsed.stream;
  AnswerWriter answer(std::move(parsed), s.limits.model, s.tokenizer);
  if (streams) {
    response.set_header("Cache-Control", "no-store");
    response.begin(format->stream_type());
  }
  const auto send = [&](const std::vector<Json>& chunks) {
    for (const Json& chunk : chunks) response.write(format->chunk(chunk, answer.usage()));
  };
  if (!answers) send(answer.add_not_found());
  try {
    write(waiting, send, answer);
  } catch (const ApiError& error) {
    if (!streams) throw;
    return response.write(format->fail(error));
  }
  response.usage = answer.usage();
  if (streams) return response.write(format->end(answer.usage()));
  call.reply(format->whole(answer.whole(), answer.usage()));
}

void count_tokens(const Service& s, Call& call) {
  const Job job = parse(s, *Format::of(Api::anthropic, call.take_object()), call).job;
  const std::size_t before = job.context ? job.context->info.tokens : 0;
  call.reply({{"input_tokens", before + job.prompt.size()}});
}

}  // namespace

void add_text_calls(Routes& routes, const Service& s) {
  for (const auto& [path, api] : std::initializer_list<std::pair<const char*, Api>>{
           {"/v1/chat/completions", Api::chat},
           {"/v1/completions", Api::completion},
           {"/v1/responses", Api::responses},
           {"/v1/messages", Api::anthropic},
           {"/api/chat", Api::ollama_chat},
           {"/api/generate", Api::ollama_generate}}) {
    routes.post(path, [&s, api = api](Call& call) { text(s, call, api); });
  }
  routes.post("/v1/messages/count_tokens", [&s](Call& call) { count_tokens(s, call); });
}

}  // namespace ballast::serve
