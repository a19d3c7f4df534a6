// Methods that a program registers.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <thread>

#include "ballast/selection.h"
#include "ballast/testing/streams.h"

namespace ballast::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Keeps the oldest tokens.
class Oldest : public SelectionSummary {
 public:
  explicit Oldest(const SummarySetup& setup)
      : SelectionSummary(setup, {.by_rule = setup.capacity}) {}

 protected:
  float rank(const Block& block, std::size_t i) override {
    return -static_cast<float>(block.first) - static_cast<float>(i);
  }
};

MethodInfo oldest(std::string_view name) {
  return {.name = name,
          .title = "the oldest tokens",
          .paper = "none",
          .parameters = {{"scale", Parameter::Kind::real, "1", 0, 2, "", "a number"}},
          .needs = {},
          .make = [](const SummarySetup& setup) -> std::unique_ptr<Summary> {
            return std::make_unique<Oldest>(setup);
          }};
}

std::string register_error(const MethodInfo& info) {
  return error_of([&] { register_method(info); });
}

TEST(RegisterMethod, MakesItKnownEverywhere) {
  const auto before = methods();
  const std::vector<const MethodInfo*> known(before.begin(), before.end());
  register_method(oldest("test-oldest"));
  register_method(oldest("a-test-oldest"));
  ASSERT_EQ(methods().size(), known.size() + 2);
  // The order: those known before, then as they came. A span from before is as it was.
  EXPECT_TRUE(std::ranges::equal(methods().first(known.size()), known));
  EXPECT_TRUE(std::ranges::equal(before, known));
  EXPECT_EQ(methods()[known.size()]->name, "test-oldest");
  EXPECT_EQ(methods()[known.size() + 1]->name, "a-test-oldest");
  EXPECT_EQ(&find_method("test-oldest"), methods()[known.size()]);
  EXPECT_THAT(error_of([] { find_method("no-such"); }), HasSubstr("a-test-oldest"));

  const Policy policy = Policy::parse("test-oldest:budget=64,scale=0.5");
  EXPECT_EQ(policy.to_string(), "test-oldest:budget=64,scale=0.5");
  EXPECT_EQ(policy.real("scale"), 0.5);
  const Stream stream = make_stream(200, 3);
  Cache cache(stream.shape, options_of(policy.to_string(), Protocol::prefill));
  feed(cache, stream, 0, 200, 50, 200);
  const auto kept = cache.kept(1, 0);
  ASSERT_EQ(kept.size(), 64u);
  EXPECT_EQ(kept[31].position, 31);  // the summary: 64 entries less the window of 32
  EXPECT_EQ(kept[32].position, 168);
  // A saved cache names its method.
  Cache again = Cache::parse(cache.to_bytes(), "memory");
  EXPECT_EQ(again.options().policy.to_string(), policy.to_string());
  EXPECT_EQ(again.kept(1, 0).size(), 64u);
}

TEST(RegisterMethod, RefusesWhatWouldNotWork) {
  const std::size_t before = methods().size();
  EXPECT_THAT(register_error(oldest("h2o")), AllOf(HasSubstr("h2o"), HasSubstr("already")));
  for (const char* bad : {"", "Oldest", "old est", "old:est", "old,est", "9old", "-old", "old;x"}) {
    EXPECT_THAT(register_error(oldest(bad)), AllOf(HasSubstr(bad), HasSubstr("lower-case"))) << bad;
  }
  MethodInfo info = oldest("refused");
  info.make = nullptr;
  EXPECT_THAT(register_error(info), AllOf(HasSubstr("refused"), HasSubstr("make")));

  const auto with = [](Parameter p) {
    MethodInfo changed = oldest("refused");
    changed.parameters.push_back(p);
    return register_error(changed);
  };
  using Kind = Parameter::Kind;
  EXPECT_THAT(with({"scale", Kind::real, "1", 0, 2, "", ""}), HasSubstr("twice"));
  EXPECT_THAT(with({"Bad", Kind::real, "1", 0, 2, "", ""}), HasSubstr("lower-case"));
  EXPECT_THAT(with({"x", Kind::real, "1", 2, 0, "", ""}), HasSubstr("between"));
  EXPECT_THAT(with({"x", Kind::real, "3", 0, 2, "", ""}), HasSubstr("out of range"));
  EXPECT_THAT(with({"x", Kind::choice, "a", 0, 0, "", ""}), HasSubstr("no choices"));
  EXPECT_THAT(with({"x", Kind::choice, "c", 0, 0, "a|b", ""}), HasSubstr("not one of a|b"));
  EXPECT_THAT(with({"window", Kind::real, "", 0, 2, "", ""}), HasSubstr("kind"));
  info = oldest("refused");
  info.needs.recent_queries = true;
  EXPECT_THAT(register_error(info), HasSubstr("observe"));
  EXPECT_EQ(methods().size(), before);
}

TEST(RegisterMethod, WorksFromManyThreads) {
  static constexpr std::array<const char*, 4> kNames = {"thread-a", "thread-b", "thread-c",
                                                        "thread-d"};
  const std::size_t before = methods().size();
  std::vector<std::thread> threads;
  std::atomic<int> refused = 0;
  for (int i = 0; i < 8; ++i) {  // every name twice
    threads.emplace_back([&, i] {
      try {
        register_method(oldest(kNames[static_cast<std::size_t>(i) % kNames.size()]));
      } catch (const Error&) {
        ++refused;
      }
      for (int j = 0; j < 200; ++j) Policy::parse("thread-" + std::string(1, 'a' + i % 4));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(methods().size(), before + 4);
}

}  // namespace
}  // namespace ballast::test
