// Expected texts are written out by hand from what each template says.
#include "ballast/engine/chat.h"

#include "ballast/engine/question_form.h"
#include "ballast/error.h"
#include "paths.h"
#include "temp_dir.h"
#include "text/test_vocabulary.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using Messages = std::vector<ChatMessage>;

const Messages kShort = {{"user", "Hi "}};
const Messages kLong = {
    {"system", "Be brief."}, {"user", "Hi"}, {"assistant", " Hello "}, {"user", "Bye"}};
const ChatOptions kAsk{true, "<s>", "</s>"};
const ChatOptions kTell{false, "<s>", "</s>"};

class SharedTemplates : public testing::Test {
 protected:
  static std::string path(const std::string& name) {
    return BALLAST_SHARED_DATA "/chat-templates/" + name + ".jinja";
  }
  void SetUp() override {
    if (!std::filesystem::exists(path("google-gemma-2-2b-it"))) GTEST_SKIP() << "no templates";
  }
  static std::string format(const std::string& name, const Messages& messages,
                            const ChatOptions& options) {
    return ChatTemplate(test::read_text(path(name))).format(messages, options);
  }
};

TEST_F(SharedTemplates, Llama31) {
  const std::string name = "meta-llama-Llama-3.1-8B-Instruct";
  const std::string head =
      "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      "Today Date: 26 Jul 2024\n\n";
  EXPECT_EQ(format(name, kShort, kAsk),
            head +
                "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(format(name, kLong, kTell),
            head +
                "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
                "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>");
}

TEST_F(SharedTemplates, Qwen25) {
  const std::string name = "Qwen-Qwen2.5-7B-Instruct";
  EXPECT_EQ(format(name, kShort, kAsk),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            "assistant.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(format(name, kLong, kTell),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n Hello <|im_end|>\n<|im_start|>user\nBye<|im_end|>\n");
}

TEST_F(SharedTemplates, Gemma2) {
  const std::string name = "google-gemma-2-2b-it";
  EXPECT_EQ(format(name, kShort, kAsk),
            "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  const Messages talk(kLong.begin() + 1, kLong.end());
  EXPECT_EQ(format(name, talk, kTell),
            "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
            "<start_of_turn>user\nBye<end_of_turn>\n");
  try {
    format(name, kLong, kAsk);
    FAIL() << "a system message should be refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("System role not supported"));
  }
  EXPECT_THROW(format(name, {{"user", "a"}, {"user", "b"}}, kAsk), Error);
}

TEST_F(SharedTemplates, Phi35) {
  const std::string name = "microsoft-Phi-3.5-mini-instruct";
  EXPECT_EQ(format(name, kShort, kAsk), "<|user|>\nHi <|end|>\n<|assistant|>\n");
  EXPECT_EQ(format(name, kLong, kTell),
            "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n Hello <|end|>\n"
            "<|user|>\nBye<|end|>\n</s>");
}

TEST_F(SharedTemplates, MistralNemo) {
  const std::string name = "mistralai-Mistral-Nemo-Instruct-2407";
  EXPECT_EQ(format(name, kShort, kAsk), "<s>[INST]Hi [/INST]");
  EXPECT_EQ(format(name, kLong, kTell),
            "<s>[INST]Hi[/INST] Hello </s>[INST]Be brief.\n\nBye[/INST]");
  EXPECT_THROW(format(name, {{"assistant", "a"}}, kAsk), Error);
}

// Functions, a call and its result, as Jinja2 renders them.
TEST_F(SharedTemplates, ToolsAndCalls) {
  const std::string tools =
      R"([{"type": "function", "function": {"name": "weather", "description": "The weather of a town.",
           "parameters": {"type": "object", "properties": {"town": {"type": "string",
           "description": "Its name"}}, "required": ["town"]}}}])";
  const Messages messages = {
      {"user", "Rain in Bern?"},
      {"assistant", "", R"({"tool_calls": [{"id": "call00001", "type": "function",
                            "function": {"name": "weather", "arguments": {"town": "Bern"}}}]})"},
      {"tool", "yes", R"({"tool_call_id": "call00001", "name": "weather"})"}};
  const std::pair<const char*, const char*> cases[] = {
      {"meta-llama-Llama-3.1-8B-Instruct",
       R"~(<s><|start_header_id|>system<|end_header_id|>

Environment: ipython
Cutting Knowledge Date: December 2023
Today Date: 26 Jul 2024

<|eot_id|><|start_header_id|>user<|end_header_id|>

Given the following functions, please respond with a JSON for a function call with its proper arguments that best answers the given prompt.

Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.

{
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town.",
        "parameters": {
            "type": "object",
            "properties": {
                "town": {
                    "type": "string",
                    "description": "Its name"
                }
            },
            "required": [
                "town"
            ]
        }
    }
}

Rain in Bern?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

{"name": "weather", "parameters": {"town": "Bern"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>

"yes"<|eot_id|><|start_header_id|>assistant<|end_header_id|>

)~"},
      {"Qwen-Qwen2.5-7B-Instruct",
       R"~(<|im_start|>system
You are Qwen, created by Alibaba Cloud. You are a helpful assistant.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": {"name": "weather", "description": "The weather of a town.", "parameters": {"type": "object", "properties": {"town": {"type": "string", "description": "Its name"}}, "required": ["town"]}}}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
<|im_start|>user
Rain in Bern?<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "weather", "arguments": {"town": "Bern"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
yes
</tool_response><|im_end|>
<|im_start|>assistant
)~"},
      {"mistralai-Mistral-Nemo-Instruct-2407",
       R"~(<s>[AVAILABLE_TOOLS][{"type": "function", "function": {"name": "weather", "description": "The weather of a town.", "parameters": {"type": "object", "properties": {"town": {"type": "string", "description": "Its name"}}, "required": ["town"]}}}][/AVAILABLE_TOOLS][INST]Rain in Bern?[/INST][TOOL_CALLS][{"name": "weather", "arguments": {"town": "Bern"}, "id": "call00001"}]</s>[TOOL_RESULTS]{"content": yes, "call_id": "call00001"}[/TOOL_RESULTS])~"},
  };
  for (const auto& [name, expected] : cases) {
    EXPECT_EQ(format(name, messages, {true, "<s>", "</s>", tools}), expected) << name;
  }
}

TEST(ChatTemplate, ToolsReachTheTemplateOrAreRefused) {
  const Messages call = {{"user", "a"},
                         {"assistant", "x", R"({"content": null, "n": {"b": 1, "a": [2]}})"}};
  EXPECT_EQ(ChatTemplate("{{ tools[0].name }}{% for m in messages %}|{{ m.content is none }}"
                         "{{ m.n | tojson }}{% endfor %}")
                .format(std::span(call).last(1), {true, "", "", R"([{"name": "f"}])"}),
            R"(f|True{"b": 1, "a": [2]})");
  // Wherever the content stands, it alone is replaced.
  const Messages order = {{"user", "a", R"({"n": 7, "content": "b", "role": "x"})"}};
  EXPECT_EQ(ChatTemplate("{{ messages[0] }}").format(order, {}),
            "{'role': 'user', 'content': 'b', 'n': 7}");
  const auto said = [&](const std::string& tools, const std::string& more) {
    const Messages messages = {{"user", "a", more}};
    return error_of([&] {
      (void)ChatTemplate("{{ messages[0].content }}").format(messages, {true, "", "", tools});
    });
  };
  EXPECT_THAT(said(R"([{"name": "f"}])", ""), HasSubstr("it leaves out the tools"));
  EXPECT_THAT(said("{}", ""), HasSubstr("tools: expected a JSON array"));
  EXPECT_THAT(said("[", ""), HasSubstr("tools: not valid JSON"));
  EXPECT_THAT(said("", "[1]"), HasSubstr("expected a JSON object"));
}

TEST(ChatFamilies, WriteTheirFormats) {
  const auto format = [](const char* name, const Messages& messages, const ChatOptions& options) {
    return ChatTemplate::family(name).format(messages, options);
  };
  EXPECT_EQ(format("chatml", kLong, kAsk),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n Hello <|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(format("llama3", kShort, kAsk),
            "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(format("gemma", kLong, kAsk),
            "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
            "Hello<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(format("phi3", kShort, kTell), "<|user|>\nHi <|end|>\n");
  EXPECT_EQ(format("mistral", kLong, kAsk),
            "<s>[INST] Be brief.\n\nHi [/INST] Hello</s>[INST] Bye [/INST]");
  EXPECT_EQ(format("llama2", kLong, kAsk),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]");
  EXPECT_EQ(format("plain", kLong, kAsk),
            "<s>Be brief.\n\nUser: Hi\nAssistant:  Hello \nUser: Bye\nAssistant:");
  for (const std::string& name : chat_families()) {
    EXPECT_NO_THROW(ChatTemplate::family(name).format({}, kTell)) << name;
  }
  EXPECT_THROW(ChatTemplate::family("unheard-of"), Error);
}

TEST(ChatTemplate, IsTheModelsOwnOrThatOfItsTokens) {
  Vocabulary v = test::byte_vocabulary({});
  const auto chosen = [&] { return ChatTemplate::of(Tokenizer(v)).format(kShort, kTell); };
  EXPECT_EQ(chosen(), "<s>User: Hi \n");
  v.pieces.push_back("<|im_start|>");
  v.types.push_back(TokenType::control);
  EXPECT_EQ(chosen(), "<|im_start|>user\nHi <|im_end|>\n");
  v.chat_template = "{{ eos_token }}{{ messages[0].content }}";
  EXPECT_EQ(chosen(), "</s>Hi ");
  const Tokenizer t(v);
  EXPECT_EQ(encode_chat(t, kShort), (std::vector<Token>{v.eos, 'H', 'i', ' '}));
}

TEST(ChatTemplate, OfConversationsWithToolsMayBeAnother) {
  Vocabulary v = test::byte_vocabulary({});
  v.chat_template = "{{ messages[0].content }}";
  v.tool_template = "{% if tools %}{{ tools[0] }}{% endif %}{{ messages[0].content }}";
  const Tokenizer t(v);
  ChatOptions options = chat_options(t);
  EXPECT_EQ(t.decode(encode_chat(t, kShort, options)), "Hi ");
  options.tools = R"(["T"])";
  EXPECT_EQ(t.decode(encode_chat(t, kShort, options)), "THi ");
}

TEST(ChatTemplate, HasTheVariablesThatAreGiven) {
  const ChatTemplate t("{{ enable_thinking }} {{ other.a if other }} {{ messages | length }}");
  ChatOptions options = kTell;
  EXPECT_EQ(t.format(kShort, options), "  1");
  options.variables = R"({"enable_thinking": false, "other": {"a": 2}})";
  EXPECT_EQ(t.format(kShort, options), "False 2 1");
  for (const char* wrong : {"[]", R"({"messages": []})", R"({"tools": 1})", "{"}) {
    options.variables = wrong;
    EXPECT_THROW(t.format(kShort, options), Error) << wrong;
  }
}

TEST(QuestionForm, WhiteSpaceBehindAQuestionIsNotSaid) {
  Vocabulary v = test::byte_vocabulary({});
  v.chat_template = "<u>{{ messages[0].content | trim }}<a>";
  const Tokenizer t(v);
  const QuestionForm form = QuestionForm::from_template(t, "", "A text.");
  EXPECT_EQ(form.question(t, "What? \n"), form.question(t, "What?"));
  EXPECT_EQ(form.whole(t, "What?\t"), form.whole(t, "What?"));
  EXPECT_NE(form.question(t, " What?"), form.question(t, "What?"));
  EXPECT_EQ(form.question(t, "  ").size(), 2 + std::string("<a>").size());
  // Without a template a text is what it is.
  const QuestionForm raw = QuestionForm::raw("A text.");
  EXPECT_NE(raw.question(t, "What? "), raw.question(t, "What?"));
}

TEST(ChatTemplate, ErrorsSayThatItIsTheTemplate) {
  try {
    ChatTemplate("{% include 'x' %}");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("chat template: line 1: the tag 'include'"));
  }
}

TEST(ChatTemplate, ErrorsNameTheModelsFile) {
  Vocabulary v = test::byte_vocabulary({});
  v.source = "some.gguf";
  const auto error = [&](const std::string& text) -> std::string {
    v.chat_template = text;
    try {
      return encode_chat(Tokenizer(v), Messages{{"user", "Hi"}}).empty() ? "none" : "some";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_THAT(error("{% include 'x' %}"), HasSubstr("some.gguf: chat template: line 1: the tag"));
  EXPECT_THAT(error("{{ raise_exception('no') }}"), HasSubstr("some.gguf: chat template: line 1"));
  EXPECT_THAT(error("{{ raise_exception('no') }}"), HasSubstr("refuses: no; --raw"));
  EXPECT_LT(error("{{ raise_exception('x' * 100000) }}").size(), 700u);
  EXPECT_THAT(error(std::string((1 << 20) + 1, 'x')), HasSubstr("1048577 bytes; at most 1048576"));
}

TEST(ChatTemplate, LongConversationsAreNoTrouble) {
  const Messages book = {{"system", std::string(3'000'000, 'a')}, {"user", "?"}};
  const std::string text = ChatTemplate::family("llama2").format(book, kAsk);
  EXPECT_GT(text.size(), 3'000'000u);
}

}  // namespace
}  // namespace ballast
