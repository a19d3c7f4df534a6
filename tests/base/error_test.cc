// The codes of errors, and the version.
#include "ballast/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ballast/version.h"
#include "base/fail.h"
#include "base/read_file.h"
#include "paths.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::code_of;
using test::error_of;

TEST(Error, HasACodeAndItsText) {
  EXPECT_EQ(Error("text").code(), ErrorCode::invalid_argument);
  const Error error(ErrorCode::io, "text");
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_STREQ(error.what(), "text");
  EXPECT_EQ(code_of([] { fail("{}", 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { require(false, "{}", 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { require(false, ErrorCode::over_limit, "{}", 1); }), ErrorCode::over_limit);
  EXPECT_EQ(error_of([] { fail(ErrorCode::io, "{} of {}", 1, 2); }), "1 of 2");
  require(true, ErrorCode::io, "never");
}

TEST(Error, CodesHaveNames) {
  std::set<std::string_view> names;
  for (int c = 0; c <= static_cast<int>(ErrorCode::over_limit); ++c) {
    names.insert(to_string(static_cast<ErrorCode>(c)));
  }
  EXPECT_EQ(names.size(), 7u);
  EXPECT_EQ(to_string(ErrorCode::not_finite), "not_finite");
  EXPECT_FALSE(names.contains(""));
}

TEST(Error, Io) {
  const TempDir dir;
  EXPECT_EQ(code_of([&] { read_file(dir / "no" / "file"); }), ErrorCode::io);
}

TEST(Version, IsThatOfTheProject) {
  EXPECT_STREQ(BALLAST_VERSION, BALLAST_PROJECT_VERSION);
  EXPECT_EQ(std::string(BALLAST_VERSION), std::to_string(BALLAST_VERSION_MAJOR) + "." +
                                              std::to_string(BALLAST_VERSION_MINOR) + "." +
                                              std::to_string(BALLAST_VERSION_PATCH));
}

}  // namespace
}  // namespace ballast
