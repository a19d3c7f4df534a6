// Sequences with methods: alone, in batches, saved, stopped, rolling. What cannot be done is
// refused.
#include "ballast/engine/model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "model/forward.h"
#include "model/reference_case.h"
#include "process_threads.h"
#include "support.h"

namespace ballast {
namespace {

using test::all_logits;
using test::error_of;
using test::largest_difference;
using test::process_threads;
using test::ReferenceCase;

Token argmax(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// A model of one case, open.
struct Fixture {
  explicit Fixture(const char* name) : reference(name) {
    if (!reference.made()) return;
    model.emplace(reference.hf());
    engine.emplace(*model);
  }
  const std::vector<Token>& tokens() const { return reference.tokens; }

  ReferenceCase reference;
  std::optional<Model> model;
  std::optional<Engine> engine;
};

TEST(Engine, StatesAreWhatTheOutputMakesLogitsOf) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  const std::vector<float> output = to_float(f.model->file().at(Weight::output));
  const std::size_t vocabulary = f.engine->vocabulary(), width = f.model->config().width;
  Sequence alone(*f.model, CacheOptions{});
  const std::vector<float> logits = all_logits(*f.engine, alone, f.tokens());
  for (std::size_t chunk : {1, 5, 100}) {
    Sequence sequence(*f.model, CacheOptions{});
    PrefillOptions options;
    options.chunk = chunk;
    std::size_t count = 0;
    options.all_states = [&](std::size_t first, ConstMatrix states) {
      ASSERT_EQ(first, count);
      ASSERT_EQ(states.cols, width);
      for (std::size_t i = 0; i < states.rows; ++i, ++count) {
        for (std::size_t t = 0; t < vocabulary; ++t) {
          double sum = 0;
          for (std::size_t k = 0; k < width; ++k) {
            sum += double{states[i][k]} * double{output[t * width + k]};
          }
          ASSERT_NEAR(sum, double{logits[count * vocabulary + t]}, 1e-4);
        }
      }
    };
    (void)f.engine->prefill(sequence, f.tokens(), options);
    EXPECT_EQ(count, f.tokens().size());
  }
}

// Without all_logits the last layer leaves out what no one asks for. What is left is the same.
TEST(Engine, LeavingOutWhatNobodyAsksForChangesNothing) {
  for (const char* name : {"llama", "gemma2", "neox", "mpt"}) {
    Fixture f(name);
    BALLAST_NEED_REFERENCE(f.reference);
    const std::size_t vocabulary = f.engine->vocabulary();
    for (const char* method :
         {"exact", "h2o:budget=9", "snapkv:budget=14,window=4,sink=2", "spatten:budget=30,window=2",
          "balancekv:budget=16,sink=2,window=4"}) {
      for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
        CacheOptions options;
        options.policy = Policy::parse(method);
        options.protocol = protocol;
        const auto read = [&](std::size_t chunk, bool all) {
          Sequence sequence(*f.model, options);
          std::vector<float> out(vocabulary);
          if (all) {
            const std::vector<float> rows = all_logits(*f.engine, sequence, f.tokens(), chunk);
            std::copy(rows.end() - static_cast<std::ptrdiff_t>(vocabulary), rows.end(),
                      out.begin());
          } else {
            out = f.engine->prefill(sequence, f.tokens(), {.chunk = chunk, .finish_prompt = false});
          }
          if (!sequence.prompt_finished()) sequence.finish_prompt();
          std::vector<float> next(vocabulary);
          for (int i = 0; i < 3; ++i) {
            f.engine->decode(sequence, f.tokens()[i], next);
            out.insert(out.end(), next.begin(), next.end());
          }
          return out;
        };
        for (std::size_t chunk : {1, 5, 100}) {
          EXPECT_EQ(read(chunk, false), read(chunk, true)) << name << " " << method << " " << chunk;
        }
      }
    }
  }
}

TEST(Engine, SequencesInABatchDoNotSeeEachOther) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  const std::size_t vocabulary = f.engine->vocabulary();
  // Sequence i begins at token 3i, joins at step i, leaves after 5 + 2i tokens, with its method.
  const char* methods[] = {"exact", "streaming-llm:budget=8,sink=2", "exact", "h2o:budget=9"};
  constexpr std::size_t kCount = 4;
  auto options = [&](std::size_t i) {
    CacheOptions o;
    o.policy = Policy::parse(methods[i]);
    o.protocol = i == 1 ? Protocol::stream : Protocol::prefill;
    return o;
  };
  auto prompt = [&](std::size_t i) { return std::span(f.tokens()).subspan(3 * i, 12 + i); };
  auto length = [](std::size_t i) { return 5 + 2 * i; };

  std::vector<std::vector<Token>> alone(kCount), together(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    Sequence sequence(*f.model, options(i));
    std::vector<float> logits = f.engine->prefill(sequence, prompt(i));
    while (alone[i].size() < length(i)) {
      alone[i].push_back(argmax(logits));
      f.engine->decode(sequence, alone[i].back(), logits);
    }
  }
  std::vector<std::unique_ptr<Sequence>> sequences(kCount);
  for (std::size_t step = 0; step < 20; ++step) {
    if (step < kCount) {
      sequences[step] = std::make_unique<Sequence>(*f.model, options(step));
      const auto logits = f.engine->prefill(*sequences[step], prompt(step));
      together[step].push_back(argmax(logits));
    }
    std::vector<Sequence*> active;
    std::vector<Token> next;
    std::vector<std::size_t> who;
    for (std::size_t i = 0; i < std::min(step + 1, kCount); ++i) {
      if (together[i].size() == length(i)) continue;
      active.push_back(sequences[i].get());
      next.push_back(together[i].back());
      who.push_back(i);
    }
    Matrix logits(active.size(), vocabulary);
    f.engine->decode(active, next, logits.view());
    for (std::size_t r = 0; r < who.size(); ++r) together[who[r]].push_back(argmax(logits[r]));
  }
  EXPECT_EQ(together, alone);
}

TEST(Engine, GoesOnWhenItsModelMovesAndEnds) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  const std::span<const Token> tokens = f.tokens();
  Sequence whole(*f.model, {});
  const std::vector<float> expected = f.engine->prefill(whole, tokens);
  auto model = std::make_unique<Model>(f.reference.hf());
  Engine engine(*model);
  Sequence sequence(*model, {});
  const PrefillOptions part{.finish_prompt = false};
  engine.prefill(sequence, tokens.first(5), part);
  auto moved = std::make_unique<Model>(std::move(*model));
  model.reset();
  engine.prefill(sequence, tokens.subspan(5, 5), part);
  EXPECT_EQ(engine.model().config().vocabulary, moved->config().vocabulary);
  moved.reset();
  EXPECT_EQ(engine.prefill(sequence, tokens.subspan(10)), expected);
}

TEST(Engine, EnginesInTwoThreadsHaveTheirOwnWorkers) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  const auto read = [&](Engine& engine) {
    Sequence sequence(*f.model, {});
    return engine.prefill(sequence, f.tokens());
  };
  const std::vector<float> expected = read(*f.engine);
  const std::size_t before = process_threads();
  {
    Engine engines[] = {Engine(*f.model, std::make_shared<ThreadPool>(3)),
                        Engine(*f.model, std::make_shared<ThreadPool>(2))};
    std::vector<float> seen[2];
    std::thread other([&] { seen[1] = read(engines[1]); });
    seen[0] = read(engines[0]);
    other.join();
    EXPECT_EQ(seen[0], expected);
    EXPECT_EQ(seen[1], expected);
    // Two workers of one, one of the other.
    EXPECT_EQ(process_threads(before + 3), before + 3);
  }
  EXPECT_EQ(process_threads(before), before);
}

TEST(Engine, ASmallBudgetBoundsTheCache) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  CacheOptions options;
  options.policy = Policy::parse("streaming-llm:budget=10,sink=3");
  options.protocol = Protocol::stream;
  Sequence sequence(*f.model, options);
  std::size_t most = 0;
  PrefillOptions prefill{.chunk = 1};
  prefill.progress = [&](std::size_t, std::size_t) {
    most = std::max(most, sequence.cache().entries());
    return true;
  };
  const auto logits = f.engine->prefill(sequence, f.tokens(), prefill);
  EXPECT_LE(most, 10u);
  EXPECT_EQ(sequence.tokens(), f.tokens().size());
  EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }));
}

TEST(Engine, ASavedSequenceGoesOn) {
  Fixture f("phi3-long");
  BALLAST_NEED_REFERENCE(f.reference);
  CacheOptions options;
  options.expected_tokens = f.tokens().size();
  Sequence sequence(*f.model, options);
  f.engine->prefill(sequence, std::span(f.tokens()).first(30));
  sequence.cache().save(f.reference.dir() / "saved");
  Sequence restored(*f.model, Cache::load(f.reference.dir() / "saved"));
  std::vector<float> a(f.engine->vocabulary()), b(a);
  f.engine->decode(sequence, 5, a);
  f.engine->decode(restored, 5, b);
  EXPECT_EQ(a, b);
  Fixture other("llama");
  EXPECT_THAT(error_of([&] { Sequence(*other.model, Cache::load(f.reference.dir() / "saved")); }),
              testing::HasSubstr("the cache is of another model"));
}

// A cache of another model would give answers, and wrong ones.
TEST(Engine, ACacheThatDiffersInOneNumberIsOfAnotherModel) {
  Fixture f("mpt");
  BALLAST_NEED_REFERENCE(f.reference);
  const CacheShape shape = f.model->cache_shape(0);
  ASSERT_GE(shape.alibi_slopes.size(), 2u);
  EXPECT_NO_THROW(Sequence(*f.model, Cache(shape, {})));
  const auto slope = [](CacheShape& s) { s.alibi_slopes.back() *= 1.5f; };
  const auto slopes = [](CacheShape& s) { s.alibi_slopes.clear(); };
  const auto layers = [](CacheShape& s) { ++s.layers; };
  const auto key_dim = [](CacheShape& s) { ++s.key_dim; };
  const auto value_dim = [](CacheShape& s) { ++s.value_dim; };
  const auto scale = [](CacheShape& s) { s.logits.scale *= 2; };
  const auto softcap = [](CacheShape& s) { s.logits.softcap = 30; };
  const auto windows = [](CacheShape& s) { s.sliding_windows.assign(s.layers, 4); };
  const auto heads = [](CacheShape& s) { ++s.kv_heads, s.alibi_slopes.clear(); };
  const auto group = [](CacheShape& s) { ++s.queries_per_kv_head, s.alibi_slopes.clear(); };
  const std::function<void(CacheShape&)> changes[] = {slope, slopes,  layers,  key_dim, value_dim,
                                                      scale, softcap, windows, heads,   group};
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    CacheShape other = shape;
    changes[i](other);
    EXPECT_THAT(error_of([&] { Sequence(*f.model, Cache(other, {})); }),
                testing::HasSubstr("the cache is of another model"))
        << "change " << i;
  }
}

TEST(Engine, StopsBetweenTokensWhenAsked) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  Sequence sequence(*f.model, {}), straight(*f.model, {});
  PrefillOptions options{.chunk = 8};
  std::vector<std::size_t> seen;
  options.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_EQ(total, 40u);
    seen.push_back(done);
    return done < 16;
  };
  EXPECT_TRUE(f.engine->prefill(sequence, f.tokens(), options).empty());
  EXPECT_EQ(seen, (std::vector<std::size_t>{8, 16}));
  EXPECT_EQ(sequence.tokens(), 16u);
  EXPECT_FALSE(sequence.prompt_finished());
  EXPECT_EQ(f.engine->prefill(sequence, std::span(f.tokens()).subspan(16)),
            f.engine->prefill(straight, f.tokens()));
}

TEST(Engine, RefusesWhatItCannotDo) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  Sequence sequence(*f.model, {});
  EXPECT_THAT(error_of([&] { f.engine->prefill(sequence, {}); }),
              testing::HasSubstr("a prompt without tokens"));
  for (Token bad : {-1, 293}) {
    EXPECT_THAT(error_of([&] {
                  f.engine->prefill(sequence, {&bad, 1});
                }),
                testing::HasSubstr("outside the model's vocabulary of 293"));
  }
  const std::vector<Token> longer(129, 5);
  EXPECT_THAT(error_of([&] { f.engine->prefill(sequence, longer); }),
              testing::HasSubstr("the prompt has 129 tokens after 0 already read, but the model "
                                 "has 128 positions"));
  EXPECT_EQ(sequence.tokens(), 0u);
  std::vector<float> logits = f.engine->prefill(sequence, std::span(longer).first(128));
  EXPECT_THAT(error_of([&] { f.engine->decode(sequence, 5, logits); }),
              testing::HasSubstr("a sequence of 129 tokens, but the model has 128 positions"));
  Sequence* twice[] = {&sequence, &sequence};
  Matrix rows(2, 293);
  EXPECT_THAT(error_of([&] {
                f.engine->decode(twice, std::vector<Token>{1, 2}, rows.view());
              }),
              testing::HasSubstr("twice"));
}

TEST(Rolling, IsTheSameWhileNothingIsForgotten) {
  for (const char* name : {"llama31", "gemma2", "mpt", "neox", "phi3-long", "qwen3"}) {
    Fixture f(name);
    BALLAST_NEED_REFERENCE(f.reference);
    CacheOptions options;
    options.expected_tokens = f.tokens().size();
    options.positions = Positions::rolling;
    Sequence sequence(*f.model, options);
    const std::vector<float> logits = all_logits(*f.engine, sequence, f.tokens(), 9);
    EXPECT_LT(largest_difference(logits, f.reference.logits), 1e-3) << name;
  }
}

TEST(Rolling, RunsBeyondTheModelsPositions) {
  Fixture f("llama");  // 128 positions
  BALLAST_NEED_REFERENCE(f.reference);
  for (const char* method : {"streaming-llm:budget=32,sink=4", "h2o:budget=32"}) {
    CacheOptions options;
    options.policy = Policy::parse(method);
    options.protocol = Protocol::stream;
    options.positions = Positions::rolling;
    Sequence sequence(*f.model, options);
    std::vector<Token> text;
    while (text.size() < 200) text.insert(text.end(), f.tokens().begin(), f.tokens().end());
    std::vector<float> logits = f.engine->prefill(sequence, text);
    for (int i = 0; i < 50; ++i) f.engine->decode(sequence, argmax(logits), logits);
    EXPECT_TRUE(std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }));
    EXPECT_EQ(sequence.tokens(), text.size() + 50);
    EXPECT_LE(sequence.cache().entries(), 32u);
  }
}

TEST(Rolling, IsRefusedWhereItCannotBe) {
  Fixture opt("opt");
  BALLAST_NEED_REFERENCE(opt.reference);
  CacheOptions options;
  options.positions = Positions::rolling;
  EXPECT_THAT(error_of([&] { Sequence(*opt.model, options); }),
              testing::HasSubstr("OPT has learned positions, which cannot be rolling"));
  Fixture f("llama");
  Sequence whole(*f.model, options);
  EXPECT_THAT(error_of([&] { f.engine->prefill(whole, std::vector<Token>(129, 5)); }),
              testing::HasSubstr("but the model has 128 positions"));
  options.policy = Policy::parse("streaming-llm:budget=129");
  options.protocol = Protocol::stream;
  EXPECT_THAT(error_of([&] { Sequence(*f.model, options); }),
              testing::HasSubstr("a budget of 129 entries, but the model has 128 positions"));
}

TEST(Memory, IsEstimatedByMethod) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  constexpr std::size_t kTokens = 10000;
  CacheOptions options;
  options.expected_tokens = kTokens;
  const std::size_t exact = f.model->estimate(options, kTokens).cache;
  EXPECT_EQ(exact, kTokens * 3 * 2 * 2 * 8 * 4);  // layers · heads · (key and value) · numbers
  options.policy = Policy::parse("streaming-llm:budget=1000");
  options.protocol = Protocol::stream;
  EXPECT_EQ(f.model->estimate(options, kTokens).cache, exact / 10);
  Sequence sequence(*f.model, options);
  EXPECT_LE(sequence.cache().bytes().total(), exact / 10 + 4096);
  options.protocol = Protocol::prefill;
  EXPECT_EQ(f.model->estimate(options, kTokens).cache, exact);  // until the prompt ends
  EXPECT_GE(f.model->estimate(options, kTokens).weights,
            std::filesystem::file_size(f.reference.hf() / "model.safetensors") * 9 / 10);
}

TEST(Memory, IsNotEstimatedForStepsThatTakeTooLong) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  CacheOptions options;
  options.policy = Policy::parse("attention-matching:budget=400,step=1,observe=600");
  options.protocol = Protocol::stream;
  options.expected_tokens = 20;
  EXPECT_GT(f.model->estimate(options, 20, 80).cache, 0u) << "nothing is summarised";
  EXPECT_THAT(error_of([&] { f.model->estimate(options, 20, 800); }),
              testing::HasSubstr("every 1 tokens is too slow"));
}

// A stream keeps the projections' products of all layers, a prompt those of one at a time.
TEST(Memory, OfASecondReadingIsEstimated) {
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  const ModelConfig& c = f.model->config();
  const std::size_t grams = c.heads * c.value_dim * c.value_dim * sizeof(float);
  CacheOptions options;
  options.expected_tokens = 1000;
  const auto scratch = [&](const char* method) {
    options.policy = Policy::parse(method);
    return f.model->estimate(options, 1000).scratch;
  };
  const std::size_t exact = scratch("exact");
  EXPECT_GE(scratch("kvzip:bytes=1/8"), exact + (std::size_t{1} << 20));
  EXPECT_EQ(scratch("replay:bytes=1/8"), scratch("replay:bytes=1/8,score=plain") + grams);
  options.protocol = Protocol::stream;
  EXPECT_GE(scratch("replay:bytes=1/8"),
            scratch("replay:bytes=1/8,score=plain") + c.layers * grams);
}

TEST(Memory, IsRefusedWithTheFigures) {
  EXPECT_GT(available_memory(), std::size_t{1} << 20);
  require_memory({.weights = 5, .cache = 3, .scratch = 2}, 10, "this");
  const std::size_t gib = std::size_t{1} << 30;
  EXPECT_THAT(error_of([&] {
                require_memory({.weights = 2 * gib, .cache = gib, .scratch = gib / 2}, 3 * gib,
                               "the model");
              }),
              testing::HasSubstr("the model needs 3.50 GiB of memory (2.00 weights, 1.00 cache, "
                                 "0.50 scratch), 3.00 GiB are available"));
  Fixture f("llama");
  BALLAST_NEED_REFERENCE(f.reference);
  CacheOptions options;
  options.expected_tokens = std::size_t{1} << 40;
  EXPECT_THAT(error_of([&] { Sequence(*f.model, options); }),
              testing::HasSubstr("the cache needs"));
}

}  // namespace
}  // namespace ballast
