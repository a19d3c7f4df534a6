// ballast bench on a tiny random model: what it reports, not how fast that is.
#include <filesystem>
#include <sstream>

#include "ballast/engine/model.h"
#include "cli/model_run.h"
#include "experiments/speed/speed_report.h"
#include "simd/cpu.h"

namespace ballast {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::run_with;
using test::Said;
using test::Words;
using testing::HasSubstr;
using test::operator+;

const std::string kShape =
    "layers=2,width=64,heads=4,kv=2,head=32,hidden=96,vocabulary=300,positions=2000,type=q8_0";

Said bench(const Words& more) { return run_with(Words{"bench", "--shape", kShape} + more); }

void expect_positive(const json& row, std::initializer_list<const char*> keys) {
  for (const char* key : keys) EXPECT_GT(row.at(key).get<double>(), 0) << key;
}

TEST(Bench, ReportsEveryMethodAtEveryLength) {
  const Said said = bench({"--prompt", "40,64", "--generate", "4", "--methods",
                           "exact;balancekv:budget=24,sink=2,window=8", "--cache-type", "bf16",
                           "--threads", "1", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json all = said.json();
  EXPECT_EQ(all.at("benchmark"), "speed");
  EXPECT_EQ(all.at("model"), kShape);
  EXPECT_EQ(all.at("key_type"), "bf16");
  EXPECT_EQ(all.at("protocol"), "prefill");
  EXPECT_EQ(all.at("machine").at("threads"), 1);
  expect_positive(all.at("machine"), {"read_bytes_per_second", "f32_flops"});
  EXPECT_TRUE(all.at("machine").contains("int16_flops"));
  EXPECT_EQ(all.at("machine").at("int8_tile_flops").is_null(), !has_amx_int8());
  EXPECT_EQ(all.at("machine").at("bf16_tile_flops").is_null(), !has_amx_bf16());
  EXPECT_TRUE(all.at("machine").at("bf16_tiles_refused").is_null());
  ASSERT_EQ(all.at("results").size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const json& row = all.at("results").at(i);
    EXPECT_EQ(row.at("method"), i < 2 ? "exact" : "balancekv:budget=24,sink=2,window=8");
    EXPECT_EQ(row.at("prompt"), i % 2 == 0 ? 40 : 64);
    EXPECT_EQ(row.at("generated"), 4);
    EXPECT_EQ(row.at("batch"), 1);
    expect_positive(row, {"prompt_seconds", "prompt_tokens_per_second", "prompt_floor_seconds",
                          "prompt_over_floor", "decode_seconds", "decode_seconds_per_token",
                          "decode_tokens_per_second", "decode_floor_seconds", "decode_over_floor",
                          "entries", "cache_bytes", "exact_cache_bytes", "peak_memory"});
    EXPECT_FALSE(row.contains("prompt_speed_over_peer"));
  }
  EXPECT_EQ(all.at("results").at(0).at("entries"), 44);
}

TEST(Bench, SaysWhyBf16TilesAreNotUsed) {
  Machine machine;
  EXPECT_THAT(to_text(machine), Not(HasSubstr("bfloat16 tiles")));
  EXPECT_TRUE(to_json(machine).at("bf16_tiles_refused").is_null());
  machine.bf16_tiles_refused = "row 3, column 5";
  EXPECT_THAT(to_text(machine), HasSubstr("\nbfloat16 tiles are not used, their sums are not "
                                          "those of vectors: row 3, column 5"));
  EXPECT_EQ(to_json(machine).at("bf16_tiles_refused"), "row 3, column 5");
}

TEST(Bench, ServesClientsAtOnce) {
  const Said said = bench({"--serve", "--prompt", "40,64", "--streams", "1,3", "--generate", "4",
                           "--methods", "exact;replay:bytes=1/2", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json all = said.json();
  EXPECT_EQ(all.at("benchmark"), "serve");
  ASSERT_EQ(all.at("results").size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    const json& row = all.at("results").at(i);
    EXPECT_EQ(row.at("prompt"), i / 2 % 2 == 0 ? 40 : 64);
    EXPECT_EQ(row.at("streams"), i % 2 == 0 ? 1 : 3);
    expect_positive(row, {"first_token_median", "first_token_p95", "token_median", "seconds",
                          "tokens_per_second", "cache_bytes", "peak_memory"});
  }
  // Prompts that begin alike would be read once.
  EXPECT_EQ(all.at("results").at(1).at("cache_bytes"),
            3 * all.at("results").at(0).at("cache_bytes").get<std::size_t>());
  EXPECT_THAT(bench({"--serve", "--prompt", "40", "--streams", "2", "--generate", "2"}).out,
              HasSubstr("tokens/s"));
  expect_refusal(bench({"--serve", "--scale", "1k..2k"}), "--serve goes with none of");
  expect_refusal(bench({"--streams", "2"}), "--streams needs --serve");
}

TEST(Bench, TakesMethodsBetweenCommasAndSemicolons) {
  const auto names = [](const Words& methods) {
    const Said said = bench(Words{"--prompt", "40", "--generate", "1", "--json"} + methods);
    EXPECT_EQ(said.exit_code, 0) << said.err;
    std::vector<std::string> out;
    const json all = said.json();
    for (const json& row : all.at("results")) out.push_back(row.at("method"));
    return out;
  };
  const std::string balance = "balancekv:budget=24,sink=2,window=8",
                    window = "streaming-llm:budget=24,sink=1";
  const auto all = testing::ElementsAre("exact", balance, window, "exact");
  EXPECT_THAT(names({"--methods", "exact," + balance + "," + window + ",exact"}), all);
  EXPECT_THAT(names({"--methods", "exact;" + balance + " ; " + window + ",exact,"}), all);
  EXPECT_THAT(names({"--methods", "exact", "--methods", balance + ", " + window + ";exact"}), all);
  expect_refusal(bench({"--methods", "exact;budget=24"}), "unknown method 'budget=24'");
}

TEST(Bench, ShowsATableAndLeavesNoModelBehind) {
  const TempDir dir;
  ASSERT_EQ(::setenv("TMPDIR", dir.path().c_str(), 1), 0);
  const Said said = bench({"--prompt", "32", "--generate", "2"});
  ::unsetenv("TMPDIR");
  ASSERT_EQ(said.exit_code, 0) << said.err;
  for (const char* part : {"GB/s read", "exact", "balancekv:rate=0.25", "summarise", "/ floor"}) {
    EXPECT_THAT(said.out, HasSubstr(part));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THAT(said.err, Not(HasSubstr("wrote")));
  const Said csv = bench({"--prompt", "32", "--generate", "2", "--csv"});
  EXPECT_THAT(csv.out, testing::StartsWith("method,prompt,generated,batch,prompt_seconds,"));
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 3) << csv.out;  // two methods
}

TEST(Bench, CsvHasPlainNumbersUnderDifferentKeys) {
  const auto head = [](const Words& words, const std::string& numbers) {
    const std::string out =
        bench(words + Words{"--generate", "2", "--methods", "exact", "--csv"}).out;
    EXPECT_THAT(out, testing::ContainsRegex("\nexact," + numbers + "(,[-+.e0-9]*)*\n")) << out;
    std::vector<std::string> keys;
    std::istringstream line(out.substr(0, out.find('\n')));
    for (std::string key; std::getline(line, key, ',');) {
      EXPECT_THAT(keys, testing::Not(testing::Contains(key)));
      EXPECT_NE(key, "");
      keys.push_back(key);
    }
    return keys;
  };
  EXPECT_THAT(head({"--prompt", "1024"}, "1024,2,1"), testing::Contains("decode_over_floor"));
  EXPECT_THAT(head({"--scale", "1k..1k"}, "1024"), testing::Contains("entries"));
  EXPECT_THAT(head({"--serve", "--prompt", "1024", "--streams", "1"}, "1024,1"),
              testing::Contains("token_median"));
}

TEST(Bench, EachPartOfANarrowTableNamesItsRows) {
  test::columns = "80";
  const Said said = bench({"--prompt", "32,64", "--generate", "1", "--methods", "exact"});
  const Said memory =
      bench({"--memory", "64M", "--prompt", "32", "--generate", "1", "--methods", "exact"});
  test::columns = "200";
  EXPECT_THAT(said.out, HasSubstr("\n\nmethod  prompt  decode tokens/s  decode / floor"));
  EXPECT_THAT(said.out, HasSubstr("\n\nmethod  prompt  first token  prompt tokens/s  prompt / fl"));
  EXPECT_THAT(memory.out, HasSubstr("\n\n  memory  prompt  method  decode tokens/s  decode r"));
}

TEST(Bench, RunsAsOnAProcessorWithoutAvx512) {
  const Words words = {"--prompt", "16", "--generate", "1", "--methods", "exact"};
  const Said said = bench(words + Words{"--target", "avx2", "--json"});
  if (!has_avx2()) return expect_refusal(said, "--target avx2: this processor");
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(said.json().at("target"), "avx2");
  EXPECT_TRUE(said.json().at("machine").at("bf16_flops").is_null());
  EXPECT_GT(said.json().at("machine").at("int16_flops").get<double>(), 0);
  EXPECT_EQ(bench(words + Words{"--json"}).json().at("target"), "native");
  EXPECT_THAT(bench(words + Words{"--target", "avx2"}).out, HasSubstr("target avx2"));
  expect_refusal(bench(words + Words{"--target", "sse9"}), "--target sse9");
  const Said tiles = bench(words + Words{"--target", "amx"});
  if (has_amx_int8()) {
    EXPECT_THAT(tiles.out, HasSubstr("int8 by tiles"));
  } else {
    expect_refusal(tiles, "--target amx: this processor");
  }
  if (has_avx512_vnni()) {
    EXPECT_THAT(bench(words + Words{"--target", "avx512"}).out, Not(HasSubstr("tiles")));
  }
}

TEST(Bench, KeepsTheModelThatItIsToldToKeep) {
  const TempDir dir;
  const std::string path = dir / "model.gguf";
  const Said made = bench({"--prompt", "8", "--generate", "1", "--write-model", path});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("ballast: wrote " + path + "\n"));
  const Said said =
      run_with({"bench", "-m", path, "--prompt", "8", "--generate", "1", "--batch", "3", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(said.json().at("results").at(0).at("batch"), 3);
  EXPECT_EQ(said.json().at("weight_bytes"), Model(path).file().bytes());
}

TEST(Bench, ComparesWithAnotherProgram) {
  const TempDir dir;
  write_text(dir / "peer", R"(echo '{"name": "other 1.0", "results": [
    {"prompt": 16, "generated": 2, "prompt_seconds": 100, "decode_seconds": 200}]}')");
  const std::string peer = "sh " + (dir / "peer").string();
  const Words words = {"--prompt", "16,32", "--generate", "2", "--methods", "exact"};
  const Said said = bench(words + Words{"--against", peer, "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json all = said.json();
  const json& row = all.at("results").at(0);
  EXPECT_NEAR(
      row.at("prompt_speed_over_peer").get<double>() * row.at("prompt_seconds").get<double>(), 100,
      1e-3);
  EXPECT_NEAR(row.at("decode_speed_over_peer").get<double>() *
                  row.at("decode_seconds_per_token").get<double>(),
              100, 1e-3);
  EXPECT_TRUE(all.at("results").at(1).at("decode_speed_over_peer").is_null());
  EXPECT_EQ(all.at("peer").at("name"), "other 1.0");
  EXPECT_THAT(bench(words + Words{"--against", peer}).out, HasSubstr("other 1.0"));
  // It runs as often as the methods, and its least times count, too: 100 and 200, then 50 and 300.
  write_text(dir / "turns", R"(t=50 d=300
    [ -e "$0.ran" ] || { t=100 d=200; : > "$0.ran"; }
    echo '{"name": "o", "results": [{"prompt": 16, "generated": 2,' \
         '"prompt_seconds": '$t', "decode_seconds": '$d'}]}')");
  const Said turns = bench(
      words + Words{"--against", "sh " + (dir / "turns").string(), "--repeat", "2", "--json"});
  ASSERT_EQ(turns.exit_code, 0) << turns.err;
  EXPECT_EQ(turns.json().at("peer").at("results").at(0).at("prompt_seconds"), 50);
  EXPECT_EQ(turns.json().at("peer").at("results").at(0).at("decode_seconds"), 200);
  expect_refusal(bench(words + Words{"--against", "false"}), "'false' failed");
  expect_refusal(bench(words + Words{"--repeat", "0"}), "--repeat");
  expect_refusal(run_with({"eval", "efficiency", "--shape", kShape, "--repeat", "0"}), "--repeat");
}

TEST(Bench, FillsAGivenMemory) {
  const Said said =
      bench({"--memory", "4M,5M", "--prompt", "64", "--generate", "8", "--methods",
             "exact;streaming-llm:budget=16,sink=2", "--batch", "4", "--repeat", "2", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json all = said.json();
  EXPECT_EQ(all.at("benchmark"), "throughput");
  EXPECT_EQ(all.at("memory"), json::array({4 << 20, 5 << 20}));
  ASSERT_EQ(all.at("results").size(), 4u);
  EXPECT_EQ(all.at("results").at(1).at("memory"), 4 << 20);
  EXPECT_EQ(all.at("results").at(2).at("memory"), 5 << 20);
  for (const json& row : all.at("results")) {
    EXPECT_EQ(row.at("batch"), 4);
    expect_positive(row, {"prompt_seconds", "decode_seconds", "decode_tokens_per_second",
                          "tokens_per_second", "sequence_bytes", "reading_bytes"});
  }
  const Said small = bench({"--memory", "1k", "--prompt", "64", "--generate", "8"});
  EXPECT_EQ(small.exit_code, 0) << small.err;
  EXPECT_THAT(small.out, HasSubstr("does not fit"));
}

TEST(Bench, GrowsATextAndDrawsIt) {
  const TempDir dir;
  const std::string plot = dir / "scale.svg";
  const Said said = bench({"--scale", "128..1k", "--generate", "4", "--methods",
                           "balancekv:budget=64,sink=2,window=16", "--plot", plot, "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json all = said.json();
  EXPECT_EQ(all.at("benchmark"), "scale");
  EXPECT_EQ(all.at("protocol"), "stream");
  ASSERT_EQ(all.at("results").size(), 4u);
  for (const json& row : all.at("results")) EXPECT_LE(row.at("entries"), 64);
  EXPECT_EQ(all.at("results").at(3).at("tokens"), 1024);
  EXPECT_TRUE(std::filesystem::exists(plot));
  EXPECT_TRUE(std::filesystem::exists(dir / "scale-memory.svg"));
  EXPECT_THAT(said.err, HasSubstr("wrote " + plot + "\n"));
  EXPECT_THAT(said.err, HasSubstr("wrote " + (dir / "scale-memory.svg").string() + "\n"));
}

TEST(Bench, RepeatsTheEfficiencyExperiment) {
  const Said said = run_with({"eval", "efficiency", "--shape", kShape, "--prompt", "200",
                              "--generate", "4", "--repeat", "2", "--methods",
                              "exact;balancekv:sink=2,window=16", "--rates", "0.5", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json all = said.json();
  EXPECT_EQ(all.at("experiment"), "efficiency");
  EXPECT_EQ(all.at("settings").at("repeat"), 2);
  ASSERT_EQ(all.at("results").size(), 2u);
  for (const json& row : all.at("results")) {
    expect_positive(row, {"prefill_seconds", "decode_seconds", "decode_ratio", "cache_bytes"});
    EXPECT_NEAR(row.at("prefill_seconds").get<double>(),
                row.at("prompt_seconds").get<double>() + row.at("compress_seconds").get<double>(),
                1e-9);
  }
  EXPECT_EQ(all.at("results").at(0).at("decode_ratio"), 1);
  EXPECT_GT(all.at("results").at(1).at("cache_ratio").get<double>(), 1.2);
}

TEST(Bench, RepeatsTheThroughputExperiment) {
  const TempDir dir;
  const std::string file = dir / "out.json";
  const Words words = {"eval",          "throughput",
                       "--shape",       kShape,
                       "--prompt",      "64,96",
                       "--generate",    "4",
                       "--memory",      "8M",
                       "--batch",       "3",
                       "--methods",     "exact;h2o:rate=0.5,window=8",
                       "--json=" + file};
  const Said said = run_with(words);
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("tokens/s"));
  const json all = json::parse(read_text(file));
  EXPECT_EQ(all.at("experiment"), "throughput");
  ASSERT_EQ(all.at("results").size(), 4u);
  for (const json& row : all.at("results")) {
    EXPECT_EQ(row.at("batch"), 3);
    EXPECT_EQ(row.at("limit"), "--batch");
    EXPECT_EQ(row.at("extrapolated"), false);
    expect_positive(row, {"tokens_per_second", "ratio"});
  }
  Words offload = words;
  offload.push_back("--offload");
  ASSERT_EQ(run_with(offload).exit_code, 0);
  const json both = json::parse(read_text(file)).at("results");
  ASSERT_EQ(both.size(), 8u);
  for (std::size_t i = 0; i < both.size(); ++i) {
    EXPECT_EQ(both[i].at("weights"), i % 2 == 0 ? "memory" : "disk");
    EXPECT_EQ(both[i].at("batch"), 3);
  }
  EXPECT_FALSE(std::filesystem::exists(file + ".progress"));
  test::columns = "80";
  const Said narrow = run_with(words);
  test::columns = "200";
  EXPECT_THAT(narrow.out, testing::ContainsRegex("\nprompt  method  .*  tokens/s  ratio\n"));
  expect_refusal(run_with({"eval", "throughput", "--shape", kShape, "--memory", "x"}),
                 "--memory x");
}

TEST(Bench, SaysWhatIsWrong) {
  expect_refusal(run_with({"bench"}), "give -m FILE or --shape, one of the two");
  expect_refusal(bench({"-m", "x.gguf"}), "not both");
  expect_refusal(run_with({"bench", "--shape", "layers=none"}), "layers=none");
  expect_refusal(run_with({"bench", "-m", "x.gguf", "--write-model", "y"}), "needs --shape");
  expect_refusal(run_with({"bench", "-m", "/nowhere.gguf"}), "/nowhere.gguf");
  expect_refusal(bench({"--methods", "magic"}), "magic");
  expect_refusal(bench({"--prompt", "1990", "--generate", "11"}), "2000 positions");
  expect_refusal(bench({"--prompt", "0"}), "a prompt of 0 tokens");
  expect_refusal(bench({"--generate", "0"}), "0 tokens generated");
  expect_refusal(bench({"--memory", "lots"}), "--memory lots");
  expect_refusal(bench({"--memory", "900000G"}), "exceeds the");
  expect_refusal(bench({"--memory", "1G", "--scale", "1k..2k"}), "not both");
  expect_refusal(bench({"--scale", "1k"}), "expected a range");
  expect_refusal(bench({"--scale", "1k..512"}), "1024 to 512");
  expect_refusal(bench({"--scale", "1k..4k"}), "2000 positions");
  expect_refusal(bench({"--plot", "x.svg"}), "--plot needs --scale");
  expect_refusal(bench({"--scale", "1k..2k", "--against", "true"}), "neither");
  expect_refusal(bench({"--prompt", "many"}), "many", 2);
}

}  // namespace
}  // namespace ballast
