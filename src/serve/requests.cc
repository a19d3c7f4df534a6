#include "serve/requests.h"

#include <utility>

#include "ballast/engine/question_form.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "serve/pictures.h"
#include "serve/requests/answer_fields.h"
#include "serve/requests/chat_prompt.h"
#include "serve/requests/conversation_fields.h"
#include "serve/requests/place.h"
#include "text/answer/answer_text.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kMostPrompts = 128;

/// What both kinds of request have in common.
void parse_common(Fields& f, const RequestLimits& limits, const Tokenizer& tokenizer,
                  TextRequest& out) {
  f.text("model");  // there is one, by whatever name clients know it
  Job& job = out.job;
  parse_sampling(f, limits, tokenizer, job.generate.sampling);
  parse_length(f, limits, out.chat ? 1 : 0, job.generate);
  job.choices = f.count("n", 1, limits.choices).value_or(1);
  out.stream = f.flag("stream", false);
  if (const Json* options = f.find("stream_options")) {
    if (!out.stream) refuse("stream_options", "stream_options: only with \"stream\": true");
    Fields o(*options, "stream_options.");
    o.flag("include_usage", false);
    o.only("include_obfuscation", false);
    o.end();
  }
  parse_form(f, job);
  // What others offer, off.
  f.only("min_tokens", 0);
  f.only("length_penalty", 1);
  f.only("use_beam_search", false);
  f.only("typical_p", 1);
  f.only("tfs_z", 1);
  f.only("mirostat", 0);
  f.only("dry_multiplier", 0);
  f.only("xtc_probability", 0);
  f.only("skip_special_tokens", true);
  f.only("spaces_between_special_tokens", true);
  f.only("include_stop_str_in_output", false);
  job.keep = parse_retention(f);
  job.salt = parse_salt(f);
  f.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prediction",
            "cache_prompt", "id_slot", "keep_alive", "priority", "request_id"});
}

/// Whether thoughts come as reasoning_content.
bool splits_thoughts(Fields& f) {
  return f.one_of("reasoning_format", {"auto", "deepseek", "none"}, "auto") != "none";
}

/// What the user has said in a conversation.
Asked asked_in(const std::vector<ChatMessage>& messages) {
  Asked out;
  for (const ChatMessage& message : messages) {
    if (message.role != "user") continue;
    out.last = message.content + "\n";
    out.all += out.last;
  }
  return out;
}

/// What the job reads of a conversation.
void place_prompt(const ChatPrompt& prompt, const RequestLimits& limits, Job& job) {
  if (job.context) {
    job.prompt = prompt.after(*job.context);
    return;
  }
  job.prompt = prompt.tokens();
  job.compress_at = job.prompt.size();
  if (!stays_exact(job.cache)) {
    // The first turn is what the method summarizes, so that later turns find it summarized.
    const std::vector<Token> turn = prompt.first_turn();
    const bool begins = !turn.empty() && turn.size() < job.prompt.size() &&
                        std::equal(turn.begin(), turn.end(), job.prompt.begin());
    if (begins) job.compress_at = turn.size();
  }
  if (!job.compacts) return;
  const std::vector<Token> other = prompt.other_first_turn();
  if (!other.empty()) protect_head(job, other, limits);
}

/// The answer is a call.
void hold_to_call(Fields& f, const Tools& tools, const Tokenizer& tokenizer,
                  std::vector<ChatMessage>& messages, ChatOptions& options, Job& job) {
  // A format is that of answers without calls.
  if (!(f.text("grammar").value_or("") + f.text("regex").value_or("")).empty()) {
    refuse("grammar", "grammar: not together with a tool_choice that calls");
  }
  job.grammar.emplace(tools.calls(tokenizer));
  if (!job.context) naming("messages", [&] { tools.tell(tokenizer, messages, options); });
}

/// Begins an answer that is held to a grammar: it is no thought, and a call stands in its tag where
/// the model knows one.
void begin_held_answer(const Tokenizer& tokenizer, bool calls, Job& job) {
  std::string more = job.thoughts_open ? "</think>\n\n" : "";
  if (writes_channels(tokenizer)) more = kFinalChannel;
  if (calls && tokenizer.find("<tool_call>") != kNoToken) more += "<tool_call>\n";
  const std::vector<Token> tokens = encode_more(tokenizer, more, true);
  job.prompt.insert(job.prompt.end(), tokens.begin(), tokens.end());
  job.split_thoughts = job.thoughts_open = false;
  job.thinking_budget.reset();
}

/// A text or tokens.
std::vector<Token> prompt_of(const Json& prompt, const std::string& name,
                             const Tokenizer& tokenizer, bool has_context) {
  std::vector<Token> out;
  if (prompt.is_string()) {
    const std::string& text = prompt.get_ref<const std::string&>();
    naming(name, [&] {
      const QuestionForm form = QuestionForm::raw("");
      out = has_context ? form.question(tokenizer, text) : form.whole(tokenizer, text);
    });
  } else if (prompt.is_array()) {
    for (const Json& token : prompt) {
      if (!token.is_number_unsigned() || token.get<std::uint64_t>() >= tokenizer.size()) {
        refuse(name, "{}: {} is not a token from 0 to {}", name, shown(token),
               tokenizer.size() - 1);
      }
      out.push_back(token.get<Token>());
    }
  } else {
    refuse(name, "{}: {} is neither a text nor an array of tokens", name, shown(prompt));
  }
  if (out.empty()) refuse(name, "{}: there is nothing in it", name);
  return out;
}

}  // namespace

std::vector<std::vector<Token>> prompts_of(const Json& prompt, const std::string& name,
                                           std::size_t most, const Tokenizer& tokenizer,
                                           bool has_context) {
  const bool several =
      prompt.is_array() && !prompt.empty() && (prompt[0].is_string() || prompt[0].is_array());
  if (!several) return {prompt_of(prompt, name, tokenizer, has_context)};
  if (prompt.size() > most) {
    refuse(name, "{}: {} texts; at most {} are taken at once", name, prompt.size(), most);
  }
  std::vector<std::vector<Token>> out;
  for (const Json& one : prompt) out.push_back(prompt_of(one, name, tokenizer, has_context));
  return out;
}

Job TextRequest::job_of(std::size_t i) const {
  Job out = job;
  if (!prompts.empty()) out.prompt = prompts[i];
  if (!chat) out.compress_at = out.prompt.size();
  return out;
}

TextRequest parse_chat(const Json& body, const RequestLimits& limits, const Tokenizer& tokenizer,
                       Contexts& contexts, const std::string& owner) {
  TextRequest out;
  Job& job = out.job;
  out.chat = job.chat = true;
  Fields f(body);
  parse_common(f, limits, tokenizer, out);
  Pictures pictures(limits.vision);
  CacheMarks marks;
  std::vector<ChatMessage> messages = messages_of(f, pictures, marks);
  marks.read(f, messages.size() - 1, messages.back().content.size());  // of the whole request
  out.logprobs = f.flag("logprobs", false);
  if (const auto top = f.count("top_logprobs", 0, 20)) {
    if (!out.logprobs) refuse("top_logprobs", "top_logprobs: only with \"logprobs\": true");
    job.generate.alternatives = *top;
  }
  const Tools tools(f, marks);
  job.functions = tools.functions();
  out.several_calls = f.flag("parallel_tool_calls", true);
  ChatOptions options = chat_options(tokenizer, true);
  options.tools = tools.json();
  options.variables = template_variables(f, job);
  const bool goes_on = goes_on_with_last(f, messages);
  f.only("functions", Json::array());
  f.only("modalities", Json::array({"text"}));
  f.only("add_special_tokens", false);
  parse_place(f, limits, tokenizer, contexts, owner, asked_in(messages), out);
  job.split_thoughts = splits_thoughts(f);
  f.end();
  if (tools.must_call()) hold_to_call(f, tools, tokenizer, messages, options, job);
  if (goes_on && job.grammar) {
    const std::string last = fmt::format("messages[{}]", f.find("messages")->size() - 1);
    refuse(last,
           "{}: an answer that has begun is held to no form; leave out the message, or "
           "response_format, grammar, regex and tool_choice",
           last);
  }
  const ChatPrompt prompt(tokenizer, std::move(messages), std::move(options), goes_on);
  naming("messages", [&] { place_prompt(prompt, limits, job); });
  if (job.prompt.empty()) refuse("messages", "messages: the prompt is empty");
  job.keep = std::max(job.keep, marks.keep());
  if (marks.last() && !job.context) {
    naming("messages", [&] { job.marked = prompt.tokens_before(*marks.last(), job.prompt); });
  }
  job.thoughts_open = ends_within_thoughts(tokenizer, job.prompt) || prompt.is_thinking();
  if (goes_on) job.generate.text_start = false;  // nor does it lose its first space
  naming("messages", [&] { pictures.place_in(job); });
  if (job.grammar) begin_held_answer(tokenizer, tools.must_call(), job);
  return out;
}

TextRequest parse_completion(const Json& body, const RequestLimits& limits,
                             const Tokenizer& tokenizer, Contexts& contexts,
                             const std::string& owner) {
  TextRequest out;
  Fields f(body);
  parse_common(f, limits, tokenizer, out);
  if (const auto top = f.count("logprobs", 0, 20)) {
    out.logprobs = true;
    out.job.generate.alternatives = *top;
  }
  out.echo = f.flag("echo", false);
  out.job.score_prompt = out.echo && out.logprobs;
  f.only("suffix", "");
  f.only("continue_final_message", false);
  f.only("add_generation_prompt", true);
  f.only("best_of", out.job.choices);
  f.only("add_special_tokens", true);
  const Json* prompt = f.find("prompt");
  if (prompt == nullptr) refuse("prompt", "prompt is missing");
  const std::string text = prompt->is_string() ? prompt->get<std::string>() : "";
  parse_place(f, limits, tokenizer, contexts, owner, {text, text}, out);
  if (out.asks_library && text.empty()) {
    refuse("prompt", "prompt: a library is asked by one text at a time");
  }
  f.end();
  Job& job = out.job;
  // An answer begins a text for a client, but goes on after the prompt, its leading space included.
  job.generate.text_start = false;
  out.prompts = prompts_of(*prompt, "prompt", kMostPrompts, tokenizer, job.context != nullptr);
  job.prompt = out.prompts[0];
  return out;
}

}  // namespace ballast::serve
