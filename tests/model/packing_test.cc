#include "ballast/engine/packing.h"

#include <gmock/gmock.h>

#include "ballast/engine/context_file.h"
#include "ballast/engine/session.h"
#include "base/read_file.h"
#include "model/identity_basis.h"
#include "paths.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

constexpr const char* kMini = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";

class Packing : public testing::Test {
 protected:
  std::shared_ptr<const TextModel> model() {
    if (!model_) {
      model_ = std::make_shared<const TextModel>(test::model_with_basis(kMini, dir_.path()));
    }
    return model_;
  }
  static CacheOptions options(std::string_view method, StorageType type = StorageType::bf16) {
    CacheOptions out;
    out.policy = Policy::parse(method);
    out.key_type = out.value_type = type;
    return out;
  }
  Session read(const CacheOptions& options) {
    Session out(model(), options);
    out.read_context(read_file(BALLAST_SOURCE_DIR "/examples/record.txt"));
    return out;
  }

  TempDir dir_;
  std::shared_ptr<const TextModel> model_;
};

TEST_F(Packing, APackedContextAnswersAsTheExactOneDoes) {
  const Session exact = read(options("exact"));
  exact.save(dir_ / "whole");
  exact.save(dir_ / "packed", "1/4");
  exact.save(dir_ / "small", "1/16");
  EXPECT_LT(2 * std::filesystem::file_size(dir_ / "small"),
            std::filesystem::file_size(dir_ / "whole"));
  const Session packed = Session::load(model(), dir_ / "packed");
  EXPECT_EQ(packed.tokens(), exact.tokens());
  EXPECT_TRUE(std::ranges::equal(packed.text(), exact.text()));
  EXPECT_EQ(packed.form().to_text(), exact.form().to_text());
  for (const char* question : {"What is the register content of line gaudy-dove?",
                               "What is the number in line digital-crystal?"}) {
    EXPECT_EQ(packed.ask(question).text, exact.ask(question).text);
  }
}

TEST_F(Packing, AContextGoesOnInTheFormThatIsAskedFor) {
  const Session exact = read(options("exact"));
  exact.save(dir_ / "packed", "1/4");
  const CacheOptions q4 = options("exact", StorageType::q4);
  const Session small = Session::load(model(), dir_ / "packed", nullptr, &q4);
  EXPECT_EQ(small.cache().options().key_type, StorageType::q4);
  EXPECT_LT(3 * small.cache().bytes().used(), exact.cache().bytes().used());
  exact.save(dir_ / "whole");
  EXPECT_THAT(error_of([&] { Session::load(model(), dir_ / "whole", nullptr, &q4); }),
              HasSubstr("not packed"));
  const CacheOptions quarter = options("calibrated:bytes=1/4");
  const Session chosen = Session::load(model(), dir_ / "packed", nullptr, &quarter);
  EXPECT_LE(chosen.cache().bytes().used(), model()->model.exact_bytes(exact.cache()) / 4);
  EXPECT_EQ(chosen.tokens(), exact.tokens());
  EXPECT_FALSE(chosen.ask("What is the number in line digital-crystal?").text.empty());
}

TEST_F(Packing, OnlyCachesWithEveryTokenArePacked) {
  const Session small = read(options("streaming-llm:budget=128"));
  EXPECT_THAT(error_of([&] { small.save(dir_ / "x", "1/4"); }), HasSubstr("every token"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "x"));
}

TEST_F(Packing, AMissingBasisIsSaid) {
  read(options("exact")).save(dir_ / "packed", "1/4");
  const auto bare = std::make_shared<const TextModel>(kMini);
  ASSERT_EQ(find_pack_codec(bare->model), nullptr);
  Session session(bare, options("exact"));
  session.read_context("Hello");
  for (const std::string& error : {error_of([&] { session.save(dir_ / "x", "1/16"); }),
                                   error_of([&] { Session::load(bare, dir_ / "packed"); })}) {
    EXPECT_THAT(error, HasSubstr("make one with: ballast calibrate -m"));
  }
  EXPECT_EQ(default_pack_preset(bare->model), PackPreset{});
}

TEST_F(Packing, PresetsAreThoseOfTheBasis) {
  EXPECT_EQ(pack_preset(model()->model, "1/16").divisor, 16u);
  EXPECT_EQ(default_pack_preset(model()->model).divisor, 16u);
  EXPECT_EQ(default_pack_preset(model()->model, 32).divisor, 16u);
  EXPECT_EQ(default_pack_preset(model()->model, 8).divisor, 4u);
  EXPECT_THAT(error_of([&] { pack_preset(model()->model, "1/17"); }),
              HasSubstr("expected off or one of 1/4, 1/16"));
}

TEST_F(Packing, ABasisOfAnotherModelOrADamagedOneIsRefused) {
  const std::filesystem::path file = dir_ / "model.gguf.pack";
  model();
  PackBasis other = test::identity_basis(model()->model);
  other.model = "another";
  other.save(file);
  EXPECT_THAT(error_of([&] { find_pack_basis(model()->model); }),
              HasSubstr("a basis for packing of another"));
  std::string text = read_text(file);
  text[text.size() / 2] ^= 1;
  write_text(file, text);
  EXPECT_THAT(error_of([&] { find_pack_basis(model()->model); }), HasSubstr("damaged"));
}

TEST_F(Packing, AContextIsDescribedWithoutBeingUnpacked) {
  const Session exact = read(options("exact"));
  exact.save(dir_ / "packed", "1/16");
  exact.save(dir_ / "whole");
  const SavedContext packed = describe_context(dir_ / "packed", model()->model);
  const SavedContext whole = describe_context(dir_ / "whole", model()->model);
  EXPECT_EQ(packed.form, whole.form);
  EXPECT_EQ(packed.tokens, whole.tokens);
  EXPECT_EQ(packed.exact_bytes, whole.exact_bytes);
  EXPECT_GE(loaded_bytes(dir_ / "packed"), exact.cache().bytes().used());
}

TEST_F(Packing, ThreadsDoNotChangeAFile) {
  const auto text = read_file(BALLAST_SOURCE_DIR "/examples/record.txt");
  std::string first;
  for (int threads : {1, 3}) {
    CacheOptions o = options("exact");
    o.pool = std::make_shared<ThreadPool>(threads);
    Session session(model(), o);
    session.read_context(text);
    session.save(dir_ / "x", "1/16");
    if (first.empty()) first = read_text(dir_ / "x");
    EXPECT_EQ(read_text(dir_ / "x"), first);
  }
}

}  // namespace
}  // namespace ballast
