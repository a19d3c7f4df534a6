// Models and generation through the C ABI, against the same calls of the library.
#include <string>

#include "ballast.h"
#include "ballast/engine/chat.h"
#include "ballast/engine/generate.h"
#include "ballast/engine/gguf.h"
#include "ballast/engine/model.h"
#include "model/identity_basis.h"
#include "paths.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

const std::string kModel = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";
const std::string kText =
    "line brave-otter: REGISTER_CONTENT is <23114>\nline calm-tower: REGISTER_CONTENT is <871>\n";

class CModel : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ballast_model_load(kModel.c_str(), &model_), BALLAST_OK) << ballast_last_error();
  }
  ~CModel() override {
    ballast_context_free(context_);
    ballast_model_free(model_);
  }

  std::vector<Token> tokens(const std::string& text) {
    std::size_t count = 0;
    EXPECT_EQ(ballast_tokenize(model_, text.data(), text.size(), true, false, nullptr, 0, &count),
              BALLAST_OK);
    std::vector<Token> out(count);
    EXPECT_EQ(
        ballast_tokenize(model_, text.data(), text.size(), true, false, out.data(), count, &count),
        BALLAST_OK);
    return out;
  }
  /// Reads the text of the test with this method.
  void read(const char* method) {
    ballast_cache_params params = ballast_cache_default_params();
    params.method = method;
    ASSERT_EQ(ballast_context_new(model_, &params, &context_), BALLAST_OK) << ballast_last_error();
    const std::vector<Token> ids = tokens(kText);
    ASSERT_EQ(ballast_context_read(context_, ids.data(), ids.size()), BALLAST_OK);
  }
  std::string answer(ballast_context* context, std::size_t max_tokens,
                     ballast_finish* finish = nullptr) {
    ballast_generate_params params = ballast_generate_default_params();
    params.max_tokens = max_tokens;
    params.ignore_end = true;
    std::string out;
    EXPECT_EQ(ballast_context_generate(
                  context, &params,
                  [](const char* text, std::size_t length, void* user_data) {
                    static_cast<std::string*>(user_data)->append(text, length);
                    return true;
                  },
                  &out, finish),
              BALLAST_OK)
        << ballast_last_error();
    return out;
  }

  ballast_model* model_ = nullptr;
  ballast_context* context_ = nullptr;
};

TEST_F(CModel, GeneratesAsTheLibrary) {
  for (const char* method : {"exact", "uniform:rate=0.5", "replay:bytes=1/2"}) {
    SCOPED_TRACE(method);
    read(method);
    const Model model(kModel);
    const Tokenizer tokenizer(read_vocabulary(*model.file().gguf()));
    Engine engine(model);
    CacheOptions options;
    options.policy = Policy::parse(method);
    options.key_type = options.value_type = StorageType::bf16;
    Sequence sequence(model, options);
    const std::vector<Token> ids = tokenizer.encode(kText);
    EXPECT_EQ(tokens(kText), ids);
    std::vector<float> logits = engine.prefill(sequence, ids, {.finish_prompt = false});
    EXPECT_EQ(std::vector<float>(ballast_context_logits(context_),
                                 ballast_context_logits(context_) + logits.size()),
              logits);
    engine.finish_prompt(sequence, {replay_wording(tokenizer, false), {}});
    GenerateOptions asked;
    asked.max_tokens = 12;
    asked.ignore_end = true;
    asked.text_start = false;
    const Generated expected = generate(engine, sequence, tokenizer, logits, asked);
    ballast_finish finish = BALLAST_FINISH_END;
    EXPECT_EQ(answer(context_, 12, &finish), expected.text);
    EXPECT_EQ(finish, BALLAST_FINISH_LENGTH);
    EXPECT_EQ(ballast_context_tokens(context_), sequence.tokens());
    EXPECT_EQ(ballast_cache_tokens(ballast_context_cache(context_), 0), sequence.tokens());
    // The last token of the answer is read before what follows it.
    ASSERT_EQ(ballast_context_read(context_, ids.data() + 1, 1), BALLAST_OK);
    engine.decode(sequence, expected.tokens.back().chosen.token, logits);
    engine.decode(sequence, ids[1], logits);
    EXPECT_EQ(std::vector<float>(ballast_context_logits(context_),
                                 ballast_context_logits(context_) + logits.size()),
              logits);
    ballast_context_free(context_);
    context_ = nullptr;
  }
}

std::size_t bytes_of(const ballast_cache* cache) {
  ballast_cache_bytes bytes = {};
  bytes.size = sizeof bytes;
  EXPECT_EQ(ballast_cache_get_bytes(cache, &bytes), BALLAST_OK);
  return bytes.used;
}

TEST_F(CModel, CompactsWhereItIs) {
  ballast_cache_params params = ballast_cache_default_params();
  params.method = "replay:bytes=1G,sink=1,window=1";
  params.protocol = BALLAST_STREAM;
  ASSERT_EQ(ballast_context_new(model_, &params, &context_), BALLAST_OK) << ballast_last_error();
  std::vector<Token> text;
  for (int i = 0; i < 20; ++i) {
    for (Token token : tokens("line calm apple")) text.push_back(token);
  }
  ASSERT_EQ(ballast_context_read(context_, text.data(), text.size()), BALLAST_OK);
  const ballast_cache* cache = ballast_context_cache(context_);
  EXPECT_EQ(ballast_context_compact(context_, 1), BALLAST_INVALID_ARGUMENT);
  const std::size_t bytes = bytes_of(cache) / 3;
  ASSERT_EQ(ballast_context_compact(context_, bytes), BALLAST_OK) << ballast_last_error();
  EXPECT_LE(bytes_of(cache), bytes);
  EXPECT_EQ(ballast_context_tokens(context_), text.size());
  EXPECT_FALSE(answer(context_, 4).empty());
}

TEST_F(CModel, AShortTextHasNoMeasure) {
  read("streaming-llm:budget=32,sink=4,window=8");
  double kl = 0;
  ASSERT_EQ(ballast_context_finish_prompt_measured(context_, &kl), BALLAST_OK)
      << ballast_last_error();
  EXPECT_TRUE(kl == -1 || kl >= 0);
  EXPECT_NE(ballast_context_finish_prompt_measured(context_, &kl), BALLAST_OK) << "it has ended";
  EXPECT_EQ(ballast_context_finish_prompt_measured(context_, nullptr), BALLAST_INVALID_ARGUMENT);
}

TEST_F(CModel, ASizeIsChosenWhenThePromptEnds) {
  ballast_cache_params params = ballast_cache_default_params();
  params.bytes = "auto";
  ballast_context* chosen = nullptr;
  ASSERT_EQ(ballast_context_new(model_, &params, &chosen), BALLAST_OK) << ballast_last_error();
  std::string records;
  for (int i = 0; i < 60; ++i) {
    records += "Record " + std::to_string(i) + " has " + std::to_string(i * 7919 % 9973) + ".\n";
  }
  const std::vector<Token> text = tokens(records);
  ASSERT_EQ(ballast_context_read(chosen, text.data(), text.size()), BALLAST_OK);
  double kl = 0;
  ASSERT_EQ(ballast_context_finish_prompt_measured(chosen, &kl), BALLAST_OK)
      << ballast_last_error();
  EXPECT_LE(kl, 0.01) << "or -1: it stays exact";
  ballast_context* copy = nullptr;
  ASSERT_EQ(ballast_context_clone(chosen, &copy), BALLAST_OK);
  EXPECT_EQ(answer(copy, 4), answer(chosen, 4));
  ballast_context_free(copy);
  ballast_context_free(chosen);
  params.method = "exact";
  EXPECT_NE(ballast_context_new(model_, &params, &chosen), BALLAST_OK);
}

TEST_F(CModel, PackedFilesNeedABasisAndGoOn) {
  const TempDir dir;
  const std::string path = dir / "packed";
  read("exact");
  ASSERT_EQ(ballast_context_finish_prompt(context_), BALLAST_OK);
  EXPECT_NE(ballast_context_save_packed(context_, path.c_str(), "1/16"), BALLAST_OK);
  EXPECT_NE(std::string(ballast_last_error()).find("ballast calibrate"), std::string::npos);
  EXPECT_EQ(ballast_context_save_packed(context_, path.c_str(), nullptr), BALLAST_INVALID_ARGUMENT);
  const std::string model =
      test::model_with_basis(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf", dir.path());
  ballast_model* with_basis = nullptr;
  ASSERT_EQ(ballast_model_load(model.c_str(), &with_basis), BALLAST_OK);
  ballast_context* context = nullptr;
  ASSERT_EQ(ballast_context_new(with_basis, nullptr, &context), BALLAST_OK);
  const std::vector<Token> text = tokens("line calm-ruby: register content is 1234");
  ASSERT_EQ(ballast_context_read(context, text.data(), text.size()), BALLAST_OK);
  ASSERT_EQ(ballast_context_finish_prompt(context), BALLAST_OK);
  ASSERT_EQ(ballast_context_save_packed(context, path.c_str(), "1/16"), BALLAST_OK)
      << ballast_last_error();
  ballast_context* loaded = nullptr;
  ASSERT_EQ(ballast_context_load(with_basis, path.c_str(), nullptr, &loaded), BALLAST_OK)
      << ballast_last_error();
  EXPECT_EQ(ballast_context_tokens(loaded), text.size());
  ballast_context_free(loaded);
  ballast_cache_params params = ballast_cache_default_params();
  params.method = "calibrated";
  params.bytes = "1G";
  ASSERT_EQ(ballast_context_load(with_basis, path.c_str(), &params, &loaded), BALLAST_OK)
      << ballast_last_error();
  EXPECT_EQ(ballast_context_tokens(loaded), text.size());
  ballast_context_free(loaded);
  ballast_context_free(context);
  ballast_model_free(with_basis);
}

TEST_F(CModel, CopiesAndFilesGoOnAlike) {
  const TempDir dir;
  const std::string path = dir.path() / "text.cache";
  read("balancekv:rate=0.5");
  ballast_context* copy = nullptr;
  EXPECT_EQ(ballast_context_save(context_, path.c_str()), BALLAST_INVALID_ARGUMENT);
  ASSERT_EQ(ballast_context_finish_prompt(context_), BALLAST_OK) << ballast_last_error();
  EXPECT_EQ(ballast_context_finish_prompt(context_), BALLAST_INVALID_ARGUMENT);
  ASSERT_EQ(ballast_context_clone(context_, &copy), BALLAST_OK);
  ASSERT_EQ(ballast_context_save(context_, path.c_str()), BALLAST_OK) << ballast_last_error();
  ballast_context* loaded = nullptr;
  ASSERT_EQ(ballast_context_load(model_, path.c_str(), nullptr, &loaded), BALLAST_OK)
      << ballast_last_error();
  EXPECT_EQ(ballast_context_logits(loaded), nullptr);
  // A loaded context has no logits until it reads: the same question to all three.
  const std::vector<Token> question = tokens("line calm");
  for (ballast_context* context : {context_, copy, loaded}) {
    ASSERT_EQ(ballast_context_read(context, question.data(), question.size()), BALLAST_OK);
  }
  const std::string text = answer(context_, 8);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(answer(copy, 8), text);
  EXPECT_EQ(answer(loaded, 8), text);
  ballast_context_free(copy);
  ballast_context_free(loaded);
}

TEST_F(CModel, AnAnswerIsCutByItsReader) {
  read("exact");
  ballast_generate_params params = ballast_generate_default_params();
  params.ignore_end = true;
  ballast_finish finish = BALLAST_FINISH_END;
  int pieces = 0;
  ASSERT_EQ(ballast_context_generate(
                context_, &params,
                [](const char*, std::size_t, void* user_data) {
                  return ++*static_cast<int*>(user_data) < 3;
                },
                &pieces, &finish),
            BALLAST_OK);
  EXPECT_EQ(finish, BALLAST_FINISH_CANCELLED);
  EXPECT_EQ(pieces, 3);
}

TEST_F(CModel, TokensTextAndTemplates) {
  const std::vector<Token> ids = tokens("one two three");
  char text[64];
  std::size_t length = 0;
  ASSERT_EQ(ballast_detokenize(model_, ids.data(), ids.size(), false, text, sizeof(text), &length),
            BALLAST_OK);
  EXPECT_EQ(std::string(text, length), "one two three");
  EXPECT_EQ(ballast_detokenize(model_, ids.data(), ids.size(), false, text, 2, &length),
            BALLAST_INVALID_ARGUMENT);
  EXPECT_FALSE(ballast_is_end(model_, ids[1]));
  ballast_model_info info = {};
  info.size = sizeof(info);
  ASSERT_EQ(ballast_model_get_info(model_, &info), BALLAST_OK);
  EXPECT_EQ(info.layers, Model(kModel).config().layers);
  EXPECT_TRUE(ballast_is_end(model_, info.eos));
  const ballast_message messages[] = {{"user", "Hello"}};
  std::string chat(1000, '\0');
  ASSERT_EQ(ballast_chat_format(model_, messages, 1, true, chat.data(), chat.size(), &length),
            BALLAST_OK)
      << ballast_last_error();
  chat.resize(length);
  const Tokenizer tokenizer(read_vocabulary(std::filesystem::path(kModel)));
  EXPECT_EQ(chat, ChatTemplate::of(tokenizer).format(std::vector<ChatMessage>{{"user", "Hello"}},
                                                     chat_options(tokenizer)));
}

TEST(CModelErrors, NameTheFile) {
  ballast_model* model = nullptr;
  EXPECT_EQ(ballast_model_load("/no/such/model.gguf", &model), BALLAST_IO);
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("/no/such/model.gguf"));
  EXPECT_EQ(model, nullptr);
  ballast_context* context = nullptr;
  EXPECT_EQ(ballast_context_new(nullptr, nullptr, &context), BALLAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace ballast
