// Needles and types of storage, on a tiny model.
#include "program/tiny.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::copa;
using test::expect_refusal;
using test::run_with;
using test::Said;
using test::Words;
using testing::HasSubstr;
using test::operator+;

class EvalKinds : public test::EvalTiny {};

TEST_F(EvalKinds, NeedlesMakeAMapOfEachMethod) {
  const Words words = {"--lengths", "700,900",  "--depths", "0,0.5,1",   "--repeat",
                       "2",         "--shares", "0.6",      "--methods", "exact;local;h2o",
                       "--needles", "2",        "--seed",   "3"};
  const json all = result("needle", words);
  // Two lengths and all of them, three methods each.
  ASSERT_EQ(all["results"].size(), 9u);
  EXPECT_EQ(all["results"][0]["length"], 700);
  EXPECT_EQ(all["results"][0]["samples"], 6);
  EXPECT_EQ(all["results"][8]["length"], "all");
  EXPECT_EQ(all["results"][8]["samples"], 12);
  for (const json& row : all["results"]) {
    if (row["method"] == "exact") continue;
    EXPECT_EQ(row["share"], 0.6);
    EXPECT_LE(row["cache_bytes"], 0.6 * row["exact_bytes"].get<double>());
    EXPECT_GT(row["cache_bytes"], 0.4 * row["exact_bytes"].get<double>());
  }
  ASSERT_EQ(all["plots"].size(), 3u);
  for (const json& plot : all["plots"]) {
    EXPECT_EQ(plot["kind"], "heat");
    EXPECT_EQ(plot["x_labels"], (Words{"700", "900"}));
    EXPECT_EQ(plot["y_labels"], (Words{"0%", "50%", "100%"}));
    ASSERT_EQ(plot["maps"].size(), 1u);
    ASSERT_EQ(plot["maps"][0]["cells"].size(), 3u);
    for (const json& line : plot["maps"][0]["cells"]) {
      ASSERT_EQ(line.size(), 2u);
      for (const json& cell : line) EXPECT_TRUE(cell == 0.0 || cell == 0.5 || cell == 1.0) << cell;
    }
  }
  EXPECT_EQ(all["plots"][1]["title"], "Needles in a haystack: local 0.6 of bytes");
  EXPECT_EQ(result("needle", words), all);
  // Another seed asks other questions.
  const Words one = {"--lengths", "600",       "--depth-count", "1",         "--repeat",
                     "1",         "--methods", "exact",         "--passkey", "--json"};
  EXPECT_NE(eval("needle", one + Words{"--seed", "1"}).json()["settings"],
            eval("needle", one + Words{"--seed", "2"}).json()["settings"]);
}

TEST_F(EvalKinds, NeedlesHideInATextOfOnesOwn) {
  const Words words = {"--lengths", "700", "--depths",  "0.5",
                       "--repeat",  "1",   "--methods", "exact"};
  const std::string hay = file("hay/a.txt", "One sheep slept. Two dogs barked! Who came?");
  const json all = result("needle", words + Words{"--haystack", path("hay")});
  EXPECT_EQ(all["settings"]["haystack"], path("hay"));
  EXPECT_EQ(all["results"].size(), 1u);
  expect_refusal(eval("needle", words + Words{"--haystack", path("none")}), path("none"));
  file("empty/a.txt", "");
  expect_refusal(eval("needle", words + Words{"--haystack", path("empty")}), path("empty"));
}

TEST_F(EvalKinds, NeedlesRefuseWhatCannotBe) {
  const auto refused = [&](const Words& more, const std::string& message) {
    expect_refusal(eval("needle", Words{"--lengths", "700", "--methods", "exact"} + more), message);
  };
  // A map of shorter texts would lie.
  refused({"--lengths", "4000"}, "--lengths 4000: the model has 2048 positions; give at most 2048");
  const std::string least = "--lengths 20: the question and what is hidden need at least ";
  const std::string said = eval("needle", {"--lengths", "20", "--methods", "exact"}).err;
  ASSERT_THAT(said, HasSubstr(least));
  const auto enough = std::stoul(said.substr(said.find(least) + least.size()));
  refused({"--lengths", std::to_string(enough - 1)}, "--lengths " + std::to_string(enough - 1));
  EXPECT_EQ(eval("needle", {"--lengths", std::to_string(enough), "--methods", "exact"}).exit_code,
            0);
  refused({"--depths", "1.5"}, "--depths 1.5");
  refused({"--repeat", "0"}, "--repeat");
  refused({"--limit", "1"}, "use --repeat");
  refused({"--cache-types", "f16,int4"}, "one --cache-type at a time");
  refused({"--methods", "h2o", "--shares", "0.5", "--rates", "0.5"}, "exclude each other");
}

TEST_F(EvalKinds, RecordsRefuseLengthsByName) {
  const auto refused = [&](const char* length, const char* message) {
    expect_refusal(eval("records", {"--lengths", length, "--methods", "exact"}), message);
  };
  refused("4000", "--lengths 4000: the model has 2048 positions; give at most 2048");
  refused("20", "--lengths 20: too few tokens for 10 fields; give more, or fewer --questions");
}

TEST_F(EvalKinds, QuantizedComparesTypesOfStorage) {
  const Words words = {
      "--data", file("copa.jsonl", copa(3)), "--shots", "1", "--methods", "exact;h2o", "--rates",
      "0.5"};
  const json all = result("quantised", words);
  ASSERT_EQ(all["results"].size(), 4u);
  const auto bytes = [&](std::size_t row) {
    return all["results"][row]["cache_bytes"].get<double>();
  };
  EXPECT_EQ(all["results"][0]["cache_type"], "bf16");
  EXPECT_EQ(all["results"][1]["method"], "h2o");
  EXPECT_EQ(all["results"][2]["cache_type"], "int4");
  EXPECT_EQ(all["results"][2]["method"], "exact");
  // Rows of so small a model are mostly room for alignment, so that four bits save nothing here.
  EXPECT_NE(bytes(2), bytes(0));
  EXPECT_NE(bytes(3), bytes(1));
  EXPECT_EQ(all["results"][2]["entries"], all["results"][0]["entries"]);
  EXPECT_EQ(result("quantised", words), all);
  const Said table = eval("quantised", words);
  EXPECT_THAT(table.out, HasSubstr("storage"));
}

TEST_F(EvalKinds, TypesOfStorageAreComparedInAnyExperiment) {
  const Words words = {"--lines", "3", "--repeat", "1", "--max-tokens", "3", "--methods", "exact"};
  const json all = result("lines", words + Words{"--cache-types", "f32,f16,bf16,int8,int4"});
  ASSERT_EQ(all["results"].size(), 5u);
  Words types;
  for (const json& row : all["results"]) types.push_back(row["cache_type"]);
  EXPECT_EQ(types, (Words{"f32", "f16", "bf16", "int8", "int4"}));
  EXPECT_EQ(all["results"][0]["cache_bytes"], 2 * all["results"][1]["cache_bytes"].get<double>());
  const json mixed = result("lines", words + Words{"--key-type", "f16", "--value-type", "int4"});
  EXPECT_EQ(mixed["results"][0]["cache_type"], "f16/int4");
  expect_refusal(eval("lines", words + Words{"--cache-types", "f16,int4", "--key-type", "f16"}),
                 "--key-type and --value-type need a single --cache-type");
  expect_refusal(eval("lines", words + Words{"--cache-type", "int3"}), "int3");
}

}  // namespace
}  // namespace ballast
