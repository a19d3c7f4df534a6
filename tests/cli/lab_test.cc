// Commands of ballast-eval, which `ballast` starts for them.
#include <cstdio>
#include <filesystem>

#include "program.h"

namespace ballast {
namespace {

using test::expect_refusal;
using testing::HasSubstr;

/// A copy of the program, alone in a folder, and a stand-in for ballast-eval in another.
class Lab : public testing::Test {
 protected:
  void SetUp() override {
    // Under an emulator the program is a script.
    std::filesystem::copy_file(BALLAST_PROGRAM, dir_ / "ballast");
    if (read_text(dir_ / "ballast").starts_with("#!")) GTEST_SKIP() << "no program of this machine";
  }
  void write_stand_in(const std::filesystem::path& path) {
    std::filesystem::create_directories(path.parent_path());
    write_text(path, "#!/bin/sh\necho \"$0:\" \"$@\"\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  /// What the copy says with this PATH, on both outputs.
  std::string said(const std::string& words, const std::filesystem::path& path) const {
    const std::string command =
        "PATH=" + path.string() + " " + (dir_ / "ballast").string() + " " + words + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    std::string out;
    char buffer[4096];
    while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
    ::pclose(pipe);
    return out;
  }
  TempDir dir_;
};

TEST_F(Lab, IsLookedForBesideTheProgramAndThenOnPath) {
  const auto beside = dir_ / "ballast-eval", elsewhere = dir_ / "bin" / "ballast-eval";
  for (const char* words : {"eval lines -m x", "--threads 2 bench --json", "--check eval memory",
                            "synth", "capture", "compress", "report", "eval --help"}) {
    EXPECT_THAT(said(words, "/nowhere"),
                HasSubstr("needs the program ballast-eval, which is neither in " +
                          dir_.path().string() + " nor on PATH; the tarball and"))
        << words;
  }
  write_stand_in(elsewhere);
  EXPECT_EQ(said("--threads 2 eval lines -m x", elsewhere.parent_path()),
            elsewhere.string() + ": --threads 2 eval lines -m x\n");
  write_stand_in(beside);
  EXPECT_EQ(said("help eval", elsewhere.parent_path()), beside.string() + ": eval --help\n");
  // Words of other commands are no commands.
  EXPECT_THAT(said("methods eval", elsewhere.parent_path()), HasSubstr("unknown method"));
}

TEST_F(Lab, InspectsTensors) {
  write_text(dir_ / "a.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10));
  const std::string file = (dir_ / "a.safetensors").string();
  EXPECT_THAT(said("inspect " + file, "/nowhere"),
              HasSubstr(file + ": inspect of tensors needs the program ballast-eval"));
  write_stand_in(dir_ / "ballast-eval");
  EXPECT_THAT(said("inspect " + file + " --json", "/nowhere"),
              HasSubstr("ballast-eval: inspect " + file + " --json\n"));
  EXPECT_THAT(said("inspect /no/such/file", "/nowhere"),
              HasSubstr("ballast: /no/such/file: cannot open: No such file or directory"));
}

}  // namespace
}  // namespace ballast
