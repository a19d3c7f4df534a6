// ballast eval captions with a tiny model that sees.
#include "cli/program.h"
#include "vision/towers.h"

namespace ballast {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::kPicture;
using test::run;
using test::write_png;
using testing::HasSubstr;

class Captions : public testing::Test {
 protected:
  void SetUp() override {
    if (!towers().made) GTEST_SKIP() << "tests/vision/towers.py needs python3 with numpy";
    write_png(dir_ / "a.png", kPicture);
    Picture other = kPicture;
    for (auto& x : other.pixels) x = static_cast<std::uint8_t>(255 - x);
    write_png(dir_ / "b.png", other);
  }
  static const test::Towers& towers() {
    static const test::Towers made;
    return made;
  }
  static std::string model() { return (towers().dir / "qwen2").string(); }
  std::string file(const char* name) const { return (dir_ / name).string(); }

  TempDir dir_;
};

TEST_F(Captions, ReportWhatIsKeptOfAPicture) {
  write_text(dir_ / "captions.json", R"({"images": [{"id": 1, "file_name": "a.png"}],
      "annotations": [{"image_id": 1, "caption": "A dog."}]})");
  const auto result = run({"eval", "captions", "-m", model(), "--data", file("captions.json"),
                           "--max-tokens", "4", "--methods", "exact;snapkv:sink=2,window=4",
                           "--rates", "0.5", "-q", "--show-kept", "--json=" + file("kept.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json kept = json::parse(read_text(file("kept.json")))["kept"];
  const std::size_t begin = kept["pictures"][0]["begin"];
  for (std::size_t i = 0; i < 14; ++i) {  // of them 12 are the picture's
    EXPECT_EQ(kept["pieces"][begin - 1 + i] == "\uFFFC", i >= 1 && i <= 12) << i;
  }
  ASSERT_EQ(run({"report", file("kept.json"), "-o", file("a.html")}).exit_code, 0);
  const std::string page = read_text(file("a.html"));
  EXPECT_THAT(page, HasSubstr("\"columns\":2,\"rows\":1,\"side\":2,\"thumbnail\":true"));
  EXPECT_THAT(page, HasSubstr("data:image/png;base64,iVBOR"));
}

TEST_F(Captions, DescribePictures) {
  write_text(dir_ / "captions.json", R"({"images": [{"id": 1, "file_name": "a.png"},
      {"id": 2, "file_name": "b.png"}], "annotations": [
      {"image_id": 1, "caption": "A dog."}, {"image_id": 1, "caption": "The dog"},
      {"image_id": 2, "caption": "Two cats"}]})");
  const auto result =
      run({"eval", "captions", "-m", model(), "--data", file("captions.json"), "--max-tokens", "4",
           "--methods", "exact;snapkv:sink=2,window=4", "--rates", "0.5", "-q", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = result.json()["results"];
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    for (const char* key : {"score", "rouge_l", "meteor", "bleu_1", "bleu_4"}) {
      EXPECT_TRUE(row[key].is_number()) << key << row.dump();
    }
    EXPECT_EQ(row["samples"], 2);
  }
  EXPECT_LT(rows[1]["entries"], rows[0]["entries"]);
  write_text(dir_ / "captions.json", R"({"images": [{"id": 1, "file_name": "z.png"}],
      "annotations": [{"image_id": 1, "caption": "A dog."}]})");
  expect_refusal(run({"eval", "captions", "-m", model(), "--data", file("captions.json"), "-q"}),
                 "z.png: no such picture");
  write_text(dir_ / "captions.json", "[]");
  expect_refusal(run({"eval", "captions", "-m", model(), "--data", file("captions.json"), "-q"}),
                 "expected COCO's annotations");
}

}  // namespace
}  // namespace ballast
