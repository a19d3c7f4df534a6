#include "library/asking.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "library/citing.h"

namespace ballast {
namespace {

/// Tokens of an answer that is tried.
constexpr std::size_t kTried = 48;
/// Sections beyond those asked, for damaged ones.
constexpr std::size_t kSpare = 4;
/// Sections that stay loaded.
constexpr std::size_t kLoaded = 6;

std::vector<AnswerEvidence> evidence_of(const std::vector<AskedSection>& asked) {
  std::vector<AnswerEvidence> out;
  for (const AskedSection& one : asked) out.push_back(one.evidence);
  return out;
}

}  // namespace

LibraryAsker::LibraryAsker(Library& library, std::shared_ptr<const TextModel> model)
    : library_(library), model_(std::move(model)) {
  Engine engine(model_->model);
  heads_ = find_lookup_heads(engine);
}

const Session& LibraryAsker::load(const LibrarySection& section) {
  const auto there = std::ranges::find(loaded_, section.key, &Loaded::key);
  if (there != loaded_.end()) {
    loaded_.splice(loaded_.begin(), loaded_, there);
  } else {
    loaded_.push_front({section.key, Session::load(model_, library_.cache_of(section))});
    if (loaded_.size() > kLoaded) loaded_.pop_back();
  }
  return loaded_.front().session;
}

std::vector<FoundSection> LibraryAsker::candidates(std::string_view question, std::size_t most) {
  std::vector<FoundSection> out = library_.find(question, most);
  if (!last_ || !library_.is_read(last_->part())) return out;
  const bool there = std::ranges::any_of(
      out, [&](const FoundSection& one) { return one.part().key == last_->part().key; });
  if (there) return out;
  FoundSection again = *last_;
  again.score = 0;
  again.passage.clear();
  out.push_back(std::move(again));
  return out;
}

LibraryAsker::Attempt LibraryAsker::attempt(Session session, std::string_view question,
                                            const GenerateOptions& options, bool watched) const {
  const std::vector<Token> asked = session.form().question(model_->tokenizer, question);
  Lookup lookup(heads_, session.text().size());
  PrefillOptions reading;
  GenerateOptions tried = options;
  tried.max_tokens = options.max_tokens == 0 ? kTried : std::min(kTried, options.max_tokens);
  tried.sampling = {};
  tried.text_start = session.form().chat;
  if (watched) {
    reading.on_attention = [&](const AttentionStep& step) {
      if (step.first + step.queries.rows < asked.size()) return;
      lookup.add(session.cache(), step, step.queries.rows - 1);
    };
    tried.on_attention = [&](const AttentionStep& step) { lookup.add(session.cache(), step, 0); };
  }
  session.read(asked, reading);
  Generation generation = session.generate(tried);
  generation.run();
  session.take_in(generation);
  AnswerEvidence evidence;
  for (const GeneratedToken& token : generation.result().tokens) {
    evidence.add(token.chosen.log_probability);
  }
  std::vector<float> attention = lookup.attention();
  evidence.looked_up = std::accumulate(attention.begin(), attention.end(), 0.0f);
  return {std::move(session), generation.result(), evidence, std::move(attention)};
}

std::optional<LibraryAsker::Attempt> LibraryAsker::attempt_joined(std::string_view question,
                                                                  const GenerateOptions& options,
                                                                  LibraryAnswer& out) {
  if (out.asked.size() < 2) return std::nullopt;
  const std::size_t best = best_answer(evidence_of(out.asked)), second = best == 0 ? 1 : 0;
  std::vector<Session> both;  // the better one next to the question
  for (const std::size_t i : {second, best}) {
    both.push_back(load(out.asked[i].found.part()).clone());
  }
  Attempt made = attempt(Session::join(std::move(both)), question, options, false);
  made.evidence.score = out.asked[best].evidence.score;
  std::string texts;
  for (const std::size_t i : {second, best}) {
    texts += out.asked[i].found.document->read_text(out.asked[i].found.part()) + "\n";
  }
  made.evidence.compare(texts, question, made.answer.text);
  if (!is_supported(made.evidence)) return std::nullopt;
  out.sections = {best, second};
  for (const std::size_t i : out.sections) {
    const FoundSection& found = out.asked[i].found;
    if (!found.passage.empty()) out.citations.push_back(found_passage(found));
  }
  return made;
}

void LibraryAsker::finish(Attempt& chosen, std::string_view question, const AskOptions& options,
                          LibraryAnswer& out,
                          const std::function<bool(std::string_view)>& on_text) {
  GenerateOptions generate = options.generate;
  generate.text_start = chosen.session.form().chat;
  const auto add = [&](std::string_view text) {
    out.text += text;
    return !on_text || on_text(text);
  };
  if (generate.sampling.temperature > 0 && out.sections.size() == 1) {
    Session session = load(out.asked[out.sections[0]].found.part()).clone();
    session.read(session.form().question(model_->tokenizer, question));
    session.generate(generate).run(add);
    return;
  }
  if (!add(chosen.answer.text)) return;
  const std::size_t made = chosen.answer.tokens.size();
  const bool over = generate.max_tokens > 0 && made >= generate.max_tokens;
  if (chosen.answer.finish != Finish::length || over) return;
  if (generate.max_tokens > 0) generate.max_tokens -= made;
  generate.text_start = false;
  chosen.session.generate(generate).run(add);
}

LibraryAnswer LibraryAsker::ask(std::string_view question, const AskOptions& options,
                                const std::function<bool(std::string_view)>& on_text) {
  LibraryAnswer out;
  std::vector<Attempt> attempts;
  for (const FoundSection& found : candidates(question, options.sections + kSpare)) {
    if (out.asked.size() >= options.sections && found.score > 0) continue;
    if (!out.asked.empty() && !may_be_beaten(evidence_of(out.asked), found.score)) break;
    try {
      const Session& loaded = load(found.part());
      attempts.push_back(attempt(loaded.clone(), question, options.generate, true));
      Attempt& made = attempts.back();
      made.evidence.score = found.score;
      made.evidence.compare(found.document->read_text(found.part()), question, made.answer.text);
      out.asked.push_back({found, made.evidence, made.answer.text,
                           cite_section(found, model_->tokenizer, loaded.text(), made.attention)});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_file && error.code() != ErrorCode::io) throw;
      out.left_out.push_back(fmt::format("{} is left out: {}", found.document->name, error.what()));
    }
  }
  require(!out.asked.empty() || out.left_out.empty(), ErrorCode::bad_file, "{}",
          out.left_out.empty() ? "" : out.left_out.front());
  if (out.asked.empty()) return out;
  const std::size_t best = best_answer(evidence_of(out.asked));
  std::optional<Attempt> chosen;
  if (is_supported(out.asked[best].evidence)) {
    out.sections = {best};
    out.citations = out.asked[best].citations;
    chosen.emplace(std::move(attempts[best]));
  }
  attempts.clear();
  if (!chosen) chosen = attempt_joined(question, options.generate, out);
  if (!chosen) return out;
  out.supported = true;
  last_ = out.asked[out.sections[0]].found;
  finish(*chosen, question, options, out, on_text);
  return out;
}

}  // namespace ballast
