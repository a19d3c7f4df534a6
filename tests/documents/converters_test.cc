#include "documents/converters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "ballast/error.h"
#include "documents/document.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

/// A folder that is the whole PATH but for the system's own programs.
class Converters : public testing::Test {
 protected:
  Converters() : path_(std::getenv("PATH")) { use(dir_.path().string()); }
  ~Converters() override { ::setenv("PATH", path_.c_str(), 1); }
  static void use(const std::string& path) { ::setenv("PATH", path.c_str(), 1); }
  void install(const std::string& program, const std::string& script) const {
    write_text(dir_ / program, "#!/bin/sh\nPATH=/usr/bin:/bin\n" + script);
    ::chmod((dir_ / program).c_str(), 0700);
  }

  TempDir dir_;
  std::string path_;
};

TEST_F(Converters, AreUsedWhereTheyAreInstalled) {
  EXPECT_FALSE(can_convert("a.epub"));
  EXPECT_FALSE(can_convert("a.txt"));
  install("pandoc", "echo $*; cat\n");
  EXPECT_TRUE(can_convert("A.EPUB"));
  EXPECT_FALSE(can_convert("a.xlsx"));
  const auto parts = read_document("the book", "a.epub", "a.epub");
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].text, "-f epub -t plain --wrap=none\nthe book");
  install("pandoc", "exit 64\n");
  try {
    converted_text("x", "a.rtf", "d/a.rtf");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    EXPECT_EQ(std::string(error.what()),
              "d/a.rtf: pandoc cannot read it: it is damaged, or wants a password");
  }
}

TEST_F(Converters, LibreOfficeWorksInAFolderOfItsOwn) {
  // Its arguments: profile, --headless, --convert-to, form, --outdir, folder, file.
  install("soffice", "cp \"$7\" \"$6/document.csv\"\n");
  EXPECT_EQ(read_document("a,b\r\n", "a.xlsx", "a.xlsx")[0].text, "a,b\n");
}

}  // namespace
}  // namespace ballast::test
