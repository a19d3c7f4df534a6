#include "serve/token_calls.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "serve/asking.h"

namespace ballast::test {
namespace {

/// The mean of the last states, of length 1, by an engine that reads a token at a time.
std::vector<double> expected(const std::vector<Token>& tokens) {
  Engine engine(TestServer::mini());
  CacheOptions cache;
  cache.key_type = cache.value_type = StorageType::bf16;
  Sequence sequence(TestServer::mini(), cache);
  std::vector<double> sum(TestServer::mini().config().width);
  PrefillOptions options;
  options.chunk = 1;
  options.all_states = [&](std::size_t, ConstMatrix states) {
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += double{states[0][k]};
  };
  (void)engine.prefill(sequence, tokens, options);
  double square = 0;
  for (double x : sum) square += x * x;
  for (double& x : sum) x /= std::sqrt(square);
  return sum;
}

std::vector<float> decoded(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0;
  int count = 0;
  for (char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(digits.find(c));
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8));
  }
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

TEST(Embeddings, AreTheMeanOfTheLastStates) {
  const TestServer server;
  const std::string text = document(30);  // more than a chunk
  const std::vector<Token> tokens = server.tokenizer().encode(text);
  ASSERT_GT(tokens.size(), 256u);
  const std::vector<double> wanted = expected(tokens);
  const Json answer = server.post("/v1/embeddings", {{"input", {text, "The sky"}}}).json();
  EXPECT_EQ(answer["object"], "list");
  ASSERT_EQ(answer["data"].size(), 2u);
  EXPECT_EQ(answer["data"][1]["index"], 1);
  EXPECT_EQ(answer["usage"]["prompt_tokens"],
            tokens.size() + server.tokenizer().encode("The sky").size());
  const std::vector<float> got = answer["data"][0]["embedding"];
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(double{got[k]}, wanted[k], 1e-5) << k;

  const Json same = server.post("/v1/embeddings", {{"input", tokens}, {"model", "any"}}).json();
  EXPECT_EQ(same["data"][0]["embedding"], answer["data"][0]["embedding"]);
  const Json request = {{"input", text}, {"encoding_format", "base64"}, {"dimensions", got.size()}};
  const Json packed = server.post("/v1/embeddings", request).json();
  EXPECT_EQ(decoded(packed["data"][0]["embedding"]), got);
}

TEST(Embeddings, AreRefusedByName) {
  const TestServer server;
  const std::vector<std::pair<std::string, std::string>> all = {
      {"{}", "input"},
      {R"({"input":"x","dimensions":7})", "dimensions"},
      {R"({"input":[]})", "input"},
      {R"({"input":[1,-1]})", "input"},
      {R"({"input":3})", "input"},
      {Json{{"input", std::vector<std::string>(2049, "x")}}.dump(), "input"},
      {R"({"input":"x","encoding_format":"int8"})", "encoding_format"},
      {R"({"input":"x","task":"query"})", "task"}};
  for (const auto& [body, param] : all) {
    const Reply reply = send(server.port(), "POST", "/v1/embeddings", body);
    EXPECT_EQ(reply.status, 400) << body.substr(0, 100);
    EXPECT_EQ(reply.json()["error"]["param"], param) << reply.body;
  }
  EXPECT_EQ(server.post("/v1/embeddings", {{"input", document(4000)}}).code(),
            "context_length_exceeded");
}

TEST(Embeddings, OllamasAreCutToThePositionsUnlessTheRequestSaysNo) {
  const TestServer server;
  const std::string text = document(4000);
  std::vector<Token> tokens = server.tokenizer().encode(text);
  tokens.resize(TestServer::mini().config().max_positions);
  const Json wanted = server.post("/v1/embeddings", {{"input", tokens}}).json();
  const Json made = server.post("/api/embed", {{"input", text}}).json();
  EXPECT_EQ(made["embeddings"][0], wanted["data"][0]["embedding"]);
  EXPECT_EQ(made["prompt_eval_count"], tokens.size());
  EXPECT_EQ(server.post("/api/embed", {{"input", text}, {"truncate", false}}).status, 400);
  for (const char* nothing : {"{}", R"({"input":null})", R"({"input":""})", R"({"input":[]})"}) {
    const Reply reply = send(server.port(), "POST", "/api/embed", nothing);
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json()["embeddings"], Json::array());
  }
}

}  // namespace
}  // namespace ballast::test
