#include "ballast/engine/chat.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/fail.h"
#include "base/printable.h"
#include "formats/json_text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace ballast {
namespace {

// Templates use a few bytes for each byte of the conversation, and some thousand steps. What the
// template itself adds stays below four times its file.
constexpr std::uint64_t kBudget = std::uint64_t{32} << 20;
constexpr std::uint64_t kBudgetPerByte = 64, kBudgetPerTemplateByte = 4;
constexpr std::uint64_t kMemory = std::uint64_t{16} << 20;
constexpr std::uint64_t kMemoryPerByte = 16;
// Those of models have up to 30 KB. A parsed one takes forty times its text.
constexpr std::size_t kLargestTemplate = std::size_t{1} << 20;

struct Family {
  std::string_view name;
  std::string_view mark;  ///< a special token that identifies the family
  std::string_view text;
};

// The formats are those of the models' cards.
constexpr std::array<Family, 7> kFamilies = {{
    {"chatml", "<|im_start|>",
     "{% for m in messages %}"
     "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
     "{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    {"llama3", "<|start_header_id|>",
     "{{ bos_token }}"
     "{% for m in messages %}"
     "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim }}"
     "{{ '<|eot_id|>' }}"
     "{% endfor %}"
     "{% if add_generation_prompt %}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
     "{% endif %}"},
    // The format has no system message: its text precedes the first user message.
    {"gemma", "<start_of_turn>",
     "{% set ns = namespace(system='') %}"
     "{{ bos_token }}"
     "{% for m in messages %}"
     "{% if m.role == 'system' %}"
     "{% set ns.system = m.content | trim + '\n\n' %}"
     "{% else %}"
     "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
     "{{ ns.system + m.content | trim + '<end_of_turn>\n' }}"
     "{% set ns.system = '' %}"
     "{% endif %}"
     "{% endfor %}"
     "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"},
    {"phi3", "<|end|>",
     "{% for m in messages %}"
     "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}"
     "{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"},
    {"mistral", "[INST]",
     "{% set ns = namespace(system='') %}"
     "{{ bos_token }}"
     "{% for m in messages %}"
     "{% if m.role == 'system' %}"
     "{% set ns.system = m.content + '\n\n' %}"
     "{% elif m.role == 'user' %}"
     "{{ '[INST] ' + ns.system + m.content + ' [/INST]' }}"
     "{% set ns.system = '' %}"
     "{% else %}"
     "{{ ' ' + m.content | trim + eos_token }}"
     "{% endif %}"
     "{% endfor %}"},
    {"llama2", "",
     "{% set ns = namespace(system='') %}"
     "{% for m in messages %}"
     "{% if m.role == 'system' %}"
     "{% set ns.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' %}"
     "{% elif m.role == 'user' %}"
     "{{ bos_token + '[INST] ' + (ns.system + m.content) | trim + ' [/INST]' }}"
     "{% set ns.system = '' %}"
     "{% else %}"
     "{{ ' ' + m.content | trim + ' ' + eos_token }}"
     "{% endif %}"
     "{% endfor %}"},
    {"plain", "",
     "{{ bos_token }}"
     "{% for m in messages %}"
     "{% if m.role == 'system' %}"
     "{{ m.content + '\n\n' }}"
     "{% else %}"
     "{{ m.role | capitalize + ': ' + m.content + '\n' }}"
     "{% endif %}"
     "{% endfor %}"
     "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"},
}};

std::string text_of(const Tokenizer& tokenizer, Token token) {
  return token == kNoToken ? "" : tokenizer.vocabulary().pieces[token];
}

}  // namespace

struct ChatTemplate::Impl {
  std::shared_ptr<const jinja::Block> block;
  std::size_t size = 0;
  std::string source = {};  ///< the model's file; empty: the template is of no file

  [[noreturn]] void refuse(const Error& e) const {
    if (source.empty()) fail(e.code(), "chat template: {}", e.what());
    fail(e.code(), "{}: chat template: {}; --raw of run and eval uses no template", source,
         e.what());
  }

  void parse(std::string_view jinja) {
    try {
      require(jinja.size() <= kLargestTemplate, ErrorCode::over_limit,
              "{} bytes; at most {} are read", jinja.size(), kLargestTemplate);
      block = std::make_shared<const jinja::Block>(jinja::parse(jinja));
      size = jinja.size();
    } catch (const Error& e) {
      refuse(e);
    }
  }
};

ChatTemplate::ChatTemplate(std::string_view jinja) {
  Impl impl;
  impl.parse(jinja);
  impl_ = std::make_shared<const Impl>(std::move(impl));
}

ChatTemplate ChatTemplate::family(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return ChatTemplate(family.text);
  }
  fail("unknown chat template '{}'; known: {}", name, fmt::join(chat_families(), ", "));
}

ChatTemplate ChatTemplate::of(const Tokenizer& tokenizer, bool tools) {
  const Vocabulary& v = tokenizer.vocabulary();
  const std::string& own = tools && !v.tool_template.empty() ? v.tool_template : v.chat_template;
  if (!own.empty()) {
    ChatTemplate made = family("plain");
    Impl impl;
    impl.source = tokenizer.vocabulary().source;
    impl.parse(own);
    made.impl_ = std::make_shared<const Impl>(std::move(impl));
    return made;
  }
  for (const Family& family : kFamilies) {
    const Token mark = family.mark.empty() ? kNoToken : tokenizer.find(family.mark);
    if (mark != kNoToken && tokenizer.vocabulary().types[mark] != TokenType::normal) {
      return ChatTemplate(family.text);
    }
  }
  return family("plain");
}

std::string ChatTemplate::format(std::span<const ChatMessage> messages,
                                 const ChatOptions& options) const {
  jinja::List list;
  std::uint64_t size = 0;
  for (const ChatMessage& message : messages) {
    size += message.role.size() + message.content.size() + 64;
    jinja::Dict fields{{{"role", message.role}, {"content", message.content}}};
    if (!message.more.empty()) {
      size += message.more.size();
      const auto more = parse_json_text<Json>(message.more, "a message's fields");
      require(more.is_object(), "a message's fields are {}; expected a JSON object",
              more.type_name());
      for (const auto& [name, value] : more.items()) {
        if (name == "role") continue;
        if (name == "content") {
          fields.items[1].second = jinja::from_json(value);
        } else {
          fields.items.emplace_back(name, jinja::from_json(value));
        }
      }
    }
    list.push_back(std::move(fields));
  }
  jinja::Value tools = jinja::None{};
  if (!options.tools.empty()) {
    size += options.tools.size();
    const auto given = parse_json_text<Json>(options.tools, "tools");
    require(given.is_array() && !given.empty(), "tools: expected a JSON array of functions");
    tools = jinja::from_json(given);
  }
  jinja::Dict common{{{"messages", list},
                      {"add_generation_prompt", options.add_generation_prompt},
                      {"bos_token", options.bos_token},
                      {"eos_token", options.eos_token},
                      {"documents", jinja::None{}}}};
  if (!options.variables.empty()) {
    size += options.variables.size();
    const auto given = parse_json_text<Json>(options.variables, "the template's variables");
    require(given.is_object(), "the template's variables are {}; expected a JSON object",
            given.type_name());
    for (const auto& [name, value] : given.items()) {
      const bool ours = name == "tools" || std::ranges::any_of(common.items, [&](const auto& item) {
                          return *item.first.string() == name;
                        });
      require(!ours, "the template's variable '{}' is set already", printable(name));
      common.items.emplace_back(name, jinja::from_json(value));
    }
  }
  const auto variables = [&](jinja::Value said) {
    jinja::Dict all = common;
    all.items.emplace_back("tools", std::move(said));
    return all;
  };
  const auto render = [&](jinja::Value said) {
    const jinja::Budget budget = {
        kBudget + kBudgetPerByte * size + kBudgetPerTemplateByte * impl_->size,
        kMemory + kMemoryPerByte * size};
    return jinja::render(*impl_->block, variables(std::move(said)), budget);
  };
  try {
    std::string text = render(tools);
    const auto without = [&]() -> std::string {
      try {
        return render(jinja::None{});
      } catch (const Error&) {
        return {};  // a template that cannot do without them knows them
      }
    };
    require(options.tools.empty() || text != without(), ErrorCode::unsupported,
            "it leaves out the tools: this model has not learned to call functions");
    return text;
  } catch (const Error& e) {
    impl_->refuse(e);
  }
}

std::vector<std::string> chat_families() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

ChatOptions chat_options(const Tokenizer& tokenizer, bool add_generation_prompt) {
  return {add_generation_prompt, text_of(tokenizer, tokenizer.vocabulary().bos),
          text_of(tokenizer, tokenizer.vocabulary().eos)};
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                               bool add_generation_prompt, std::string tools) {
  ChatOptions options = chat_options(tokenizer, add_generation_prompt);
  options.tools = std::move(tools);
  return encode_chat(tokenizer, messages, options);
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                               const ChatOptions& options) {
  const std::string text =
      ChatTemplate::of(tokenizer, !options.tools.empty()).format(messages, options);
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

}  // namespace ballast
