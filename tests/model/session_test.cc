#include "ballast/engine/session.h"

#include <gmock/gmock.h>

#include <map>

#include "ballast/engine/calibration.h"
#include "ballast/error.h"
#include "ballast/threads.h"
#include "base/read_file.h"
#include "cache/held_memory.h"
#include "paths.h"
#include "support.h"
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

// Eight subagents on one text hold its rows once, and read on as it does itself: to the bit.
TEST_F(SessionTest, CopiesShareWhatWasRead) {
  for (const char* method : {"exact", "keydiff:budget=512"}) {
    Session parent(model(), options(method));
    parent.read_context(read_file(BALLAST_SOURCE_DIR "/examples/record.txt"));
    std::map<const void*, std::size_t> held;
    std::vector<Session> copies;
    for (int i = 0; i < 8; ++i) copies.push_back(parent.clone());
    const std::vector<Token> more = tokens(" line one more");
    parent.read(more);
    for (Session& copy : copies) {
      copy.read(more);
      EXPECT_TRUE(std::ranges::equal(copy.text(), parent.text()));
      EXPECT_EQ(logits(copy), logits(parent)) << method;
      for (const auto& [address, bytes] : held_memory(copy.cache())) held[address] = bytes;
    }
    std::size_t all = 0;
    for (const auto& [address, bytes] : held) all += bytes;
    const std::size_t one = parent.cache().bytes().used(), token = one / parent.cache().entries();
    EXPECT_LT(all, one + copies.size() * 256 * token) << method << ", of " << parent.tokens();
  }
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

TEST_F(SessionTest, ATextIsWhatItShouldBeWhateverWasReadBefore) {
  const std::vector<Token> all =
      tokens(read_file(BALLAST_SOURCE_DIR "/examples/record.txt").substr(0, 3000));
  const auto first = [&](std::size_t count) {
    return std::vector<Token>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  };
  std::vector<Token> changed = first(500);
  changed[300] = all[301] == all[300] ? all[302] : all[301];
  for (const char* method : {"exact", "streaming-llm:budget=64"}) {
    CacheOptions given = options(method);
    given.protocol = Protocol::stream;
    Session session(model(), given);
    std::size_t read = 0;
    const auto sync = [&](const std::vector<Token>& text) {
      EXPECT_TRUE(session.sync(text, {.progress = [&](std::size_t done, std::size_t) {
                                 read = done;
                                 return true;
                               }}));
      EXPECT_TRUE(std::ranges::equal(session.text(), text));
      Session fresh(model(), given);
      fresh.read(text);
      EXPECT_EQ(logits(session), logits(fresh)) << method << ", " << text.size();
      return std::exchange(read, 0);
    };
    EXPECT_EQ(sync(first(400)), 400u);
    EXPECT_EQ(sync(first(500)), 100u) << "extended";
    EXPECT_EQ(sync(first(500)), 0u) << "as it is";
    const bool goes_back = std::string(method) == "exact";
    EXPECT_EQ(sync(changed), goes_back ? 200u : 500u);
    EXPECT_EQ(sync(first(200)), goes_back ? 1u : 200u) << "its last token's logits are wanted";
  }
}

CacheOptions stream_of(const std::string& method) {
  CacheOptions out;
  out.policy = Policy::parse(method);
  out.protocol = Protocol::stream;
  return out;
}

TEST_F(SessionTest, ACompactedConversationGoesOn) {
  Session session(model(), stream_of("replay:bytes=1G,window=16"));
  session.read_context(read_file(BALLAST_SOURCE_DIR "/examples/record.txt"));
  const std::size_t tokens = session.tokens();
  const std::size_t exact = model()->model.exact_bytes(session.cache());
  EXPECT_TRUE(session.compact(2 * exact));
  EXPECT_EQ(session.cache().entries(), tokens) << "nothing to do";
  EXPECT_TRUE(session.compact(exact / 4));
  EXPECT_LE(session.cache().bytes().used(), exact / 4);
  EXPECT_EQ(session.tokens(), tokens);
  EXPECT_THAT(session.ask("What is the register content of line gaudy-dove?").text,
              HasSubstr("37211"));
  Session plain(model(), {});
  plain.read(SessionTest::tokens("line calm apple"));
  EXPECT_THROW(plain.compact(1), Error);
}

TEST_F(SessionTest, CompactedStatesDoNotDependOnChunksOrThreads) {
  const std::string text = read_file(BALLAST_SOURCE_DIR "/examples/record.txt");
  // Its weights mean nothing.
  const auto scored = std::make_shared<TextModel>(*model());
  const ModelConfig& c = scored->model.config();
  std::vector<Calibration::Layer> layers(c.layers);
  for (Calibration::Layer& layer : layers) {
    layer.weights = test::random_matrix(c.kv_heads, c.width + 2 * c.kv_heads, 5, 0.1f);
    layer.offsets.assign(c.kv_heads, -3.0f);
  }
  scored->model.set_calibration(
      std::make_shared<Calibration>(calibration_key(scored->model), std::move(layers)));
  for (const char* method :
       {"calibrated:bytes=1G,sink=24,window=16", "replay:bytes=1G,window=16"}) {
    std::vector<std::byte> expected;
    for (const std::size_t chunk : {7u, 64u, 256u}) {
      CacheOptions options = stream_of(method);
      options.pool = std::make_shared<ThreadPool>(chunk == 64 ? 3 : 1);
      Session session(scored, options);
      PrefillOptions read;
      read.chunk = chunk;
      session.read(tokens(text.substr(0, 2000)), read);
      const std::size_t exact = scored->model.exact_bytes(session.cache());
      session.compact(exact / 4);
      EXPECT_LE(session.cache().bytes().used(), exact / 4);
      session.read(tokens(text.substr(2000, 500)), read);
      session.compact(exact / 5);
      const std::vector<std::byte> bytes = session.cache().to_bytes();
      if (expected.empty()) expected = bytes;
      EXPECT_TRUE(bytes == expected) << method << ", " << chunk;
    }
  }
}

TEST_F(SessionTest, JoinedDocumentsAnswerQuestionsOfEach) {
  const std::string text = read_file(BALLAST_SOURCE_DIR "/examples/record.txt");
  const std::size_t middle = text.find("line digital-crystal");
  for (const char* size : {"1/4", "100%"}) {
    CacheOptions options;
    options.policy = model()->model.policy_for(size);
    std::vector<Session> documents;
    std::size_t tokens = 0;
    for (const std::string& part : {text.substr(0, middle), text.substr(middle)}) {
      documents.emplace_back(model(), options).read_context(part);
      tokens += documents.back().tokens();
    }
    const Session joined = Session::join(std::move(documents));
    EXPECT_EQ(joined.tokens(),
              tokens - tokens_before_context(model()->tokenizer, joined.form().chat));
    EXPECT_TRUE(joined.prompt_finished());
    EXPECT_THAT(joined.ask("What is the register content of line gaudy-dove?").text,
                HasSubstr("37211"))
        << size;
    EXPECT_THAT(joined.ask("What is the number in line digital-crystal?").text, HasSubstr("4174"))
        << size;
  }
}

TEST_F(SessionTest, JoinedDocumentsReadAgainKnowThoseBefore) {
  const std::string text = read_file(BALLAST_SOURCE_DIR "/examples/record.txt");
  // A line that begins in one document and goes on in the next.
  const std::size_t cut = text.find("REGISTER_CONTENT is <4174>");
  ASSERT_NE(cut, std::string::npos);
  const TempDir folder;
  // Four tokens stand before a document.
  const std::vector<Token> parts[] = {tokens(text.substr(0, cut)),
                                      tokens("a b c d e\n" + text.substr(cut, 600)),
                                      tokens("a b c d e\n" + text.substr(cut + 600, 500))};
  const std::vector<Token> lines = tokens(text.substr(cut - 300, 900));  // of all three
  Session whole(model(), CacheOptions());
  for (std::size_t d = 0; d < 3; ++d) whole.read(std::span(parts[d]).subspan(d == 0 ? 0 : 4));
  const std::vector<float> losses = whole.score(lines);
  std::vector<double> differs;  // nats
  for (const double again : {0.0, 0.2, 0.999, 1.0}) {
    std::vector<Session> documents;
    for (const std::vector<Token>& part : parts) {
      Session one(model(), CacheOptions());
      one.read(part);
      one.finish_prompt();
      one.save(folder.path() / "document");  // a file keeps the tokens
      documents.push_back(Session::load(model(), folder.path() / "document"));
    }
    double done = 0;
    Session joined = Session::join(std::move(documents), again, [&](double now) { done = now; });
    EXPECT_EQ(done, again > 0 ? 1 : 0);
    joined.read(std::span(lines).first(1));
    const std::vector<float> found = joined.score(std::span(lines).subspan(1));
    EXPECT_EQ(joined.tokens(), whole.tokens());
    double sum = 0;
    for (std::size_t t = 0; t < found.size(); ++t) sum += std::abs(found[t] - losses[t + 1]);
    differs.push_back(sum);
    if (again == 1) {
      EXPECT_EQ(logits(joined), logits(whole));
    }
  }
  EXPECT_LT(differs[1], 0.5 * differs[0]);  // those that change least leave all of it
  EXPECT_LT(differs[2], 0.1 * differs[0]) << differs[0];
  EXPECT_EQ(differs[3], 0);
}

TEST_F(SessionTest, WhatIsNotKnownIsNotReadAgain) {
  const auto documents = [&](const char* method) {
    CacheOptions options;
    options.policy = Policy::parse(method);
    std::vector<Session> out;
    for (int d = 0; d < 2; ++d) {
      Session one(model(), options);
      one.read(tokens("line big pear: 13 is its number, line small plum: 14 is its number"));
      one.finish_prompt();
      out.push_back(std::move(one));
    }
    return out;
  };
  EXPECT_THROW(Session::join(documents("exact"), 1.5), Error);
  EXPECT_THROW(Session::join(documents("uniform:rate=0.5,window=2,sink=4"), 0.5), Error);
  std::vector<Session> unknown;
  for (Session& one : documents("exact")) {
    unknown.emplace_back(model(), Cache::parse(one.cache().to_bytes(), "memory"));
  }
  try {
    Session::join(std::move(unknown), 0.5);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the tokens of a document are not known"));
  }
}

TEST_F(SessionTest, ATextIsEmptyWhereNotAllTokensAreKnown) {
  Session session(model(), options("exact"));
  session.read(tokens("line calm apple: 12 is its number"));
  session.finish_prompt();
  Session loaded(model(), Cache::parse(session.cache().to_bytes(), "memory"));
  loaded.read(tokens(" and more"));
  EXPECT_FALSE(session.text().empty());
  EXPECT_TRUE(loaded.text().empty());
}

TEST_F(SessionTest, DocumentsOfSeveralFormsAreNotJoined) {
  std::vector<Session> documents;
  documents.emplace_back(model(), CacheOptions()).read_context("line calm apple: 12\n");
  documents.emplace_back(model(), CacheOptions()).read(tokens("line big pear: 13 is its number"));
  ASSERT_NE(documents[0].form().chat, documents[1].form().chat);
  documents[1].finish_prompt();
  EXPECT_THROW(Session::join(std::move(documents)), Error);
  EXPECT_THROW(Session::join({}), Error);
}

}  // namespace
}  // namespace ballast
