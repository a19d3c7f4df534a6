// Experiments on attention and the commands around them, through the program.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "ballast/cache.h"
#include "ballast/engine/safetensors.h"
#include "ballast/method.h"
#include "cli/program.h"
#include "experiments/kv_files.h"
#include "partial_count.h"

namespace ballast {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::Program;
using test::ProgramResult;
using test::run;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::vector<std::vector<std::string>> kCommands = {
    {"synth"},         {"compress"},          {"capture"},        {"report"},
    {"eval"},          {"eval", "attention"}, {"eval", "memory"}, {"eval", "ablation"},
    {"eval", "norms"}, {"eval", "clusters"},  {"eval", "heavy"}};

class Commands : public ::testing::Test {
 protected:
  /// A small stream on disk.
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const auto made =
        run({"synth", "-o", stream(), "--tokens", "300", "--layers", "2", "--heads", "4",
             "--kv-heads", "2", "--dim", "8", "--query-norm", "4", "--key-norm", "4"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    ASSERT_THAT(made.out, HasSubstr("2 layers of 4 query and 2 KV heads, 300 tokens"));
  }
  static void TearDownTestSuite() { delete dir_; }
  static std::string path(const char* name) { return (*dir_ / name).string(); }
  static std::string stream() { return path("stream.safetensors"); }
  static std::vector<std::string> eval(std::vector<std::string> more) {
    std::vector<std::string> all = {"eval",     "attention", "--sink",    "8",
                                    "--window", "16",        "--queries", "16",
                                    "--seeds",  "2",         "--rates",   "0.5,0.25"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static TempDir* dir_;
};
TempDir* Commands::dir_ = nullptr;

// --- usage ---

TEST_F(Commands, EveryHelpEndsWithAnExample) {
  for (auto command : kCommands) {
    std::string name = "ballast";
    for (const std::string& word : command) name += " " + word;
    command.push_back("--help");
    const auto result = run(command);
    EXPECT_EQ(result.exit_code, 0) << name;
    EXPECT_THAT(result.out, HasSubstr("Usage: " + name + " ")) << name;
    const std::size_t example = result.out.find("\nExample:\n  ballast ");
    ASSERT_NE(example, std::string::npos) << name;
    // Nothing stands after it; a second one may.
    EXPECT_LE(std::count(result.out.begin() + static_cast<long>(example), result.out.end(), '\n'),
              5);
    EXPECT_THAT(result.err, IsEmpty());
  }
}

TEST_F(Commands, EvalMayBeLeftOut) {
  EXPECT_EQ(run({"lines", "--help"}).out, run({"eval", "lines", "--help"}).out);
  EXPECT_EQ(run({"help"}).out, run({"eval", "--help"}).out);
  EXPECT_EQ(run({"eval", "--threads", "1", "bench", "--help"}).out, run({"bench", "--help"}).out);
  EXPECT_EQ(run({"--check", "memory", "--lengths", "300"}).exit_code, 0);
  EXPECT_THAT(run({"version"}).out, StartsWith("ballast "));
}

TEST_F(Commands, WrongUsageIsExit2) {
  expect_refusal(run({}), "ballast eval needs a command; known: attention, ", 2);
  expect_refusal(run({"eval", "foo"}), "unknown command 'foo'; known: attention", 2);
  expect_refusal(run({"synth"}), "--out is required; see ballast synth --help", 2);
  expect_refusal(run({"synth", "-o", "x", "--tokens", "many"}), "--tokens", 2);
  expect_refusal(run({"synth", "-o", "x", "--tokens", "-1"}),
                 "--tokens: -1 is not a whole number from 0", 2);
  expect_refusal(run({"synth", "-o", "x", "--tokens", "99999999999999999999"}), "--tokens", 2);
  expect_refusal(run({"synth", "-o", "x", "--tokens", "4", "--tokens", "5"}),
                 "--tokens is given more than once; see ballast synth --help", 2);
  for (auto command : kCommands) {
    command.push_back("--frobnicate");
    EXPECT_EQ(run(command).exit_code, 2);
  }
}

// --- synth ---

TEST_F(Commands, SameSeedSameBytes) {
  const std::vector<std::string> size = {"--tokens", "50", "--dim", "5", "--heads", "2"};
  auto made = [&](const char* name, std::vector<std::string> more) {
    std::vector<std::string> all = {"synth", "-o", path(name)};
    all.insert(all.end(), size.begin(), size.end());
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(run(all).exit_code, 0);
    return read_text(path(name));
  };
  const std::string first = made("a", {"--seed", "3"});
  EXPECT_EQ(made("b", {"--seed", "3", "--threads", "1"}), first);
  EXPECT_NE(made("c", {"--seed", "4"}), first);
  EXPECT_LT(made("d", {"--dtype", "bf16"}).size(), first.size());
  EXPECT_EQ(made("e", {"--dtype", "BFloat16"}), made("d", {"--dtype", "bf16"}));
  EXPECT_EQ(made("e", {"--dtype", "fp16"}), made("d", {"--dtype", "f16"}));
  EXPECT_EQ(made("e", {"--dtype", "Float32", "--seed", "3"}), first);
}

TEST_F(Commands, SynthRefusesWhatCannotBe) {
  expect_refusal(run({"synth", "-o", path("x"), "--tokens", "0"}), "synth: 0 tokens");
  expect_refusal(run({"synth", "-o", path("x"), "--heads", "3"}), "3 query heads for 2 KV heads");
  expect_refusal(run({"synth", "-o", path("x"), "--dtype", "f8"}), "unknown type 'f8'");
  expect_refusal(run({"synth", "-o", path("x"), "--dtype", "q8_0"}), "unknown type 'q8_0'");
  expect_refusal(run({"synth", "-o", path("no/such/folder"), "--tokens", "9"}),
                 "cannot create: No such file or directory");
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

// --- compress and inspect ---

TEST_F(Commands, CompressesAndInspects) {
  const auto text = run({"compress", stream(), "--method", "balancekv:rate=0.25,block=16", "-o",
                         path("kept"), "--save-cache", path("cache")});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("entries/head"));
  EXPECT_THAT(text.out, HasSubstr("ratio      "));
  EXPECT_NO_THROW(Safetensors(path("kept")).at("layer.1.head.1.normaliser_weights"));

  const auto cache = run({"inspect", path("cache")});
  EXPECT_EQ(cache.exit_code, 0) << cache.err;
  EXPECT_THAT(cache.out, HasSubstr("balancekv:rate=0.25,block=16"));
  EXPECT_EQ(run({"eval", "inspect", path("cache")}).out, cache.out);
  const auto parsed = json::parse(run({"inspect", path("cache"), "--json"}).out);
  EXPECT_EQ(parsed.at("kind"), "cache");
  EXPECT_EQ(parsed.at("tokens"), 300);
  EXPECT_THAT(cache.out, AllOf(HasSubstr("keys - mean"), HasSubstr("radius, 64 centres"),
                               HasSubstr("balancekv keeps no queries")));
  // Of the entries: the exact cache's are those of the tensors.
  ASSERT_EQ(run({"compress", stream(), "--method", "exact", "--save-cache", path("all")}).exit_code,
            0);
  const auto all = json::parse(run({"inspect", path("all"), "--json"}).out).at("by_layer");
  const auto whole = json::parse(run({"inspect", stream(), "--json"}).out).at("layers");
  for (std::size_t l = 0; l < 2; ++l) {
    for (const char* what : {"key_norm", "shifted_key_norm", "value_norm", "k_centre_radius"}) {
      EXPECT_EQ(all[l].at(what), whole[l].at(what)) << what;
    }
    EXPECT_FALSE(all[l].contains("attention"));
  }
  // SnapKV notes queries: without what it dropped, attention has fewer effective tokens.
  ASSERT_EQ(run({"compress", stream(), "--method", "snapkv:rate=0.5", "--save-cache", path("snap")})
                .exit_code,
            0);
  EXPECT_THAT(run({"inspect", path("snap")}).out, HasSubstr("effective tokens"));
  const auto snap = json::parse(run({"inspect", path("snap"), "--json"}).out).at("by_layer");
  const auto attention = snap[1].at("attention");
  EXPECT_LE(attention.at("effective_tokens").get<double>(), Cache::load(path("snap")).entries());
  EXPECT_GE(attention.at("effective_tokens").get<double>(), 1);
  EXPECT_LE(attention.at("largest").get<double>(), attention.at("top_1_percent").get<double>());

  const auto tensors = run({"inspect", stream()});
  EXPECT_EQ(tensors.exit_code, 0) << tensors.err;
  EXPECT_THAT(tensors.out, HasSubstr("keys - mean"));
  const auto stats = json::parse(run({"inspect", stream(), "--json"}).out);
  EXPECT_EQ(stats.at("layers").size(), 2u);
  EXPECT_NEAR(stats.at("layers")[1].at("query_norm").at("mean").get<double>(), 4, 0.2);
}

// A head's weights of attention are bounded: of many queries over many entries it asks some.
TEST_F(Commands, InspectSaysHowManyQueriesItAsked) {
  ASSERT_EQ(run({"synth", "-o", path("long"), "--tokens", "3500", "--layers", "1", "--heads", "2",
                 "--kv-heads", "1", "--dim", "4"})
                .exit_code,
            0);
  for (const auto& [observe, words] :
       {std::pair{"3000", "mean over 4194 of the last 6000 queries of a KV head"},
        {"2000", "mean over the last queries"}}) {
    const auto made =
        run({"compress", path("long"), "--method",
             std::string("snapkv:budget=2000,observe=") + observe, "--save-cache", path("cache")});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    std::string out = run({"inspect", path("cache")}).out;
    std::ranges::replace(out, '\n', ' ');
    EXPECT_THAT(out, HasSubstr(words));
  }
}

TEST_F(Commands, CompressesInAStream) {
  const auto result =
      run({"compress", stream(), "--method", "balancekv:budget=100,sink=8,window=16,step=16",
           "--protocol", "stream", "--key-type", "int8", "--value-type", "int4", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto parsed = json::parse(result.out);
  EXPECT_EQ(parsed.at("protocol"), "stream");
  EXPECT_LE(parsed.at("layers")[0].at("entries"), 100);
  EXPECT_GT(parsed.at("layers")[0].at("error"), 0.0);
}

TEST_F(Commands, SameSeedSameCache) {
  auto made = [&](const char* name, const char* seed) {
    const auto result = run({"compress", stream(), "--method", "balancekv:rate=0.25,block=16", "-o",
                             path(name), "--seed", seed});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_text(path(name));
  };
  const std::string first = made("kept1", "1");
  EXPECT_EQ(made("kept2", "1"), first);
  EXPECT_NE(made("kept3", "2"), first);
}

TEST_F(Commands, CompressRefusesWhatCannotBe) {
  auto error = [](std::vector<std::string> more, const std::string& message) {
    std::vector<std::string> all = {"compress", stream()};
    all.insert(all.end(), more.begin(), more.end());
    expect_refusal(run(all), message);
  };
  error({"--method", "nonsense"}, "unknown method 'nonsense'");
  error({"--method", "balancekv:nonsense=1"}, "unknown key 'nonsense'");
  error({"--method", "balancekv:budget=10"}, "budget=10 is smaller than sink=32 + window=32");
  error({"--method", "balancekv"}, "say how much to keep");
  error({"--method", "exact", "--protocol", "x"}, "unknown protocol 'x'");
  error({"--method", "exact", "--key-type", "f8"}, "f8");
  error({"--method", "exact", "-o", path("no/such/folder")}, "No such file or directory");
}

TEST_F(Commands, NamesWhatIsWrongWithAFile) {
  const std::string bad = path("bad");
  auto error = [&](const std::string& message) {
    expect_refusal(run({"inspect", bad}), message);
    expect_refusal(run({"compress", bad, "--method", "balancekv:rate=0.5"}), message);
    expect_refusal(run(eval({bad, "--methods", "balancekv"})), message);
  };
  error(bad + ": cannot open: No such file or directory; check the path");
  write_text(bad, "");
  error(bad + ": not a safetensors file");
  write_text(bad, "this is a plain text file, and not a short one");
  error("it seems to be a text file");
  write_text(bad, read_text(stream()).substr(0, 5000));
  error(bad + ": truncated");

  auto tensors = test::layer(4, 2, 40, 3);
  tensors["layer.0.k"].set = {{7, std::numeric_limits<float>::infinity()}};
  test::write_tensors(bad, tensors);
  error(bad + ": tensor 'layer.0.k', head 0, token 2, number 1 is inf");
  tensors = test::layer(4, 2, 40, 3);
  tensors["layer.0.q"].set = {{40 * 3 * 2 - 1, std::numeric_limits<float>::quiet_NaN()}};
  test::write_tensors(bad, tensors);
  expect_refusal(run({"compress", bad, "--method", "balancekv:rate=0.5"}),
                 "tensor 'layer.0.q', head 1, token 39, number 2 is nan");
  // A query at which no method looks is refused as well.
  tensors["layer.0.q"].set = {{4, std::numeric_limits<float>::quiet_NaN()}};
  test::write_tensors(bad, tensors);
  expect_refusal(run({"eval", "attention", bad, "--methods", "streaming-llm", "--sink", "4",
                      "--window", "8", "--queries", "4", "--rates", "0.5"}),
                 "tensor 'layer.0.q', head 0, token 1, number 1 is nan");
  test::write_tensors(bad, test::layer(5, 2, 40, 3));
  error("which is no multiple of the 2 heads");
  test::write_tensors(bad, test::layer(4, 2, 0, 3));
  error("has no tokens");
  tensors = test::layer(4, 2, 40, 3);
  tensors["layer.0.v"].shape[1] = 41;
  test::write_tensors(bad, tensors);
  error("'layer.0.k' has 40 tokens, 'layer.0.v' has 41");
  tensors.erase("layer.0.v");
  test::write_tensors(bad, tensors);
  error(bad + ": layer 0 has no tensor 'layer.0.v'");
}

// --- eval attention ---

TEST_F(Commands, EvaluatesMethods) {
  const auto result = run(eval({stream(), "--methods", "balancekv:block=16; streaming-llm",
                                "--methods", "exact", "--json=" + path("result.json")}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("cache/head"));
  EXPECT_THAT(result.out, HasSubstr("the 276 between them compressed; 2 seeds"));
  const auto parsed = json::parse(read_text(path("result.json")));
  const auto& results = parsed.at("results");
  ASSERT_EQ(results.size(), 5u);
  EXPECT_EQ(results[0].at("method"), "balancekv:block=16");
  EXPECT_EQ(results[0].at("entries"), 138);
  EXPECT_EQ(results[2].at("method"), "streaming-llm");
  EXPECT_EQ(results[4].at("method"), "exact");
  EXPECT_LT(results[4].at("error").get<double>(), 1e-5);
  EXPECT_GT(results[1].at("error"), results[0].at("error"));
}

/// Without the only numbers that may differ.
std::string without_times(const std::string& text) {
  json parsed = json::parse(text);
  parsed.erase("command");
  for (auto& cell : parsed.at("results")) {
    cell.erase("compress_seconds");
    cell.erase("command");
  }
  return parsed.dump();
}

TEST_F(Commands, SameSeedSameResults) {
  auto measured = [&](std::vector<std::string> more) {
    std::vector<std::string> all = eval({stream(), "--methods", "balancekv:block=16", "--json"});
    all.insert(all.end(), more.begin(), more.end());
    const auto result = run(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return without_times(result.out);
  };
  const std::string first = measured({});
  EXPECT_EQ(measured({"--threads", "1"}), first);
  EXPECT_NE(measured({"--seed", "7"}), first);
  EXPECT_NE(measured({"--select-layers", "1"}), first);
}

TEST_F(Commands, EvaluatesAMadeUpStreamAndDraws) {
  const auto result = run(eval({"--synth", "--tokens", "200", "--heads", "2", "--dim", "8",
                                "--methods", "balancekv:block=16", "--plot", path("plot.svg")}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("synthetic stream: 200 tokens, 1 layer, 2 of 2 query heads"));
  EXPECT_THAT(read_text(path("plot.svg")), HasSubstr("</svg>"));
}

TEST_F(Commands, MeasuresErrorAgainstMemory) {
  const std::vector<std::string> command = {"eval",      "memory",  "--lengths", "300,600",
                                            "--budgets", "100,400", "--dim",     "8",
                                            "--seeds",   "1",       "--json"};
  const auto first = run(command), second = run(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  json a = json::parse(first.out), b = json::parse(second.out);
  for (json* result : {&a, &b}) {
    for (json& row : (*result)["results"]) {
      row.erase("seconds_per_token");
      row.erase("largest_seconds_per_token");
    }
  }
  EXPECT_EQ(a.dump(), b.dump());
  EXPECT_EQ(a["results"].size(), 4u);
  EXPECT_EQ(a["results"][0]["error"].size(), 1u);  // 300 tokens all fit into 400 entries
  expect_refusal(run({"eval", "memory", "--methods", "h2o"}), "watches attention");
  expect_refusal(run({"eval", "memory", "--lengths", "x"}), "--lengths", 2);
}

TEST_F(Commands, EvalRefusesWhatCannotBe) {
  auto error = [](std::vector<std::string> more, const std::string& message) {
    expect_refusal(run(eval(std::move(more))), message);
  };
  error({"--methods", "exact"}, "give a file or --synth");
  error({stream(), "--synth", "--methods", "exact"}, "not both");
  error({stream(), "--methods", ";"}, "--methods: no method given");
  error({stream(), "--methods", "balancekv:rate=0.5"}, "leave out rate=");
  const std::vector<std::string> attention = {"eval", "attention", stream(), "--methods", "exact"};
  expect_refusal(run(attention), "300 tokens leave no middle between a sink of 256 and");
  auto more_queries = attention;
  more_queries.insert(more_queries.end(), {"--sink", "8", "--window", "16", "--queries", "17"});
  expect_refusal(run(more_queries), "17 queries: expected 1 to 16");
  error({stream(), "--methods", "exact", "--select-layers", "2"}, "there is no layer 2");
  error({stream(), "--methods", "exact", "--select-layers", "1-"}, "expected numbers and ranges");
  error({stream(), "--methods", "exact", "--select-kv-heads", "2"}, "there is no KV head 2");
  error({stream(), "--methods", "exact", "--plot", "x.bmp"}, "ends in .svg, .png or .pdf");
  error({stream(), "--methods", "exact", "--json=" + path("no/such/file")},
        "No such file or directory");
}

// --- report ---

TEST_F(Commands, ResultsBecomeAPage) {
  const std::string a = path("a.json"), b = path("b.json"), page = path("report.html");
  ASSERT_EQ(run(eval({stream(), "--methods", "exact;streaming-llm", "--json=" + a})).exit_code, 0);
  ASSERT_EQ(run({"eval", "memory", "--lengths", "300", "--budgets", "50,100", "--dim", "8",
                 "--seeds", "1", "--methods", "uniform", "--json=" + b})
                .exit_code,
            0);
  const auto result = run({"report", a, b, "-o", page, "--title", "<Today>"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "ballast: wrote " + page + "\n");
  const std::string html = read_text(page);
  EXPECT_THAT(html, HasSubstr("<h1>&lt;Today&gt;</h1>"));
  EXPECT_THAT(html, HasSubstr("ballast eval attention --sink 8 "));
  EXPECT_THAT(html, HasSubstr("&#39;exact;streaming-llm&#39;"));  // as typed, quoted
  EXPECT_THAT(html, HasSubstr("Error against memory, synthetic stream"));

  // The error names a file that is no result, and the page stays as it was.
  const std::string half = path("half.json"), other = path("other.json");
  write_text(half, read_text(a).substr(0, 500));
  write_text(other, "{\"experiment\": \"attention\"}");
  write_text(path("empty.json"), "");
  expect_refusal(run({"report", a, half, "-o", page}), half + ": not a whole JSON file");
  expect_refusal(run({"report", other, a, "-o", page}), other + ": not the JSON of an experiment");
  expect_refusal(run({"report", path("empty.json"), "-o", page}), "empty.json: not a whole JSON");
  std::string fields = "{\"0\":0";
  for (int i = 1; i < 1025; ++i) fields += ",\"" + std::to_string(i) + "\":0";
  write_text(path("many.json"), fields + "}");
  expect_refusal(run({"report", a, path("many.json"), "-o", page}),
                 path("many.json") + ": a JSON object of more than 1024 fields");
  expect_refusal(run({"report", path("none.json"), "-o", page}),
                 "none.json: cannot open: No such file or directory; check the path");
  expect_refusal(run({"report", path(""), "-o", page}), "it is a folder");
  expect_refusal(run({"report", "-o", page}), "FILE is required", 2);
  EXPECT_EQ(read_text(page), html);
}

// --- when the outside world fails ---

TEST_F(Commands, FullDisk) {
  const auto file = run({"synth", "-o", "/dev/full", "--tokens", "9"});
  expect_refusal(file, "/dev/full: cannot write: No space left on device");
}

TEST_F(Commands, AFileThatMayNotGrowIsAnErrorInALine) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit few{1 << 12, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &few);
  const auto result = run({"synth", "-o", path("large"), "--tokens", "999"});
  ::setrlimit(RLIMIT_FSIZE, &before);
  expect_refusal(result, "large: cannot write: File too large", 1);
  EXPECT_FALSE(std::filesystem::exists(path("large")));
}

TEST_F(Commands, AnInterruptLeavesNoPartialFile) {
  for (int signal : {SIGINT, SIGTERM}) {
    // So much that it is certainly not done when the signal comes.
    Program program({"synth", "-o", path("large"), "--tokens", "4000000", "--heads", "64"});
    const std::filesystem::path folder = std::filesystem::path(path("large")).parent_path();
    for (int i = 0; i < 3000 && partial_files_in(folder) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_EQ(partial_files_in(folder), 1);
    program.signal(signal);
    EXPECT_EQ(program.wait().exit_code, 128 + signal);
    EXPECT_EQ(partial_files_in(folder), 0);
    EXPECT_FALSE(std::filesystem::exists(path("large")));
  }
}

// Whoever commits last has the file, which is whole.
TEST_F(Commands, TwoCommandsWriteOneFile) {
  std::vector<std::string> whole;
  for (const char* seed : {"1", "2"}) {
    ASSERT_EQ(run({"synth", "-o", path(seed), "--seed", seed, "--tokens", "20000"}).exit_code, 0);
    whole.push_back(read_text(path(seed)));
  }
  std::vector<std::unique_ptr<Program>> programs;
  for (const char* seed : {"1", "2", "1", "2"}) {
    programs.push_back(std::make_unique<Program>(
        std::vector<std::string>{"synth", "-o", path("one"), "--seed", seed, "--tokens", "20000"}));
  }
  for (const auto& program : programs) EXPECT_EQ(program->wait().exit_code, 0);
  const std::string one = read_text(path("one"));
  EXPECT_TRUE(one == whole[0] || one == whole[1]);
}

TEST_F(Commands, RefuseToOverwriteWhatTheyRead) {
  const std::string refusal = ": the command reads this file and would overwrite it";
  expect_refusal(run({"compress", stream(), "--method", "h2o:rate=0.5", "-o", stream()}),
                 stream() + refusal, 2);
  write_text(path("read.json"), "{}");
  expect_refusal(run({"report", path("read.json"), "-o", path("read.json")}), refusal, 2);
  // A second run writes the same result again.
  const std::vector<std::string> again = {"synth", "-o", path("again"), "--tokens", "300"};
  EXPECT_EQ(run(again).exit_code, 0);
  EXPECT_EQ(run(again).exit_code, 0);
}

}  // namespace
}  // namespace ballast
