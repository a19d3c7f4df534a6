// Contexts and beginnings that lie packed on disk.
#include <gmock/gmock.h>

#include <filesystem>

#include "ballast/engine/session.h"
#include "base/read_file.h"
#include "model/identity_basis.h"
#include "paths.h"
#include "serve/texts/contexts.h"
#include "serve/texts/prefix_files.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ServePacked : public testing::Test {
 protected:
  ServePacked()
      : model_(std::make_shared<const TextModel>(
            model_with_basis(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf", dir_.path()))),
        pack_(pack_preset(model_->model, "1/4")) {}

  Session read(const char* method) const {
    CacheOptions options;
    options.policy = Policy::parse(method);
    options.key_type = options.value_type = StorageType::bf16;
    Session out(model_, options);
    out.read_context(read_file(BALLAST_SOURCE_DIR "/examples/record.txt"));
    return out;
  }
  static std::string begin_of(const fs::path& file) { return read_text(file).substr(0, 8); }

  TempDir dir_;
  std::shared_ptr<const TextModel> model_;
  PackPreset pack_;
};

TEST_F(ServePacked, ExactContextsLiePackedAndAnswerAfterARestart) {
  serve::Memory memory(std::size_t{1} << 30);
  std::vector<std::string> refused;
  std::string exact, small;
  const auto made = [&](serve::Contexts& contexts, const Session& session) {
    serve::ContextInfo info;
    info.form = session.form().to_text();
    return contexts.add(info, session.cache().clone(), {}, session.text()).id;
  };
  const Session whole = read("exact");
  {
    serve::Contexts contexts(model_->model, memory, dir_ / "kept", refused, {}, 0, pack_);
    exact = made(contexts, whole);
    small = made(contexts, read("streaming-llm:budget=128"));
  }
  EXPECT_EQ(begin_of(dir_ / "kept" / (exact + ".cache")), "BALLASTP");
  EXPECT_EQ(begin_of(dir_ / "kept" / (small + ".cache")), "BALLASTC");
  serve::Contexts contexts(model_->model, memory, dir_ / "kept", refused, {}, 0, pack_);
  EXPECT_THAT(refused, testing::IsEmpty());
  const auto info = contexts.info(exact);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->tokens, whole.tokens());
  EXPECT_EQ(info->form, whole.form().to_text());
  const auto loaded = contexts.get(exact);
  ASSERT_NE(loaded, nullptr);
  Session session(model_, loaded->cache.clone());
  session.set_form(QuestionForm::of_text(info->form));
  EXPECT_THAT(session.ask("What is the register content of line gaudy-dove?").text,
              HasSubstr("37211"));
}

TEST_F(ServePacked, AServerOfAnEighthMakesAnEighthOfThem) {
  serve::Memory memory(std::size_t{1} << 30);
  std::vector<std::string> refused;
  const Session whole = read("exact");
  std::string id;
  {
    serve::Contexts contexts(model_->model, memory, dir_ / "kept", refused, {}, 0, pack_);
    serve::ContextInfo info;
    info.form = whole.form().to_text();
    id = contexts.add(info, whole.cache().clone(), {}, whole.text()).id;
  }
  CacheOptions small;
  small.policy = Policy::parse("calibrated:bytes=1/4");
  small.key_type = small.value_type = StorageType::bf16;
  serve::Contexts contexts(model_->model, memory, dir_ / "kept", refused, {}, 0, pack_,
                           serve::unpacked_form(small));
  EXPECT_THAT(contexts.info(id)->cache, HasSubstr("calibrated"));
  const auto loaded = contexts.get(id);
  ASSERT_NE(loaded, nullptr);
  EXPECT_LE(loaded->cache.bytes().used(), model_->model.exact_bytes(whole.cache()) / 4);
  EXPECT_EQ(loaded->cache.tokens(), whole.tokens());
  EXPECT_FALSE(serve::unpacked_form(whole.cache().options()).has_value());
  small.policy = Policy::parse("replay:bytes=1/4");  // would have to be read again
  EXPECT_FALSE(serve::unpacked_form(small).has_value());
}

TEST_F(ServePacked, ContextsWithoutTheirBasisAreLeftOutWithTheRemedy) {
  serve::Memory memory(std::size_t{1} << 30);
  std::vector<std::string> refused;
  {
    serve::Contexts contexts(model_->model, memory, dir_ / "kept", refused, {}, 0, pack_);
    const Session session = read("exact");
    serve::ContextInfo info;
    info.form = session.form().to_text();
    contexts.add(info, session.cache().clone(), {});
  }
  const TextModel bare(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf");
  serve::Contexts contexts(bare.model, memory, dir_ / "kept", refused);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_THAT(refused[0], HasSubstr("ballast calibrate -m"));
}

TEST_F(ServePacked, BeginningsLiePacked) {
  Session session = read("exact");
  auto prefix = std::make_shared<serve::Prefix>();
  prefix->kind = "k";
  prefix->tokens.assign(session.text().begin(), session.text().end());
  prefix->logits = {1, 2};
  prefix->cache = session.cache().clone();
  prefix->id = serve::new_id("pre_");
  {
    serve::PrefixFiles files(model_->model, dir_ / "kept", std::size_t{1} << 30, pack_);
    files.write(prefix, {});
  }
  EXPECT_EQ(begin_of(dir_ / "kept" / (prefix->id + ".cache")), "BALLASTP");
  serve::PrefixFiles files(model_->model, dir_ / "kept", std::size_t{1} << 30, pack_);
  auto found = files.arrived();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_GE(files.size(prefix->id), prefix->cache->bytes().used());
  ASSERT_TRUE(files.load(found[0]));
  EXPECT_EQ(found[0].cache->tokens(), session.tokens());
  EXPECT_EQ(found[0].logits, prefix->logits);
  EXPECT_EQ(found[0].tokens, prefix->tokens);
}

}  // namespace
}  // namespace ballast::test
