#include "ballast/method.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "support.h"

namespace {
std::atomic<std::size_t> allocations = 0;
}  // namespace

// Counts what this program allocates. Inlined, new and free() would look mismatched to GCC.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace ballast::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string parse_error(std::string_view text) {
  return error_of([&] { Policy::parse(text); });
}

TEST(Policy, WritesWhatItReads) {
  for (const char* text : {"exact", "local:budget=100", "streaming-llm:rate=0.25,sink=4",
                           "balancekv:rate=0.25,sink=256,window=256,block=256"}) {
    EXPECT_EQ(Policy::parse(text).to_string(), text);
  }
  EXPECT_EQ(Policy::parse("balancekv:block=128,rate=0.5").to_string(),
            "balancekv:rate=0.5,block=128");
}

TEST(Policy, NamesWhatItDoesNotUnderstand) {
  EXPECT_THAT(parse_error("balancekw"), AllOf(HasSubstr("'balancekw'"), HasSubstr("balancekv")));
  EXPECT_THAT(parse_error(""), HasSubstr("unknown method ''"));
  EXPECT_THAT(parse_error("local:bugdet=3"), AllOf(HasSubstr("'bugdet'"), HasSubstr("budget")));
  EXPECT_THAT(parse_error("local:"), HasSubstr("key=value"));
  EXPECT_THAT(parse_error("local:budget"), HasSubstr("key=value"));
  EXPECT_THAT(parse_error("local:=3"), HasSubstr("key=value"));
  EXPECT_THAT(parse_error("local:budget=3,"), HasSubstr("key=value"));
  EXPECT_THAT(parse_error("local:budget=3,budget=4"), HasSubstr("twice"));
  EXPECT_NO_THROW(Policy::parse("local:budget=" + std::string(986, '0') + "3"));
  EXPECT_THAT(parse_error("local:budget=" + std::string(987, '0') + "3"),
              HasSubstr("a method of 1001 bytes, 'local:budget=0000000...'; at most 1000"));
  EXPECT_THAT(parse_error("local:budget=3,rate=0.5"), HasSubstr("give one"));
  for (const char* bad : {"3.5", "x", "", "3x", "nan", "inf", " 3", "0x10"}) {
    EXPECT_THAT(parse_error(std::string("local:budget=") + bad), HasSubstr("not a whole number"));
  }
  for (const char* bad : {"0", "-1", "1e300"}) {
    EXPECT_THAT(parse_error(std::string("local:budget=") + bad), HasSubstr("out of range"));
  }
  EXPECT_THAT(parse_error("local:rate=1.5"), AllOf(HasSubstr("rate=1.5"), HasSubstr("to 1")));
  EXPECT_THAT(parse_error("local:layers=cone"), AllOf(HasSubstr("cone"), HasSubstr("pyramid")));
}

TEST(Policy, HoldsTypedValues) {
  const Policy p = Policy::parse("balancekv:rate=0.25,block=1e2,mode=theory");
  EXPECT_EQ(p.real("rate"), 0.25);
  EXPECT_EQ(p.integer("block"), 100);
  EXPECT_EQ(p.real("block"), 100.0);
  EXPECT_EQ(p.choice("mode"), "theory");
  EXPECT_EQ(p.choice("weights"), "consistent");  // by default
  EXPECT_EQ(p.real("gamma"), 4.0);
  EXPECT_EQ(p.to_string(), "balancekv:rate=0.25,block=1e2,mode=theory");
  EXPECT_TRUE(p.has("gamma"));
  EXPECT_FALSE(p.has("budget"));
  EXPECT_THAT(error_of([&] { p.integer("budget"); }), HasSubstr("budget is needed"));
  EXPECT_THAT(error_of([&] { p.integer("gamma"); }), HasSubstr("not a whole number"));
  EXPECT_THAT(error_of([&] { p.real("mode"); }), HasSubstr("not a number"));
  EXPECT_THAT(error_of([&] { p.choice("block"); }), HasSubstr("not a choice"));
  EXPECT_THAT(error_of([&] { p.has("blok"); }), AllOf(HasSubstr("'blok'"), HasSubstr("block")));
}

TEST(Policy, HoldsSizesAndTexts) {
  const Policy p = Policy::parse("replay:bytes=1/8");
  EXPECT_EQ(p.memory("bytes").amount, 0.125);
  EXPECT_EQ(p.text("tiers"), "int8+q4+q4/q3+q3+q3/q2+q2");  // by default
  EXPECT_EQ(p.with("tiers", "int4").text("tiers"), "int4");
  EXPECT_EQ(p.with("bytes", "2K").memory("bytes").unit, MemorySize::Unit::bytes);
  EXPECT_EQ(p.to_string(), "replay:bytes=1/8");
  EXPECT_TRUE(p.has_memory());
  EXPECT_FALSE(Policy::parse("replay").has_memory());
  EXPECT_THAT(error_of([&] { p.text("bytes"); }), HasSubstr("not a text"));
  EXPECT_THAT(error_of([&] { p.memory("tiers"); }), HasSubstr("not a size"));
}

TEST(Policy, ExactTakesNoKeyThatDoesNothing) {
  for (const Parameter& p : common_parameters()) {
    if (p.name == "type") continue;
    const std::string value(p.choices.empty() ? "1" : p.choices.substr(0, p.choices.find('|')));
    const std::string text =
        "exact:" + std::string(p.name) + "=" + (p.name == "bytes" ? "1/8" : value);
    EXPECT_THAT(parse_error(text), HasSubstr("method exact keeps every token"));
  }
  EXPECT_EQ(Policy::parse("exact:type=q4/q2").text("type"), "q4/q2");
}

TEST(Policy, WithChangesACopy) {
  const Policy p = Policy::parse("h2o:budget=100");
  EXPECT_EQ(p.with("score", "mean").to_string(), "h2o:budget=100,score=mean");
  EXPECT_EQ(p.with("budget", "90").with("budget", "80").to_string(), "h2o:budget=80");
  EXPECT_EQ(p.to_string(), "h2o:budget=100");
  EXPECT_EQ(p.choice("score"), "sum");
  EXPECT_THAT(error_of([&] { p.with("rate", "0.5"); }), HasSubstr("give one"));
  EXPECT_THAT(error_of([&] { p.with("score", "median"); }), HasSubstr("sum|mean"));
  EXPECT_THAT(error_of([&] { p.with("scor", "mean"); }), HasSubstr("unknown key 'scor'"));
}

/// A cache asks its policy at every step.
TEST(Policy, LookingUpAllocatesNothing) {
  for (const MethodInfo* info : methods()) {
    const bool all = info->window_policy == WindowPolicy::all;
    const std::string name(info->name);
    const Policy policy =
        Policy::parse(all                   ? "exact"
                      : info->global_budget ? name + ":bytes=1/8"
                                            : name + ":budget=1000,layers=pyramid");
    const std::size_t before = allocations;
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      policy.budget(5000, protocol, 1, 4);
    }
    policy.needs();
    policy.observed();
    policy.keeps_generated();
    Policy copy = policy;
    EXPECT_EQ(allocations, before) << info->name;
  }
}

Budget budget(const char* text, std::size_t tokens, Protocol protocol, int layer = 0,
              int layers = 1) {
  return Policy::parse(text).budget(tokens, protocol, layer, layers);
}

TEST(Budget, DivideABudget) {
  Budget s = budget("balancekv:budget=1000,sink=100,window=200", 5000, Protocol::prefill);
  EXPECT_EQ(s.sink, 100u);
  EXPECT_EQ(s.window, 200u);
  EXPECT_EQ(s.summary, 700u);
  EXPECT_EQ(s.step, 0u);
  s = budget("balancekv:budget=1000,sink=100,window=200,step=50", 0, Protocol::stream);
  EXPECT_EQ(s.summary, 650u);
  EXPECT_EQ(s.step, 50u);
  s = budget("streaming-llm:budget=1000", 0, Protocol::stream);
  EXPECT_EQ(s.sink, 4u);
  EXPECT_EQ(s.summary, 0u);
  EXPECT_EQ(s.window + s.step, 996u);
  // A longer step is paid from the window: the budget stays.
  s = budget("streaming-llm:budget=1000,step=64", 0, Protocol::stream);
  EXPECT_EQ(s.step, 64u);
  EXPECT_EQ(s.window, 932u);
  EXPECT_EQ(s.total(), 1000u);
}

TEST(Budget, ARateIsOfTheMiddle) {
  Budget s = budget("balancekv:rate=0.25,sink=256,window=256", 4608, Protocol::prefill);
  EXPECT_EQ(s.summary, 1024u);
  EXPECT_EQ(s.total(), 1536u);
  // A text without a middle is kept whole.
  EXPECT_EQ(budget("balancekv:rate=0.25,sink=256,window=256", 300, Protocol::prefill).total(),
            300u);
  EXPECT_EQ(budget("balancekv:rate=0.25", 0, Protocol::prefill).total(), 0u);
}

TEST(Budget, AlwaysAddUpToTheBudget) {
  for (const MethodInfo* info : methods()) {
    if (info->global_budget) continue;  // tests/cache/replay_test.cc
    if (info->window_policy == WindowPolicy::all) continue;
    for (std::size_t budget : {100, 101, 1000, 4097}) {
      for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
        for (const char* extra : {"", ",sink=3", ",window=5", ",sink=7,window=50"}) {
          const std::string text = std::string(info->name) + ":budget=" + std::to_string(budget) +
                                   extra + ",layers=uniform";
          EXPECT_EQ(Policy::parse(text).budget(100000, protocol).total(), budget) << text;
        }
      }
    }
  }
}

/// However little a rate leaves of a short text, in any layer: without a step a stream would grow.
TEST(Budget, AStreamHasRoomToSlide) {
  for (const MethodInfo* method : methods()) {
    if (method->global_budget) continue;  // tests/cache/replay_test.cc
    if (method->window_policy == WindowPolicy::all) continue;
    for (const char* more : {"", ",window=0,sink=0"}) {
      const std::string text = std::string(method->name) + ":rate=0.02" + more;
      for (std::size_t tokens : {1u, 2u, 19u, 40u, 100u}) {
        for (int layer = 0; layer < 4; ++layer) {
          const Budget s = Policy::parse(text).budget(tokens, Protocol::stream, layer, 4);
          EXPECT_GE(s.step, 1u) << text << ", " << tokens << " tokens, layer " << layer;
          EXPECT_LE(s.total(), tokens + 1) << text;
        }
      }
    }
  }
}

TEST(Budget, PyramidFollowsItsFormula) {
  // B = 2048 - 32 beside the window; min = B/20 = 100, max = 2B - 100 = 3932.
  const char* text = "balancekv:budget=2048,sink=0,window=32,layers=pyramid";
  std::size_t sum = 0;
  for (int layer = 0; layer < 32; ++layer) {
    const std::size_t kept = budget(text, 20000, Protocol::prefill, layer, 32).summary;
    EXPECT_EQ(kept, 3932u - static_cast<unsigned>(std::ceil(layer * 3832 / 31.0))) << layer;
    sum += kept;
  }
  EXPECT_LE(sum, 32u * 2016u);
  // A text of 3,000 tokens caps the highest layer at 2968, which raises the lowest.
  Budget top = budget(text, 3000, Protocol::prefill, 0, 32);
  EXPECT_EQ(top.summary, 2968u);
}

}  // namespace
}  // namespace ballast::test
