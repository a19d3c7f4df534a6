#include "ballast/engine/session.h"

#include <gmock/gmock.h>

#include "base/read_file.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

class SessionTest : public testing::Test {
 protected:
  static std::shared_ptr<const TextModel> model() {
    static const auto loaded =
        std::make_shared<const TextModel>(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf");
    return loaded;
  }
  static CacheOptions options(const char* method) {
    CacheOptions out;
    out.policy = Policy::parse(method);
    return out;
  }
  static std::vector<Token> tokens(std::string_view text) {
    return model()->tokenizer.encode(text);
  }
  static std::vector<float> logits(const Session& session) {
    return {session.logits().begin(), session.logits().end()};
  }
};

TEST_F(SessionTest, AnswersFromACompressedCacheAndStaysAsItIs) {
  CacheOptions small;
  small.policy = model()->model.policy_for("1/4");
  Session document(model(), small);
  document.read_context(read_file(BALLAST_SOURCE_DIR "/examples/record.txt"));
  const std::size_t tokens = document.tokens(), bytes = document.cache().bytes().used();
  EXPECT_LE(4 * bytes, model()->model.exact_bytes(document.cache()));
  std::string pieces;
  const Generated answer = document.ask("What is the register content of line gaudy-dove?", {},
                                        [&](std::string_view text) {
                                          pieces += text;
                                          return true;
                                        });
  EXPECT_THAT(answer.text, HasSubstr("37211"));
  EXPECT_EQ(pieces, answer.text);
  EXPECT_THAT(document.ask("What is the number in line digital-crystal?").text, HasSubstr("4174"));
  EXPECT_EQ(document.tokens(), tokens);
  EXPECT_EQ(document.cache().bytes().used(), bytes);
}

TEST_F(SessionTest, GoesOnWhereReadingWasStopped) {
  const std::vector<Token> text =
      tokens(read_file(BALLAST_SOURCE_DIR "/examples/record.txt").substr(0, 3000));
  Session whole(model(), {}), stopped(model(), {});
  EXPECT_TRUE(whole.read(text));
  PrefillOptions once;
  once.chunk = 64;
  once.progress = [](std::size_t, std::size_t) { return false; };
  EXPECT_FALSE(stopped.read(text, once));
  EXPECT_EQ(stopped.tokens(), 64u);
  EXPECT_EQ(stopped.unread(), text.size() - 64);
  EXPECT_EQ(stopped.positions_after(1), text.size() + 1);
  EXPECT_TRUE(stopped.read({}));
  EXPECT_EQ(stopped.unread(), 0u);
  EXPECT_EQ(logits(stopped), logits(whole));
}

TEST_F(SessionTest, ACopyGoesOnAlike) {
  const std::vector<Token> text = tokens("line calm apple"), more = tokens(" line big pear");
  Session session(model(), options("snapkv:rate=0.5,sink=0,window=2,observe=2"));
  session.read(text);
  Session copy = session.clone();  // the prompt goes on in both
  for (Session* one : {&session, &copy}) {
    one->read(more);
    one->finish_prompt();
    one->read(text);
  }
  EXPECT_EQ(session.cache().entries(), copy.cache().entries());
  EXPECT_LT(session.cache().entries(), session.tokens());
  EXPECT_EQ(logits(session), logits(copy));
}

TEST_F(SessionTest, AFileKeepsTheFormOfQuestions) {
  const TempDir dir;
  Session session(model(), options("h2o:rate=0.5"));
  session.read_context("line calm apple: REGISTER_CONTENT is <12>\n");
  session.save(dir.path() / "a.cache");
  const Session loaded = Session::load(model(), dir.path() / "a.cache");
  EXPECT_EQ(loaded.form().to_text(), session.form().to_text());
  EXPECT_EQ(loaded.ask("line calm apple?").text, session.ask("line calm apple?").text);
}

}  // namespace
}  // namespace ballast
