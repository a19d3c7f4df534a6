#include "formats/json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>

#include "base/read_file.h"
#include "paths.h"

namespace ballast {
namespace {

template <typename T>
class JsonValues : public testing::Test {};
using Types = testing::Types<SortedJson, Json>;
TYPED_TEST_SUITE(JsonValues, Types);

TYPED_TEST(JsonValues, AreDestroyedAtAnyDepth) {
  // Made from within, as parsing and insert() copy.
  TypeParam value = 0;
  for (std::size_t i = 0; i < 300'000; ++i) {
    TypeParam outer = TypeParam::array({1, TypeParam::array({2}), 3});
    if (i % 2 == 0) outer = TypeParam{{"a", {{"d", 3}}}};
    if (i % 2 == 0) {
      outer["b"] = std::move(value);
    } else {
      outer[i / 2 % 3] = std::move(value);
    }
    value = std::move(outer);
  }
  value = "b";
  EXPECT_EQ(value, "b");
}

TYPED_TEST(JsonValues, KeepTheirPartsWhenOthersAreDestroyed) {
  const auto whole = TypeParam::parse(R"([[1, ["a"]], {"b": [{"c": [2]}, null], "d": {}}, []])");
  TypeParam copy = whole;
  const TypeParam part = copy[1]["b"][0];
  copy.erase(0);
  copy[0].erase("b");
  EXPECT_EQ(copy.dump(), R"([{"d":{}},[]])");
  EXPECT_EQ(part.dump(), R"({"c":[2]})");
  EXPECT_EQ(whole.dump(), R"([[1,["a"]],{"b":[{"c":[2]},null],"d":{}},[]])");
  EXPECT_EQ(TypeParam::binary({1, 2, 3}).get_binary().size(), 3U);
}

// A value of another type would end the program where its destructor gets no memory.
TEST(Json, IsOfNoOtherTypeInTheSource) {
  namespace fs = std::filesystem;
  const fs::path source = BALLAST_SOURCE_DIR "/src";
  const std::regex other(R"(<nlohmann/|nlohmann::(ordered_)?json\b|nlohmann::basic_json)");
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    const fs::path path = fs::relative(entry.path(), source);
    if (!entry.is_regular_file() || path == "formats/json.h" || path == "formats/json_fwd.h" ||
        path == "formats/json.cc")
      continue;
    ++files;
    EXPECT_FALSE(std::regex_search(read_file(entry.path()), other))
        << path << ": use formats/json.h";
  }
  EXPECT_GT(files, 100);
}

}  // namespace
}  // namespace ballast
