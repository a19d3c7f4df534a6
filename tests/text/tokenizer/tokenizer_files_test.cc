// The vocabularies and expected ids that llama.cpp's own tests use.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ballast/engine/tokenizer.h"
#include "paths.h"
#include "temp_dir.h"
#include "text/test_vocabulary.h"

namespace ballast {
namespace {

const std::filesystem::path kFolder = BALLAST_SHARED_DATA "/tokenizers";

class TokenizerFiles : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path file() const {
    return kFolder / (std::string("ggml-vocab-") + GetParam() + ".gguf");
  }
  void SetUp() override {
    if (!std::filesystem::exists(file())) GTEST_SKIP() << file() << " is absent";
  }
};

std::vector<std::string> texts_of(const std::filesystem::path& path) {
  const std::string all = test::read_text(path);
  const std::string mark = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (std::size_t at; (at = all.find(mark, begin)) != std::string::npos;) {
    texts.push_back(all.substr(begin, at - begin));
    begin = at + mark.size();
  }
  texts.push_back(all.substr(begin));
  return texts;
}

TEST_P(TokenizerFiles, GiveTheExpectedIds) {
  const Tokenizer tokenizer(read_vocabulary(file()));
  const auto texts = texts_of(file().string() + ".inp");
  std::ifstream expected(file().string() + ".out");
  ASSERT_GT(texts.size(), 40u);
  for (const std::string& text : texts) {
    std::string line;
    std::getline(expected, line);
    std::istringstream numbers(line);
    const std::vector<Token> ids(std::istream_iterator<Token>(numbers), {});
    EXPECT_EQ(tokenizer.encode(text, {.add_special = false}), ids) << "'" << text << "'";
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST_P(TokenizerFiles, GiveBackRandomText) {
  const Tokenizer tokenizer(read_vocabulary(file()));
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const std::string text = test::random_text(random, random() % 60);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    // DeepSeek's vocabulary cannot write the bytes that no UTF-8 has: U+FFFD stands for them.
    const std::string bytes = test::random_bytes(random, random() % 60);
    EXPECT_EQ(to_valid_utf8(tokenizer.decode(tokenizer.encode(bytes))), to_valid_utf8(bytes));
  }
}

TEST_P(TokenizerFiles, StreamTheSameText) {
  const Tokenizer tokenizer(read_vocabulary(file()));
  std::mt19937 random(12);
  for (int round = 0; round < 100; ++round) {
    const std::string text = test::random_text(random, 40);
    TokenStream stream(tokenizer);
    std::string streamed;
    for (Token token : tokenizer.encode(text)) {
      const std::string part = stream.push(token);
      EXPECT_EQ(to_valid_utf8(part), part);
      streamed += part;
    }
    EXPECT_EQ(streamed + stream.flush(), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFiles,
                         testing::Values("gpt-2", "llama-spm", "deepseek-llm", "phi-3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(VocabularyFolder, AFileLargerThanAnyVocabularyIsNotRead) {
  const TempDir dir;
  const std::filesystem::path file = dir / "tokenizer.json";
  std::ofstream{file};
  std::filesystem::resize_file(file, (std::uintmax_t{1} << 30) + 1);  // a hole
  EXPECT_THAT(error_of([&] { read_vocabulary(file); }),
              testing::HasSubstr("tokenizer.json: too large; at most 268435456 bytes"));
}

}  // namespace
}  // namespace ballast
