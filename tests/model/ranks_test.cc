// A text divided among ranks: the logits of one process, and what is sent.
#include "model/ranks.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "ballast/engine/model.h"
#include "experiments/attention/mean_entries.h"
#include "experiments/data/random_model.h"
#include "model/reference_case.h"
#include "model/thread_ranks.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::Exchange, test::ThreadRanks;

class RanksTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    write_random_model(
        parse_random_model("layers=3,width=64,heads=4,kv=2,head=16,hidden=128,vocabulary=300,"
                           "positions=4096,type=f32"),
        path());
  }
  static void TearDownTestSuite() { dir_.reset(); }
  static std::filesystem::path path() { return *dir_ / "model.gguf"; }

  static std::vector<Token> tokens(std::size_t count) {
    std::vector<Token> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Token>((i * i + 7 * i) % 299);
    return out;
  }
  static CacheOptions options(const char* method) {
    CacheOptions out;
    out.policy = Policy::parse(method);
    out.key_type = out.value_type = StorageType::bf16;
    return out;
  }

  /// The logits of a prompt, of a question after its end, and of two tokens more.
  static std::vector<std::vector<float>> logits(const Model& model, const CacheOptions& options) {
    Engine engine(model);
    Sequence sequence(model, options);
    PrefillOptions chunks;
    chunks.chunk = 24;
    std::vector<std::vector<float>> out = {engine.prefill(sequence, tokens(150), chunks)};
    Sequence copy = sequence.clone();
    out.push_back(engine.prefill(copy, tokens(9), {.finish_prompt = false}));
    for (Token token : {5, 6}) {
      out.push_back(out.back());
      engine.decode(copy, token, out.back());
    }
    EXPECT_EQ(copy.tokens(), 161U);
    EXPECT_EQ(sequence.tokens(), 150U);
    return out;
  }

  /// Runs `work` on each rank, with a model of its own. Rethrows what the last one throws.
  static void on_ranks(Exchange& exchange,
                       const std::function<void(std::size_t rank, Model& model)>& work) {
    std::vector<std::exception_ptr> failures(exchange.size);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < exchange.size; ++r) {
      threads.emplace_back([&, r] {
        try {
          Model model(path());
          model.set_ranks(std::make_shared<ThreadRanks>(exchange, r));
          work(r, model);
        } catch (...) {
          failures[r] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (failures.back()) std::rethrow_exception(failures.back());
  }

  static inline std::unique_ptr<TempDir> dir_;
};

TEST_F(RanksTest, GiveTheLogitsOfOneProcess) {
  const std::vector<std::vector<float>> expected = logits(Model(path()), options("exact"));
  for (std::size_t size : {1, 2, 3, 4}) {
    Exchange exchange(size);
    std::vector<std::vector<std::vector<float>>> got(size);
    on_ranks(exchange,
             [&](std::size_t rank, Model& model) { got[rank] = logits(model, options("exact")); });
    for (std::size_t rank = 0; rank < size; ++rank) {
      ASSERT_EQ(got[rank], got[0]) << "all ranks know the same logits";
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(test::largest_difference(got[0][i], expected[i]), 1e-4) << size << " " << i;
    }
  }
}

TEST_F(RanksTest, EachKeepsASummaryOfItsShare) {
  for (const char* method :
       {"uniform:rate=0.5,sink=2,window=4", "keydiff:rate=0.5,sink=2,window=4", "exact"}) {
    Exchange exchange(3);
    std::vector<std::size_t> kept(3), tokens(3);
    std::vector<std::vector<std::vector<float>>> got(3);
    on_ranks(exchange, [&](std::size_t rank, Model& model) {
      Engine engine(model);
      Sequence sequence(model, options(method));
      engine.prefill(sequence, RanksTest::tokens(150));
      kept[rank] = mean_entries(sequence.cache());
      tokens[rank] = sequence.cache().tokens();
      got[rank] = logits(model, options(method));
    });
    EXPECT_EQ(tokens[0] + tokens[1] + tokens[2], 150U);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(got[r], got[0]);
      if (std::string(method) == "exact") {
        EXPECT_EQ(kept[r], tokens[r]);
      } else {
        EXPECT_LT(kept[r], tokens[r] / 4 * 3) << method;
      }
    }
  }
}

TEST_F(RanksTest, ATokenCostsTwoNumbersAndAValueForEachQueryHead) {
  Exchange exchange(2);
  on_ranks(exchange, [](std::size_t, Model& model) {
    Engine engine(model);
    Sequence sequence(model, options("exact"));
    std::vector<float> logits = engine.prefill(sequence, tokens(60));
    engine.decode(sequence, 3, logits);
  });
  // Hashes of model and text first, then a call a layer.
  const std::size_t token = 4 * (2 + 16) * sizeof(float);
  EXPECT_EQ(exchange.gathered, (std::vector<std::size_t>{8, 8, token, token, token}));
  // Rank 0 has sent its keys and values in bf16, rank 1 the logits.
  const ModelConfig config = Model(path()).config();
  const std::size_t first = divide_text(config, 60, 2)[1];
  EXPECT_EQ(exchange.sent, 3 * first * 2 * (16 + 16) * 2 + 300 * sizeof(float));
}

TEST_F(RanksTest, OtherModelsAndOtherTextsAreRefusedByAll) {
  // The same weights in another type: a file of another size.
  write_random_model(
      parse_random_model("layers=3,width=64,heads=4,kv=2,head=16,hidden=128,vocabulary=300,"
                         "positions=4096,type=f16"),
      *dir_ / "f16.gguf");
  Exchange models(2), texts(2);
  std::size_t refused = 0;
  std::mutex mutex;
  const auto count = [&](const std::function<void()>& work, const char* what) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(what));
      const std::scoped_lock lock(mutex);
      ++refused;
    }
  };
  std::thread other([&] {
    Model model(*dir_ / "f16.gguf");
    count([&] { model.set_ranks(std::make_shared<ThreadRanks>(models, 1)); }, "different models");
  });
  Model model(path());
  count([&] { model.set_ranks(std::make_shared<ThreadRanks>(models, 0)); }, "different models");
  other.join();
  on_ranks(texts, [&](std::size_t rank, Model& one) {
    Engine engine(one);
    Sequence sequence(one, options("exact"));
    count([&] { engine.prefill(sequence, tokens(40 + rank)); }, "different texts");
  });
  EXPECT_EQ(refused, 4U);
}

TEST_F(RanksTest, SharesTakeEquallyLong) {
  ModelConfig config = Model(path()).config();
  const std::vector<std::size_t> begins = divide_text(config, 100'000, 4);
  for (std::size_t r = 0; r + 2 < begins.size(); ++r) {
    EXPECT_GT(begins[r + 1] - begins[r], begins[r + 2] - begins[r + 1]);
  }
  // So long that attention is nearly all work: the first of two reads √½ of the text.
  EXPECT_NEAR(static_cast<double>(divide_text(config, 100'000'000, 2)[1]), 70'710'678, 100'000);
  EXPECT_EQ(divide_text(config, 3, 3), (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_THROW(divide_text(config, 2, 3), Error);
}

TEST_F(RanksTest, MethodsThatWatchAttentionAreRefused) {
  for (const char* method : {"h2o:rate=0.5", "snapkv:rate=0.5", "replay:bytes=1/2"}) {
    Exchange exchange(2);
    EXPECT_THROW(
        on_ranks(exchange, [&](std::size_t, Model& model) { logits(model, options(method)); }),
        Error)
        << method;
  }
}

}  // namespace
}  // namespace ballast
