#include "ballast/engine/question_form.h"

#include <algorithm>

#include "base/fail.h"

namespace ballast {
namespace {

/// The placeholder of a text while a template runs. Texts do not use this private code point.
constexpr std::string_view kPlace = "\uE0B0\uE0A1\uE0B0";

/// What is asked, without the white space behind it: templates trim what a message says, and where
/// one does not, no model was trained on a turn that ends in it.
std::string_view said(std::string_view text, bool chat) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  return !chat || last == std::string_view::npos ? text : text.substr(0, last + 1);
}

std::size_t find_place(std::string_view text) {
  const std::size_t at = text.rfind(kPlace);
  require(at != std::string_view::npos,
          "the model's chat template leaves out what is said; use --raw");
  return at;
}

}  // namespace

std::vector<Token> encode_more(const Tokenizer& tokenizer, std::string_view text,
                               bool parse_special) {
  const EncodeOptions options{.add_special = false, .parse_special = parse_special};
  if (tokenizer.vocabulary().kind != Vocabulary::Kind::byte_bpe) {
    // A leading line end replaces the beginning of a text; no merge crosses it.
    const std::vector<Token> start = tokenizer.encode("\n", options);
    std::vector<Token> tokens = tokenizer.encode("\n" + std::string(text), options);
    if (tokens.size() >= start.size() && std::equal(start.begin(), start.end(), tokens.begin())) {
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(start.size()));
      return tokens;
    }
  }
  return tokenizer.encode(text, options);
}

QuestionForm QuestionForm::from_template(const Tokenizer& tokenizer, std::string_view system,
                                         std::string_view context) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", std::string(system)});
  std::string content(context);
  if (!content.empty()) content += "\n\n";
  messages.push_back({"user", content.append(kPlace)});
  const std::string text =
      ChatTemplate::of(tokenizer).format(messages, chat_options(tokenizer, true));
  const std::size_t at = find_place(text);
  return {true, text.substr(0, at), text.substr(at + kPlace.size())};
}

QuestionForm QuestionForm::of_text(std::string_view text) {
  if (text == "raw") return raw("");
  require(text.starts_with("chat:"), "a saved context of an unknown form '{}'", text.substr(0, 40));
  return {true, "", std::string(text.substr(5))};
}

std::vector<Token> QuestionForm::begin(const Tokenizer& tokenizer) const {
  return tokenizer.encode(before, {.add_special = !chat, .parse_special = chat});
}

std::vector<Token> QuestionForm::question(const Tokenizer& tokenizer, std::string_view text) const {
  return encode_more(tokenizer, std::string(said(text, chat)) + after, chat);
}

std::vector<Token> QuestionForm::whole(const Tokenizer& tokenizer, std::string_view text) const {
  return tokenizer.encode(before + std::string(said(text, chat)) + after,
                          {.add_special = !chat, .parse_special = chat});
}

std::size_t bytes_before_context(const Tokenizer& tokenizer, std::string_view system) {
  constexpr std::string_view context = "\uE0B0\uE0A3\uE0B0";
  const std::string before = QuestionForm::from_template(tokenizer, system, context).before;
  return std::min(before.find(context), before.size());
}

std::size_t tokens_before_context(const Tokenizer& tokenizer, bool chat, std::string_view system) {
  constexpr std::size_t kLeast = 4;
  if (!chat) return kLeast;
  QuestionForm form = QuestionForm::from_template(tokenizer, system, "");
  form.before.resize(std::min(form.before.size(), bytes_before_context(tokenizer, system)));
  return std::max(kLeast, form.begin(tokenizer).size());
}

std::size_t template_tokens(const Tokenizer& tokenizer) {
  if (tokenizer.vocabulary().chat_template.empty()) return 0;
  const QuestionForm form = QuestionForm::from_template(tokenizer, "", "a");
  const std::size_t whole = form.begin(tokenizer).size() + form.question(tokenizer, "b").size();
  const std::size_t text =
      encode_more(tokenizer, "a", false).size() + encode_more(tokenizer, "b", false).size();
  return whole - std::min(whole, text);
}

Conversation::Conversation(const Tokenizer& tokenizer, std::string system, std::string tools)
    : template_(ChatTemplate::of(tokenizer, !tools.empty())),
      options_(chat_options(tokenizer, true)) {
  options_.tools = std::move(tools);
  if (!system.empty()) messages_.push_back({"system", std::move(system)});
}

std::string Conversation::say(const std::string& text) {
  // A placeholder as the last answer shows the text that follows it. Templates differ in their
  // treatment of earlier answers only.
  const bool first = messages_.empty() || messages_.back().role != "assistant";
  std::string last;
  if (!first) {
    last = std::move(messages_.back().content);
    messages_.back().content = kPlace;
  }
  messages_.push_back({"user", text});
  std::string all = template_.format(messages_, options_);
  if (first) return all;
  messages_[messages_.size() - 2].content = std::move(last);
  return all.substr(find_place(all) + kPlace.size());
}

QuestionForm Conversation::next() const {
  constexpr std::string_view kMessage = "\uE0B1\uE0A2\uE0B1";  // beside that of the answer
  Conversation copy = *this;
  const std::string text = copy.say(std::string(kMessage));
  const std::size_t at = text.rfind(kMessage);
  require(at != std::string::npos, "the model's chat template leaves out what is said");
  return {true, text.substr(0, at), text.substr(at + kMessage.size())};
}

void Conversation::answered(const std::string& text) { messages_.push_back({"assistant", text}); }

}  // namespace ballast
