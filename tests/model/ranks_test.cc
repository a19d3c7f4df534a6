// Layers divided among ranks: the logits of one process.
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
#include <set>
#include <string_view>
#include <thread>

#include "ballast/engine/calibration.h"
#include "ballast/engine/model.h"
#include "experiments/data/random_model.h"
#include "model/layer_share.h"
#include "model/reference_case.h"
#include "model/thread_ranks.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::Exchange, test::ThreadRanks;

/// For a model of three layers: a function of each, of the same size.
std::shared_ptr<const Calibration> three_layers(const Model& model) {
  std::vector<Calibration::Layer> layers(3);
  for (std::size_t l = 0; l < 3; ++l) {
    layers[l] = {Matrix(2, 64 + 4), {0.1f * static_cast<float>(l), 0.2f}};
    layers[l].weights[0][l] = 1.0f;
  }
  return std::make_shared<const Calibration>(calibration_key(model), std::move(layers));
}

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
                       const std::function<void(std::size_t rank, Model& model)>& work,
                       const std::filesystem::path& file = path()) {
    std::vector<std::exception_ptr> failures(exchange.size);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < exchange.size; ++r) {
      threads.emplace_back([&, r] {
        try {
          Model model(file);
          auto rank = std::make_shared<ThreadRanks>(exchange, r);
          if (file == path()) model.set_calibration(three_layers(model));
          model.split_layers(rank);
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
    count([&] { model.split_layers(std::make_shared<ThreadRanks>(models, 1)); },
          "different models");
  });
  Model model(path());
  count([&] { model.split_layers(std::make_shared<ThreadRanks>(models, 0)); }, "different models");
  other.join();
  on_ranks(texts, [&](std::size_t rank, Model& one) {
    Engine engine(one);
    Sequence sequence(one, options("exact"));
    count([&] { engine.prefill(sequence, tokens(40 + rank)); }, "different texts");
  });
  EXPECT_EQ(refused, 4U);
}

TEST_F(RanksTest, LayersDividedGiveTheBitsOfOneProcess) {
  CacheOptions stream = options("h2o:budget=40");
  stream.protocol = Protocol::stream;
  CacheOptions rolling = options("streaming-llm:budget=40,step=8");
  rolling.protocol = Protocol::stream;
  rolling.positions = Positions::rolling;
  for (const CacheOptions& o :
       {options("exact"), options("h2o:rate=0.5"), options("snapkv:rate=0.5"), stream, rolling}) {
    const auto expected = logits(Model(path()), o);
    for (std::size_t size : {1, 2, 3}) {
      Exchange exchange(size);
      std::vector<std::vector<std::vector<float>>> got(size);
      on_ranks(exchange, [&](std::size_t rank, Model& model) { got[rank] = logits(model, o); });
      for (std::size_t rank = 0; rank < size; ++rank) {
        EXPECT_EQ(got[rank], expected) << o.policy.to_string() << ", rank " << rank;
      }
    }
  }
}

// Of methods that draw at random, that look across layers, or that divide one budget among them a
// rank sees its layers alone: all ranks agree, but not with one process.
TEST_F(RanksTest, EveryMethodWorksWithLayersDivided) {
  const std::set<std::string_view> own = {"balancekv", "balancekv-stream", "clustergen", "uniform",
                                          "pyramidkv", "spatten",          "calibrated", "replay",
                                          "kvzip",     "kvzip-plus"};
  for (const MethodInfo* info : methods()) {
    if (info->window_policy == WindowPolicy::all) continue;
    const std::string name(info->name);
    for (const char* bytes : {":bytes=7/8", ":bytes=1/2"}) {
      const CacheOptions o = options((name + bytes).c_str());
      Exchange exchange(2);
      std::vector<std::vector<std::vector<float>>> got(2);
      on_ranks(exchange, [&](std::size_t rank, Model& model) { got[rank] = logits(model, o); });
      EXPECT_EQ(got[0], got[1]) << name;
      if (own.contains(name)) continue;
      EXPECT_EQ(got[0], logits(Model(path()), o)) << name;
    }
  }
}

// One budget for all layers is divided on each rank alone.
TEST_F(RanksTest, EachRankDividesItsPartOfABudget) {
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    CacheOptions whole = options("replay:bytes=12000B,chunk=32");
    whole.protocol = protocol;
    Exchange exchange(2);
    std::vector<std::vector<std::vector<float>>> got(2);
    std::vector<std::size_t> bytes(2);
    on_ranks(exchange, [&](std::size_t rank, Model& model) {
      const CacheOptions mine = options_of_layers(whole, model.file().config(), model.config());
      got[rank] = logits(model, mine);
      Engine engine(model);
      Sequence sequence(model, mine);
      engine.prefill(sequence, tokens(150));
      bytes[rank] = sequence.cache().bytes().total();
    });
    EXPECT_EQ(got[0], got[1]);
    EXPECT_GT(bytes[0], 0U);
    if (protocol == Protocol::prefill) {
      EXPECT_LE(bytes[0] + bytes[1], 12000U);
    }
  }
}

TEST_F(RanksTest, LayersOfEveryKindAreDivided) {
  for (const char* name : {"gemma2", "gemma3", "opt", "mpt", "gpt-oss", "lfm2-bias", "glm45"}) {
    const test::ReferenceCase reference(name);
    BALLAST_NEED_REFERENCE(reference);
    const auto read = [&](const Model& model) {
      Engine engine(model);
      CacheOptions o;
      o.expected_tokens = reference.tokens.size();
      Sequence sequence(model, o);
      return test::all_logits(engine, sequence, reference.tokens);
    };
    const std::vector<float> expected = read(Model(reference.hf()));
    Exchange exchange(2);
    std::vector<std::vector<float>> got(2);
    on_ranks(
        exchange, [&](std::size_t rank, Model& model) { got[rank] = read(model); }, reference.hf());
    EXPECT_EQ(got[0], expected) << name;
    EXPECT_EQ(got[1], expected) << name;
  }
}

TEST_F(RanksTest, ARankHasTheWeightsOfItsLayersAlone) {
  Exchange exchange(3);
  std::vector<MemoryEstimate> estimates(3);
  std::vector<std::size_t> first(3), limited(3);
  on_ranks(exchange, [&](std::size_t rank, Model& model) {
    first[rank] = model.layer_share()->first();
    estimates[rank] = model.estimate(options("exact"), 100);
    model.limit_weights(0);
    limited[rank] = model.estimate(options("exact"), 100).weights;
  });
  EXPECT_EQ(first, (std::vector<std::size_t>{0, 1, 2}));
  const Model whole(path());
  const MemoryEstimate all = whole.estimate(options("exact"), 100);
  for (const MemoryEstimate& one : estimates) {
    EXPECT_EQ(one.cache, all.cache / 3);
    EXPECT_LT(one.weights, all.weights * 2 / 3);
  }
  // A layer at work and two ahead are in memory in any case: the only one.
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(limited[r], estimates[r].weights);
  Exchange four(4);
  EXPECT_THROW(on_ranks(four, [](std::size_t, Model&) {}), Error);
}

TEST_F(RanksTest, ACalibrationIsDividedWithItsLayers) {
  const auto whole = three_layers(Model(path()));
  Matrix inputs(1, 64), heads(1, 32);
  for (std::size_t i = 0; i < 64; ++i) inputs[0][i] = 0.01f * static_cast<float>(i + 1);
  for (std::size_t i = 0; i < 32; ++i) heads[0][i] = 0.5f;
  const auto score = [&](const Calibration& of, std::size_t layer) {
    Matrix out(1, 2);
    of.score(layer, inputs.view(), heads.view(), heads.view(), out.view());
    return std::vector<float>{out[0][0], out[0][1]};
  };
  EXPECT_NE(score(*whole, 1), score(*whole, 2));
  Exchange exchange(3);
  std::vector<std::vector<float>> got(3);
  on_ranks(exchange,
           [&](std::size_t rank, Model& model) { got[rank] = score(*model.calibration(), 0); });
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(got[rank], score(*whole, rank));
}

}  // namespace
}  // namespace ballast
