// ballast run and chat with a tiny model that sees.
#include <fmt/format.h>

#include <cstdlib>

#include "cli/program.h"
#include "vision/towers.h"

namespace ballast {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::kPicture;
using test::Program;
using test::run;
using test::write_png;
using testing::HasSubstr;
using testing::Not;

/// Two white pages of 200 × 300 points.
std::string two_pages() {
  const std::vector<std::string> objects = {
      "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R 4 0 R] /Count 2 >>",
      "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 300] >>",
      "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 300] >>"};
  std::string out = "%PDF-1.4\n", table = "xref\n0 5\n0000000000 65535 f \n";
  for (std::size_t i = 0; i < objects.size(); ++i) {
    table += fmt::format("{:010} 00000 n \n", out.size());
    out += fmt::format("{} 0 obj\n{}\nendobj\n", i + 1, objects[i]);
  }
  return out + table +
         fmt::format("trailer << /Size 5 /Root 1 0 R >>\nstartxref\n{}\n%%EOF\n", out.size());
}

class ProgramsThatSee : public testing::Test {
 protected:
  void SetUp() override {
    if (!towers().made) GTEST_SKIP() << "tests/vision/towers.py needs python3 with numpy";
    write_png(dir_ / "a.png", kPicture);
    Picture other = kPicture;
    for (auto& x : other.pixels) x = static_cast<std::uint8_t>(255 - x);
    write_png(dir_ / "b.png", other);
    write_text(dir_ / "c.png", "GIF89a");
  }
  static const test::Towers& towers() {
    static const test::Towers made;
    return made;
  }
  static std::string model(const char* name = "qwen2") { return (towers().dir / name).string(); }
  std::string file(const char* name) const { return (dir_ / name).string(); }
  json asked(std::vector<std::string> more, const char* name = "qwen2") const {
    std::vector<std::string> all = {"run", "-m",         model(name), "-q",    "-n",
                                    "4",   "--question", "what?",     "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const auto result = run(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.json();
  }

  TempDir dir_;
};

TEST_F(ProgramsThatSee, AnswerAboutAPicture) {
  const json one = asked({"--image", file("a.png")});
  const json other = asked({"--image", file("b.png")});
  EXPECT_NE(one["answers"][0]["ids"], other["answers"][0]["ids"]);
  EXPECT_EQ(asked({"--image", file("a.png")})["answers"][0]["ids"], one["answers"][0]["ids"]);
  // The same by InternVL's own layout and from GGUF files.
  EXPECT_EQ(asked({"--image", file("a.png")}, "qwen2-own")["answers"][0]["ids"],
            one["answers"][0]["ids"]);
  EXPECT_EQ(asked({"--image", file("a.png"), "--mmproj", model("mmproj.gguf")},
                  "qwen2.gguf")["answers"][0]["ids"],
            one["answers"][0]["ids"]);
}

TEST_F(ProgramsThatSee, CompressSaveAndAskAgain) {
  const std::vector<std::string> seen = {"--image",  file("a.png"),
                                         "--image",  file("b.png"),
                                         "--method", "snapkv:rate=0.5,sink=4,window=8"};
  std::vector<std::string> saving = seen;
  saving.insert(saving.end(), {"--save-cache", file("kept.cache")});
  const json answer = asked(saving);
  EXPECT_EQ(asked({"--load-cache", file("kept.cache")})["answers"][0]["ids"],
            answer["answers"][0]["ids"]);
  EXPECT_EQ(asked({"--image", file("a.png"), "--method", "replay:bytes=1/2"})["answers"].size(),
            1u);
}

TEST_F(ProgramsThatSee, StandBeforeAContext) {
  write_text(dir_ / "text.txt", "A picture of nothing.\n");
  const json with = asked({"--image", file("a.png"), "--context", file("text.txt")});
  const json without = asked({"--context", file("text.txt")});
  EXPECT_EQ(with["statistics"]["pictures"]["tokens"], 12);
  EXPECT_GT(with["statistics"]["pictures"]["seconds"], 0);
  EXPECT_EQ(without["statistics"]["pictures"]["tokens"], 0);
  // 12 tokens of the picture, two around it and a line end.
  EXPECT_EQ(with["statistics"]["prompt"]["tokens"],
            without["statistics"]["prompt"]["tokens"].get<std::size_t>() + 15);
}

TEST_F(ProgramsThatSee, TakeThePagesOfAPdfAsPictures) {
  if (std::system("command -v pdftoppm > /dev/null") != 0) GTEST_SKIP() << "no pdftoppm";
  write_text(dir_ / "scan.pdf", two_pages());
  const json one = asked({"--image", file("a.png")}), pages = asked({"--image", file("scan.pdf")});
  // In place of the 15 tokens of the picture and what is around it two pages of 7 squares, of 4
  // tokens each.
  EXPECT_EQ(pages["statistics"]["prompt"]["tokens"],
            one["statistics"]["prompt"]["tokens"].get<std::size_t>() - 15 + 2 * 31);
  write_text(dir_ / "cut.pdf", two_pages().substr(0, 20));
  expect_refusal(run({"run", "-m", model(), "--image", file("cut.pdf"), "what?"}),
                 "pdftoppm cannot read it");
}

TEST_F(ProgramsThatSee, RefuseWhatIsNoPicture) {
  const std::vector<std::string> start = {"run", "-m", model(), "--question", "what?", "--image"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = start;
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  expect_refusal(with({file("c.png")}), "c.png: no picture in JPEG, PNG or WebP");
  expect_refusal(with({file("none.png")}), "none.png");
  expect_refusal(with({file("a.png"), "--raw"}), "chat template");
  expect_refusal(with({file("a.png"), "--cite"}), "--cite");
  expect_refusal(
      run({"run", "-m", model("qwen2.gguf"), "--image", file("a.png"), "--question", "what?"}),
      "--mmproj");
}

TEST_F(ProgramsThatSee, TalkAboutPictures) {
  const std::string said = "/image " + file("a.png") + "\nwhat?\nand now?\n/image " +
                           file("b.png") + "\nwhat?\n/stats\n";
  for (const char* method : {"exact", "snapkv:budget=64,sink=4,window=8"}) {
    const auto result =
        Program({"chat", "-m", model(), "-n", "3", "--method", method, "-q"}, said).wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n') >= 3, true);
    EXPECT_THAT(result.err, Not(HasSubstr("ballast:")));
  }
}

}  // namespace
}  // namespace ballast
