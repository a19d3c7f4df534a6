#include "report/progress.h"

#include <gtest/gtest.h>

#include "report/json.h"

namespace ballast {
namespace {

TEST(Progress, SaysHowMuchIsDoneAndLeft) {
  EXPECT_EQ(Progress::line("eval", 0.25, 30), "eval   25%  1 min 30 s left");
  EXPECT_EQ(Progress::line("eval", 0, 3), "eval    0%");
  EXPECT_EQ(Progress::line("eval", 1, 3), "eval  100%  0 µs left");
}

TEST(Progress, AnnouncesWorkOfMinutes) {
  EXPECT_EQ(Progress::announcement("eval", 0.5, 29), "");
  EXPECT_EQ(Progress::announcement("eval", 0.005, 29), "");  // not known yet
  EXPECT_EQ(Progress::announcement("eval", 0.02, 4), "eval: about 3 min in all");
  EXPECT_EQ(Progress::announcement("eval", 0.01, 90), "eval: about 2.5 h in all");
}

TEST(Json, KeepsTheOrderOfKeysAndTakesAnyText) {
  EXPECT_EQ(to_text({{"z", 1}, {"a", {2, 3}}}),
            "{\n  \"z\": 1,\n  \"a\": [\n    2,\n    3\n  ]\n}\n");
  EXPECT_EQ(to_text(Json("a\xFF")), "\"a\xEF\xBF\xBD\"\n");
  EXPECT_EQ(to_utf8("a\xFF\"\n\xC3\xA9"), "a\xEF\xBF\xBD\"\n\xC3\xA9");
}

}  // namespace
}  // namespace ballast
