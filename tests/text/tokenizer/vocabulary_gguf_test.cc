#include "ballast/engine/gguf.h"
#include "ballast/error.h"
#include "temp_dir.h"
#include "text/test_vocabulary.h"

namespace ballast {
namespace {

using testing::HasSubstr;

class VocabularyGguf : public testing::Test {
 protected:
  template <typename Fill>
  Vocabulary read(const Fill& fill) {
    GgufWriter writer(path_);
    fill(writer);
    writer.commit();
    return read_vocabulary(path_);
  }
  template <typename Fill>
  std::string error_of(const Fill& fill) {
    try {
      read(fill);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  static void add_texts(GgufWriter& writer, const char* key, std::vector<std::string> texts) {
    writer.add_array(key, std::span<const std::string>(texts));
  }

  const TempDir parent_;
  const std::filesystem::path path_ = parent_ / "vocabulary.gguf";
};

TEST_F(VocabularyGguf, BytePairs) {
  const Vocabulary v = read([](GgufWriter& w) {
    w.add("tokenizer.ggml.model", "gpt2");
    w.add("tokenizer.ggml.pre", "llama-bpe");
    add_texts(w, "tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "Ġ", "ĠĠ"});
    const std::int32_t types[] = {1, 1, 1, 3, 0, 1};
    w.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
    add_texts(w, "tokenizer.ggml.merges", {"a b", "Ġ Ġ"});
    w.add("tokenizer.ggml.bos_token_id", std::uint32_t{3});
    w.add("tokenizer.ggml.eot_token_id", std::uint32_t{3});
    w.add("tokenizer.ggml.padding_token_id", std::uint32_t{0xffffffff});
    w.add("tokenizer.chat_template", "{{ bos_token }}");
  });
  EXPECT_EQ(v.kind, Vocabulary::Kind::byte_bpe);
  EXPECT_TRUE(v.add_bos);  // what the pre-tokeniser implies
  EXPECT_EQ(v.bos, 3);
  EXPECT_EQ(v.pad, kNoToken);
  EXPECT_EQ(v.chat_template, "{{ bos_token }}");
  const Tokenizer t(v);
  EXPECT_EQ(t.encode("ab"), (std::vector<Token>{3, 2}));
  EXPECT_TRUE(t.is_end(3));
}

TEST_F(VocabularyGguf, SentencePiece) {
  const auto fill = [](GgufWriter& w) {
    w.add("tokenizer.ggml.model", "llama");
    w.add("general.name", "Phi-3 mini");
    add_texts(w, "tokenizer.ggml.tokens", {"<unk>", "<s>", "<|user|>", "a", "\u2581a"});
    const float scores[] = {0, 0, 0, -2, -1};
    w.add_array("tokenizer.ggml.scores", std::span<const float>(scores));
    const std::int32_t types[] = {2, 3, 3, 1, 1};
    w.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
    w.add("tokenizer.ggml.add_space_prefix", false);
    w.add("tokenizer.ggml.add_bos_token", false);
  };
  const Vocabulary v = read(fill);
  EXPECT_EQ(v.space_prefix, Vocabulary::SpacePrefix::never);
  EXPECT_EQ(v.unk, 0);
  EXPECT_FALSE(v.add_bos);
  const Tokenizer t(v);
  EXPECT_EQ(t.encode("<|user|>\na", {.parse_special = true}), (std::vector<Token>{2, 3}));
}

TEST_F(VocabularyGguf, NamesWhatIsWrong) {
  EXPECT_THAT(error_of([](GgufWriter& w) { w.add("general.name", "x"); }),
              HasSubstr("tokenizer.ggml.model"));
  const auto with = [&](const char* model, std::vector<std::string> merges, std::int32_t type) {
    return error_of([&](GgufWriter& w) {
      w.add("tokenizer.ggml.model", model);
      w.add("tokenizer.ggml.pre", "gpt-2");
      add_texts(w, "tokenizer.ggml.tokens", {"a", "b"});
      w.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(&type, 1));
      add_texts(w, "tokenizer.ggml.merges", merges);
    });
  };
  EXPECT_THAT(with("bert", {}, 1), HasSubstr("'bert'"));
  EXPECT_THAT(with("gpt2", {"ab"}, 1), HasSubstr("'ab'"));
  EXPECT_THAT(with("gpt2", {"a b"}, 9), HasSubstr("token type 9"));
  EXPECT_THAT(with("llama", {}, 1), HasSubstr("tokenizer.ggml.scores"));
}

}  // namespace
}  // namespace ballast
