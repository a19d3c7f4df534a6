// ballast perplexity, tokenize and inspect on a tiny model with random weights.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "ballast/engine/sampler.h"
#include "paths.h"
#include "tiny_model.h"

namespace ballast {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::kContext;
using test::run_with;
using test::Said;
using test::Words;
using testing::HasSubstr;
using test::operator+;

// --- perplexity ---

class PerplexityModel : public test::TinyModel {
 protected:
  json perplexity(const Words& more, const std::string& text = kContext) const {
    write_text(dir_ / "text", text);
    const Said said = run_with(Words{"perplexity", "-m", model(), path("text"), "--json"} + more);
    EXPECT_EQ(said.exit_code, 0) << said.err;
    return said.exit_code == 0 ? said.json() : json();
  }
};

TEST_F(PerplexityModel, IsThatOfTheLogits) {
  const Model model(case_->gguf());
  Engine engine(model);
  Sequence sequence(model, {});
  const std::vector<Token> tokens = Tokenizer(read_vocabulary(case_->gguf())).encode(kContext);
  const std::vector<float> logits = test::all_logits(engine, sequence, tokens);
  auto mean_from = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t t = first; t < tokens.size(); ++t) {
      const std::span<const float> row(&logits[(t - 1) * case_->vocabulary], case_->vocabulary);
      sum += log_sum_exp(row) - row[tokens[t]];
    }
    return sum / static_cast<double>(tokens.size() - first);
  };
  const json stream = perplexity({"--protocol", "stream", "--cache-type", "f32"});
  EXPECT_EQ(stream.at("tokens"), tokens.size() - 1);
  EXPECT_NEAR(stream.at("nats_per_token").get<double>(), mean_from(1), 1e-5);
  EXPECT_NEAR(stream.at("perplexity").get<double>(), std::exp(mean_from(1)),
              1e-3 * std::exp(mean_from(1)));
  EXPECT_GT(stream.at("standard_error"), 0.0);
  const json prefill = perplexity({"--cache-type", "f32"});
  const std::size_t half = tokens.size() / 2;
  EXPECT_EQ(prefill.at("tokens"), tokens.size() - half);
  EXPECT_NEAR(prefill.at("nats_per_token").get<double>(), mean_from(half), 1e-5);
  const json later = perplexity({"--cache-type", "f32", "--prompt-tokens", "50"});
  EXPECT_NEAR(later.at("nats_per_token").get<double>(), mean_from(50), 1e-5);
}

TEST_F(PerplexityModel, SeesWhatAMethodForgets) {
  const double exact = perplexity({"--protocol", "stream"}).at("nats_per_token");
  const Words little = {"--protocol", "stream", "--method", "streaming-llm:budget=8,sink=2"};
  const json forgets = perplexity(little);
  EXPECT_GT(std::abs(forgets.at("nats_per_token").get<double>() - exact), 1e-3);
  EXPECT_LE(forgets.at("entries"), 8);
  EXPECT_LT(forgets.at("bytes").at("total"), forgets.at("exact_bytes"));
  EXPECT_NEAR(perplexity({"--protocol", "stream", "--method", "h2o:budget=128"})
                  .at("nats_per_token")
                  .get<double>(),
              exact, 1e-4);
}

TEST_F(PerplexityModel, IsMeasuredInTheMemoryGiven) {
  const std::size_t exact = count(kContext) / 2 * 192;
  const json half = perplexity({"--method", "streaming-llm", "--cache", "1/2"});
  EXPECT_LE(half.at("bytes").at("total").get<std::size_t>(),
            exact / 2 + (count(kContext) / 2 + 2) * 192);
  const json all = perplexity({"--method", "streaming-llm", "--memory", "8K"});
  EXPECT_LE(all.at("bytes").at("total"), 8192);
  EXPECT_EQ(all.at("tokens"), half.at("tokens"));
}

TEST_F(PerplexityModel, CutsLongTexts) {
  std::string text;
  for (int i = 0; i < 6; ++i) text += kContext;
  const json whole = perplexity({"--protocol", "stream"}, text);
  EXPECT_EQ(whole.at("length"), 128);
  EXPECT_EQ(whole.at("pieces"), 3);
  EXPECT_EQ(perplexity({"--protocol", "stream", "--length", "40"}, text).at("pieces"),
            (count(text) + 39) / 40);
  write_text(dir_ / "empty", "");
  expect_refusal(run_with({"perplexity", "-m", model(), path("empty")}), "at least 2 are needed");
  expect_refusal(run_with({"perplexity", "-m", model(), path("context"), "--length", "500"}),
                 "expected 2 to the model's 128 positions");
  expect_refusal(run_with({"perplexity", "-m", model(), path("context"), "--prompt-tokens", "100"}),
                 "100 are to be read before any is scored");
}

// --- tokenize ---

class TokenizeModel : public test::TinyModel {};

TEST_F(TokenizeModel, ThereAndBack) {
  const Said ids = run_with({"tokenize", "-m", model()}, "Hi \xc3\xa9\n");
  EXPECT_EQ(ids.out, "229 153 132 75 108 229 153 132 198 172 13\n");
  // The vocabulary has no piece for the space before a text: it comes back as it was spelled.
  EXPECT_EQ(run_with({"tokenize", "-m", model(), "--text"}, ids.out).out, "\u2581Hi\u2581\u00e9\n");
  EXPECT_EQ(run_with({"tokenize", "-m", model(), "--special"}, "A</s>").out.substr(0, 2), "1 ");
  const Said lines = run_with({"tokenize", "-m", model(), "--separator", "\\n"}, "A\n\nBc\n");
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 3);
  EXPECT_EQ(run_with({"tokenize", "-m", model(), "--text", "--separator", "\\n"}, lines.out).out,
            "\u2581"
            "A\n\n\u2581"
            "Bc\n");
  const json all = run_with({"tokenize", "-m", model(), "--json"}, "A").json();
  EXPECT_EQ(all.at("texts").at(0).at("ids").size(), all.at("texts").at(0).at("pieces").size());
  expect_refusal(run_with({"tokenize", "-m", model(), "--text"}, "12 x"), "'x' is not a token id");
  expect_refusal(run_with({"tokenize", "-m", model(), "--text"}, "99999"), "99999");
  expect_refusal(run_with({"tokenize", "-m", model(), "--text", "--ids"}, ""), "--ids", 2);
}

class TokenizeFiles : public testing::TestWithParam<const char*> {};

TEST_P(TokenizeFiles, GivesTheExpectedIds) {
  const std::string file =
      std::string(BALLAST_SHARED_DATA "/tokenizers/ggml-vocab-") + GetParam() + ".gguf";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is absent";
  const Words base = {"tokenize", "-m", file, "--separator", "\\n__ggml_vocab_test__\\n"};
  const std::string input = read_text(file + ".inp");
  const Said said = run_with(base, input);
  std::ifstream expected(file + ".out");
  std::istringstream got(said.out);
  std::size_t count = 0;
  for (std::string line, want; std::getline(expected, want); ++count) {
    ASSERT_TRUE(std::getline(got, line));
    std::istringstream a(line), b(want);
    EXPECT_EQ(std::vector<int>(std::istream_iterator<int>(a), {}),
              std::vector<int>(std::istream_iterator<int>(b), {}))
        << count;
  }
  EXPECT_GT(count, 40u);
  EXPECT_EQ(run_with(base + Words{"--text"}, said.out).out, input);
  EXPECT_EQ(run_with({"inspect", file, "--json"}).json().at("kind"), "vocabulary");
}

INSTANTIATE_TEST_SUITE_P(, TokenizeFiles,
                         testing::Values("deepseek-llm", "gpt-2", "llama-spm", "phi-3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// --- inspect ---

class InspectModel : public test::TinyModel {};

TEST_F(InspectModel, IsDescribed) {
  const json all = run_with({"inspect", model(), "--json"}).json();
  EXPECT_EQ(all.at("kind"), "model");
  EXPECT_EQ(all.at("name"), "tiny");
  EXPECT_EQ(all.at("layers"), 3);
  EXPECT_EQ(all.at("positions"), 128);
  EXPECT_EQ(all.at("vocabulary"), 293);
  EXPECT_EQ(all.at("tokenizer").at("tokens"), 293);
  EXPECT_EQ(all.at("tensor_types").at("F32").at("bytes"), all.at("parameters").get<int>() * 4);
  const json& costs = all.at("cache_per_1000_tokens").at("methods");
  ASSERT_EQ(costs.size(), methods().size());
  EXPECT_EQ(costs.at(0).at("method"), "exact");
  // layers · heads · (key and value) · numbers · 4 bytes
  EXPECT_EQ(costs.at(0).at("bytes").at("f32"), 1000.0 * 3 * 2 * 2 * 8 * 4);
  EXPECT_EQ(costs.at(0).at("bytes").at("bf16"), 1000.0 * 3 * 2 * 2 * 8 * 2);
  const std::string text = run_with({"inspect", model()}).out;
  for (const char* part : {"architecture", "Llama", "84,912", "SentencePiece, 293 tokens", "128",
                           "cache per 1,000 tokens", "h2o:rate=0.25"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  expect_refusal(run_with({"inspect", dir_.path().string()}), "config.json");
  write_text(dir_ / "cut.gguf", read_text(model()).substr(0, 5000));
  expect_refusal(run_with({"inspect", path("cut.gguf")}), "cut.gguf");
}

TEST_F(InspectModel, SaysWhatRunsAndWhatDoesNot) {
  EXPECT_EQ(run_with({"inspect", model(), "--json"}).json().at("unused_tensors").size(), 0u);
  std::string bytes = read_text(model());
  const std::size_t name = bytes.find("blk.2.attn_q.weight");
  ASSERT_NE(name, std::string::npos);
  std::string other = bytes;
  other.replace(other.find("llama"), 5, "loong");
  write_text(dir_ / "other.gguf", other);
  const Said said = run_with({"inspect", path("other.gguf")});
  EXPECT_EQ(said.exit_code, 1);
  EXPECT_THAT(said.err, HasSubstr("unknown architecture 'loong'"));
  EXPECT_THAT(said.out, testing::ContainsRegex("architecture +loong"));
  EXPECT_THAT(said.out, testing::ContainsRegex("runs +no"));
  bytes.replace(name, 5, "odd.2");
  write_text(dir_ / "without.gguf", bytes);
  EXPECT_THAT(run_with({"inspect", path("without.gguf")}).err,
              HasSubstr("the tensor 'blk.2.attn_q.weight' is missing"));
}

TEST_F(InspectModel, RefusesTheVocabularyThatRunRefuses) {
  std::string bytes = read_text(model());
  for (const std::string name : {"token_embd.weight", "output.weight"}) {
    // A name stands behind its length, and before the dimensions: 2, width, rows.
    const std::string start = static_cast<char>(name.size()) + std::string(7, '\0') + name;
    const std::size_t at = bytes.find(start);
    if (at == std::string::npos) continue;
    const std::uint64_t rows = 292;  // of 293
    std::memcpy(&bytes[at + start.size() + 12], &rows, 8);
  }
  write_text(dir_ / "fewer.gguf", bytes);
  const Said inspected = run_with({"inspect", path("fewer.gguf")});
  expect_refusal(inspected, "the vocabulary has 293 tokens, but the embedding has 292 rows");
  EXPECT_EQ(inspected.err, run_with({"run", "-m", path("fewer.gguf"), "x"}).err);
}

TEST(ModelCommands, EveryHelpEndsWithAnExample) {
  for (const char* command : {"run", "chat", "perplexity", "tokenize", "inspect"}) {
    const Said said = run_with({command, "--help"});
    EXPECT_EQ(said.exit_code, 0);
    EXPECT_THAT(said.out, HasSubstr(std::string("\nExample:\n  ")));
    expect_refusal(run_with({command, "--frobnicate"}), "--frobnicate", 2);
  }
}

}  // namespace
}  // namespace ballast
