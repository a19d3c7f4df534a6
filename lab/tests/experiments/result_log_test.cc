#include "experiments/result_log.h"

#include <gmock/gmock.h>

#include "base/partial_files.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

TEST(ResultLog, GoesOnFromWhatWasFound) {
  const TempDir dir;
  const Json identity = {{"experiment", "x"}, {"seeds", 2}};
  {
    ResultLog log(dir / "p", identity);
    EXPECT_EQ(log.find("a"), nullptr);
    log.add("a", {{"score", 0.5}});
    log.add("b \"quoted\"\n", 7);
  }
  ResultLog log(dir / "p", identity);
  EXPECT_EQ(log.found(), 2u);
  ASSERT_NE(log.find("a"), nullptr);
  EXPECT_EQ((*log.find("a"))["score"], 0.5);
  EXPECT_EQ(*log.find("b \"quoted\"\n"), 7);
  log.finish();
  EXPECT_FALSE(std::filesystem::exists(dir / "p"));
}

TEST(ResultLog, DropsALineThatWasCutOffWhereverThatHappened) {
  const TempDir dir;
  {
    ResultLog log(dir / "p", {{"x", 1}});
    log.add("a", 1);
    log.add("b", 2);
  }
  const std::string whole = read_text(dir / "p");
  const std::size_t two = whole.rfind('\n', whole.size() - 2) + 1;  // where the last line begins
  for (std::size_t size = two; size < whole.size(); ++size) {
    write_text(dir / "p", whole.substr(0, size));
    {
      ResultLog log(dir / "p", {{"x", 1}});
      EXPECT_EQ(log.found(), 1u);
      EXPECT_EQ(log.find("b"), nullptr);
      log.add("b", 2);
    }
    EXPECT_EQ(read_text(dir / "p"), whole) << size;
  }
}

TEST(ResultLog, RefusesWhatIsNotItsOwn) {
  const TempDir dir;
  {
    ResultLog log(dir / "p", {{"methods", "h2o"}, {"seeds", 1}});
    log.add("a", 1);
  }
  const auto open = [&](const Json& identity) {
    return error_of([&] { ResultLog(dir / "p", identity); });
  };
  EXPECT_THAT(open({{"methods", "h2o"}, {"seeds", 3}}), HasSubstr("seeds is 1 there, 3 here"));
  EXPECT_THAT(open({{"methods", "h2o"}, {"seeds", 1}, {"more", 0}}), HasSubstr("more"));
  write_text(dir / "p", "{\"some\": \"file\"}\n");
  EXPECT_THAT(open({{"x", 1}}), HasSubstr("not the progress of an experiment"));
  EXPECT_EQ(read_text(dir / "p"), "{\"some\": \"file\"}\n");
  write_text(dir / "p", "{\"ballast_progress\":{\"x\":1}}\nnonsense\n");
  EXPECT_THAT(open({{"x", 1}}), HasSubstr("line 2: damaged"));
  write_text(dir / "p", "{\"ballast_progress\":{\"x\":1}}\n" + std::string(100'000, '[') + "\n");
  EXPECT_THAT(open({{"x", 1}}), HasSubstr("nested deeper than 64"));
  std::string fields = "{\"0\":0";
  for (int i = 1; i < 1025; ++i) fields += ",\"" + std::to_string(i) + "\":0";
  write_text(dir / "p", "{\"ballast_progress\":{\"x\":1}}\n" + fields + "}\n");
  EXPECT_EQ(open({{"x", 1}}), (dir / "p").string() + ": a JSON object of more than 1024 fields");
  EXPECT_THAT(error_of([&] { ResultLog(dir / "none" / "p", {}); }), HasSubstr("cannot write"));
}

TEST(ResultLog, ASecondWriterIsRefusedAndDisturbsNothing) {
  const TempDir dir;
  ResultLog log(dir / "p", {{"x", 1}});
  log.add("a", 1);
  const std::string before = read_text(dir / "p");
  for (int x : {1, 2}) {
    EXPECT_THAT(error_of([&] {
                  ResultLog(dir / "p", {{"x", x}});
                }),
                HasSubstr("another command is writing it"));
  }
  EXPECT_EQ(read_text(dir / "p"), before);
  log.add("b", 2);
  log = ResultLog();
  EXPECT_EQ(ResultLog(dir / "p", {{"x", 1}}).found(), 2u);
}

TEST(ResultLog, FollowsNoLink) {
  const TempDir dir;
  write_text(dir / "other", "");
  std::filesystem::create_symlink("other", dir / "p");
  EXPECT_THAT(error_of([&] { ResultLog(dir / "p", {{"x", 1}}); }), HasSubstr("cannot write"));
  EXPECT_EQ(read_text(dir / "other"), "");
}

TEST(ResultLog, WhatFoundNothingIsInNobodysWay) {
  const TempDir dir;
  { ResultLog log(dir / "p", {{"x", 1}}); }
  ResultLog log(dir / "p", {{"x", 2}});
  log.add("a", 1);
  EXPECT_THAT(read_text(dir / "p"), HasSubstr("\"x\":2"));
}

TEST(ResultLog, OnlyFindingsStayWhenTheCommandEndsEarly) {
  const TempDir dir;
  set_resumable_file("");  // other tests leave theirs
  { ResultLog log(dir / "p", {{"x", 1}}); }
  EXPECT_FALSE(std::filesystem::exists(dir / "p"));
  {
    ResultLog log(dir / "p", {{"x", 1}});
    remove_partial_files();  // as a signal does
    EXPECT_FALSE(std::filesystem::exists(dir / "p"));
  }
  {
    ResultLog log(dir / "p", {{"x", 1}});
    log.add("a", 1);
    remove_partial_files();
  }
  ASSERT_TRUE(std::filesystem::exists(dir / "p"));
  EXPECT_EQ(resumable_file(), (dir / "p").string());
  ResultLog log(dir / "p", {{"x", 1}});
  EXPECT_EQ(resumable_file(), (dir / "p").string());
  log.finish();
  EXPECT_EQ(resumable_file(), nullptr);
}

TEST(ResultLog, KeepsNothingWithoutAFile) {
  ResultLog log;
  log.add("a", 1);
  EXPECT_EQ(log.find("a"), nullptr);
  EXPECT_EQ(log.found(), 0u);
  log.finish();
}

}  // namespace
}  // namespace ballast
