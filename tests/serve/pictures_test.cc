// Pictures in requests, with a tiny model that sees.
#include <fmt/format.h>
#include <png.h>

#include "ballast/engine/session.h"
#include "serve/client.h"
#include "serve/formats/format.h"
#include "serve/pictures.h"
#include "vision/towers.h"

namespace ballast {
namespace {

using test::Json;
using test::kPicture;
using testing::HasSubstr;

std::string base64(std::span<const std::uint8_t> bytes) {
  constexpr const char* kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? bytes[i + k] : 0);
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kLetters[three >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

std::string png_base64(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<std::uint32_t>(picture.width);
  image.height = static_cast<std::uint32_t>(picture.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_get_memory_size(image, size, 0, picture.pixels.data(), 0, nullptr);
  std::vector<std::uint8_t> out(size);
  png_image_write_to_memory(&image, out.data(), &size, 0, picture.pixels.data(), 0, nullptr);
  return base64(std::span(out).first(size));
}

class ServePictures : public testing::Test {
 protected:
  void SetUp() override {
    static const test::Towers made;
    if (!made.made) GTEST_SKIP() << "tests/vision/towers.py needs python3 with numpy";
    static const TextModel model(made.dir / "qwen2");
    static const auto vision = std::make_shared<VisionModel>(model.model, model.tokenizer);
    model_ = &model;
    serve::ServerOptions options;
    options.vision = vision;
    server_.emplace(model.model, options, model.tokenizer);
  }

  static Json asked(const std::string& url) {
    return {{"messages",
             {{{"role", "user"},
               {"content",
                {{{"type", "image_url"}, {"image_url", {{"url", url}}}},
                 {{"type", "text"}, {"text", "what?"}}}}}}},
            {"max_tokens", 4},
            {"temperature", 0},
            {"ignore_eos", true}};
  }
  static std::string url(const Picture& picture = kPicture) {
    return "data:image/png;base64," + png_base64(picture);
  }

  const TextModel* model_ = nullptr;
  std::optional<test::TestServer> server_;
};

TEST_F(ServePictures, AreSeen) {
  const Json reply = server_->post("/v1/chat/completions", asked(url())).json();
  // Tokens of the template, the picture's 12 with two around them, a line end and the question.
  const auto text = encode_chat(model_->tokenizer, std::vector<ChatMessage>{{"user", "\nwhat?"}});
  EXPECT_EQ(reply["usage"]["prompt_tokens"], text.size() + 14) << reply.dump();
  EXPECT_EQ(reply["usage"]["completion_tokens"], 4);
  Picture other = kPicture;
  for (auto& x : other.pixels) x = static_cast<std::uint8_t>(255 - x);
  const Json different = server_->post("/v1/chat/completions", asked(url(other))).json();
  EXPECT_NE(different["choices"][0]["message"]["content"],
            reply["choices"][0]["message"]["content"]);
}

TEST_F(ServePictures, BelongToTheBeginningThatIsShared) {
  server_->post("/v1/chat/completions", asked(url()));
  const Json again = server_->post("/v1/chat/completions", asked(url())).json();
  const std::size_t all = again["usage"]["prompt_tokens"];
  EXPECT_GE(again["usage"]["prompt_tokens_details"]["cached_tokens"].get<std::size_t>(), all - 1);
  Picture other = kPicture;
  other.pixels[7] ^= 128;
  const Json different = server_->post("/v1/chat/completions", asked(url(other))).json();
  EXPECT_LT(different["usage"]["prompt_tokens_details"]["cached_tokens"].get<std::size_t>(),
            all - 12);
}

TEST_F(ServePictures, AreCompressedAndReadAgain) {
  Json body = asked(url(test::picture_of(300, 200)));
  body["messages"][0]["content"].push_back(body["messages"][0]["content"][0]);
  for (const char* method : {"snapkv:rate=0.5,sink=4,window=8", "replay:bytes=1/2"}) {
    body["cache"] = {{"method", method}};
    const Json reply = server_->post("/v1/chat/completions", body).json();
    EXPECT_EQ(reply["usage"]["completion_tokens"], 4) << reply.dump();
  }
}

TEST_F(ServePictures, StandInContexts) {
  const Json made = server_->post("/v1/contexts", {{"images", {url()}}, {"name", "a"}}).json();
  ASSERT_TRUE(made.contains("id")) << made.dump();
  EXPECT_GT(made["tokens"], 14);
  Json body = {{"messages", {{{"role", "user"}, {"content", "what?"}}}},
               {"context", made["id"]},
               {"max_tokens", 2},
               {"ignore_eos", true}};
  EXPECT_EQ(server_->post("/v1/chat/completions", body).json()["usage"]["completion_tokens"], 2);
}

TEST_F(ServePictures, ShowWhatIsKeptOfThem) {
  const TempDir dir;
  serve::ServerOptions options;
  options.vision = std::make_shared<VisionModel>(model_->model, model_->tokenizer);
  options.cache_dir = dir.path();
  std::string kept;
  {
    test::TestServer server(model_->model, options, model_->tokenizer);
    const std::string wide = url(test::picture_of(300, 200));
    const Json made =
        server.post("/v1/contexts", {{"images", {url(), wide}}, {"text", "two"}}).json();
    kept = "/v1/contexts/" + made["id"].get<std::string>() + "/kept";
    const Json seen = server.get(kept).json();
    const Json& pictures = seen["pictures"];
    ASSERT_EQ(pictures.size(), 2u) << seen.dump();
    const std::size_t first = pictures[0]["begin"];
    EXPECT_EQ(
        pictures[0],
        (Json{{"begin", first}, {"columns", 2}, {"rows", 1}, {"side", 2}, {"thumbnail", true}}));
    EXPECT_EQ(pictures[1], (Json{{"begin", first + 12 + 3},
                                 {"columns", 3},
                                 {"rows", 2},
                                 {"side", 2},
                                 {"thumbnail", true}}));
    ASSERT_EQ(seen["tokens"].size(), made["tokens"]);
    EXPECT_EQ(seen["tokens"][first + 12 + 1], "\n");
    EXPECT_EQ(seen["tokens"][first + 15 + 28 + 2], "t");
    EXPECT_EQ(seen["tokens"][first], "");
  }
  test::TestServer again(model_->model, options, model_->tokenizer);
  EXPECT_EQ(again.get(kept).json()["pictures"].size(), 2u);
}

TEST_F(ServePictures, ThatCannotBeReadAreRefused) {
  const auto refusal = [&](const Json& body) {
    const auto reply = server_->post("/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 400);
    return reply.json()["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(refusal(asked("https://a.example/b.png")), HasSubstr("fetched from nowhere"));
  EXPECT_THAT(refusal(asked("data:image/png;base64,AAAA")), HasSubstr("no picture in JPEG"));
  EXPECT_THAT(refusal({{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}}),
              HasSubstr("a data URL is missing"));
  Json twice = asked(url());
  twice["messages"][0]["content"][1]["text"] = "<IMG_CONTEXT> what?";
  EXPECT_THAT(refusal(twice), HasSubstr("2 places for pictures"));
  const test::TestServer blind;
  const auto reply = blind.post("/v1/chat/completions", asked(url()));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("this model sees no pictures"));
}

TEST_F(ServePictures, ComeByEveryApi) {
  const std::string data = png_base64(kPicture);
  const std::size_t tokens =
      server_->post("/v1/chat/completions", asked(url())).json()["usage"]["prompt_tokens"];
  const Json anthropic = {
      {"max_tokens", 2},
      {"messages",
       {{{"role", "user"},
         {"content",
          {{{"type", "image"},
            {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", data}}}},
           {{"type", "text"}, {"text", "what?"}}}}}}}};
  const Json usage = server_->post("/v1/messages", anthropic).json()["usage"];
  EXPECT_EQ(usage["input_tokens"].get<std::size_t>() +
                usage["cache_read_input_tokens"].get<std::size_t>(),
            tokens);
  const Json responses = {{"max_output_tokens", 2},
                          {"input",
                           {{{"role", "user"},
                             {"content",
                              {{{"type", "input_image"}, {"image_url", url()}},
                               {{"type", "input_text"}, {"text", "what?"}}}}}}}};
  EXPECT_EQ(server_->post("/v1/responses", responses).json()["usage"]["input_tokens"], tokens);
  const Json ollama = {
      {"stream", false},
      {"options", {{"num_predict", 2}}},
      {"messages", {{{"role", "user"}, {"content", "what?"}, {"images", {data}}}}}};
  EXPECT_EQ(server_->post("/api/chat", ollama).json()["prompt_eval_count"], tokens);
  const Json generated = {{"stream", false},
                          {"options", {{"num_predict", 2}}},
                          {"prompt", "what?"},
                          {"images", {data}}};
  EXPECT_EQ(server_->post("/api/generate", generated).json()["prompt_eval_count"], tokens);
}

TEST_F(ServePictures, ComeInResultsOfTools) {
  const std::string data = png_base64(kPicture);
  const Json read = {{"role", "user"}, {"content", "Read."}};
  const Json image = {
      {"type", "image"},
      {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", data}}}};
  const Json anthropic = {
      {"max_tokens", 2},
      {"messages",
       {read,
        {{"role", "assistant"},
         {"content",
          {{{"type", "tool_use"}, {"id", "t"}, {"name", "read"}, {"input", Json::object()}}}}},
        {{"role", "user"},
         {"content",
          {{{"type", "tool_result"},
            {"tool_use_id", "t"},
            {"content", {{{"type", "text"}, {"text", "a"}}, image}}}}}}}}};
  const Json call = {
      {"id", "t"}, {"type", "function"}, {"function", {{"name", "read"}, {"arguments", "{}"}}}};
  const Json openai = {
      {"max_tokens", 2},
      {"messages",
       {read,
        {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
        {{"role", "tool"},
         {"tool_call_id", "t"},
         {"content",
          {{{"type", "text"}, {"text", "a"}},
           {{"type", "image_url"}, {"image_url", {{"url", url()}}}}}}}}}};
  const Json responses = {
      {"max_output_tokens", 2},
      {"input",
       {read,
        {{"type", "function_call"}, {"call_id", "t"}, {"name", "read"}, {"arguments", "{}"}},
        {{"type", "function_call_output"},
         {"call_id", "t"},
         {"output",
          {{{"type", "input_text"}, {"text", "a"}},
           {{"type", "input_image"}, {"image_url", url()}}}}}}}};
  const Json said = server_->post("/v1/chat/completions", openai).json()["usage"];
  const std::size_t tokens = said["prompt_tokens"];
  EXPECT_GT(tokens, 14u) << said.dump();
  const Json usage = server_->post("/v1/messages", anthropic).json()["usage"];
  EXPECT_EQ(usage["input_tokens"].get<std::size_t>() +
                usage["cache_read_input_tokens"].get<std::size_t>(),
            tokens);
  EXPECT_EQ(server_->post("/v1/responses", responses).json()["usage"]["input_tokens"], tokens);
  const test::TestServer blind;
  const auto refused = blind.post("/v1/messages", anthropic);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("this model sees no pictures"));
}

}  // namespace
}  // namespace ballast
