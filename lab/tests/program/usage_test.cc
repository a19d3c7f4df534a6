// Widths, formats, hints and exit codes of experiments, through the program.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "paths.h"
#include "report/table.h"

namespace ballast {
namespace {

using test::expect_refusal;
using test::ProgramResult;
using test::run;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kModel = std::string(BALLAST_SOURCE_DIR) + "/models/ballast-mini.gguf";

class Usage : public ::testing::Test {
 protected:
  void TearDown() override { test::columns = "200"; }
  static std::size_t longest_line(const std::string& text) {
    std::size_t longest = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      longest = std::max(longest, display_width(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return longest;
  }
  static std::vector<std::string> lines(std::vector<std::string> more) {
    std::vector<std::string> all = {"eval",     "lines", "-m",       kModel, "--lines",
                                    "20",       "-q",    "--repeat", "3",    "--question-later",
                                    "--shares", "0.5"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  TempDir dir_;
};

TEST_F(Usage, HelpFitsTheTerminal) {
  for (const char* columns : {"60", "80", "120"}) {
    test::columns = columns;
    for (std::vector<std::string> command : std::vector<std::vector<std::string>>{
             {"eval"}, {"eval", "lines"}, {"eval", "needle"}, {"eval", "ablation"}, {"bench"}}) {
      command.push_back("--help");
      const ProgramResult help = run(command);
      EXPECT_LE(longest_line(help.out), std::stoul(columns)) << columns << "\n" << help.out;
      EXPECT_THAT(help.out, HasSubstr("--threads N")) << help.out;
    }
  }
}

TEST_F(Usage, ExamplesAreOfTheirCommand) {
  for (const char* command : {"synth", "capture", "compress", "eval", "report", "bench"}) {
    const std::string help = run({command, "--help"}).out;
    const std::size_t at = help.rfind("Example:");
    ASSERT_NE(at, std::string::npos) << command;
    EXPECT_THAT(help.substr(at), HasSubstr(std::string("\n  ballast ") + command)) << help;
  }
}

TEST_F(Usage, HelpAndErrorsHaveNoWordsOfLibraries) {
  std::vector<std::vector<std::string>> commands = {{"bench"},  {"synth"},   {"capture"},
                                                    {"report"}, {"inspect"}, {"compress"}};
  const std::string list = run({"eval", "no-such"}).err;
  std::size_t at = list.find("known: ") + 7;
  for (std::size_t end = 0; list[at - 1] != ';'; at = end + 1) {
    end = list.find_first_of(",;", at);
    const std::size_t begin = list.find_first_not_of(' ', at);
    commands.push_back({"eval", list.substr(begin, end - begin)});
  }
  EXPECT_GT(commands.size(), 25u);
  for (auto command : commands) {
    command.push_back("--help");
    const std::string help = run(command).out;
    for (const char* word : {" UINT", " FLOAT", " INT", ":INT", "FLOAT in", "=[]", ":{", "TEXT=16"})
      EXPECT_THAT(help, Not(HasSubstr(word))) << command[0];
  }
  expect_refusal(run({"capture", "-m", kModel, "--file", "x", "-o", "y", "--scores", "mux"}),
                 "mux is unknown; known: max, plain, rms, mean, none; did you mean max?", 2);
  write_text(dir_ / "a.csv", "method,score\n");
  const ProgramResult report =
      run({"report", (dir_ / "a.csv").string(), "-o", (dir_ / "x.html").string()});
  expect_refusal(report, "not a whole JSON file; report reads what ballast eval", 1);
  EXPECT_THAT(report.err, Not(HasSubstr("syntax error")));
  const std::string broken = (dir_ / "broken.json").string();
  write_text(broken, "{\"experiment\": ");
  const ProgramResult half = run({"report", broken, "-o", (dir_ / "x.html").string()});
  expect_refusal(half, "not a whole JSON file", 1);
  EXPECT_THAT(half.err, Not(HasSubstr("json.exception")));
}

TEST_F(Usage, SaysWhatWasMeant) {
  expect_refusal(run({"eval", "linse"}), "did you mean lines?", 2);
  expect_refusal(run(lines({"--cache", "h2o"})), "did you mean --methods h2o?", 2);
}

TEST_F(Usage, SaysWhichHaystackIsNoText) {
  write_text(dir_ / "zero.txt", std::string("Hi\0.", 4));
  const std::string zero = (dir_ / "zero.txt").string();
  for (const std::string& hay : {zero, dir_.path().string()}) {
    expect_refusal(run({"eval", "needle", "-m", kModel, "--haystack", hay, "--methods", "exact"}),
                   zero + ": not a text: byte 2 is zero", 1);
  }
}

TEST_F(Usage, TablesFitTheTerminal) {
  const auto methods = std::vector<std::string>{"--methods", "exact;streaming-llm"};
  for (const char* columns : {"40", "80"}) {
    test::columns = columns;
    const ProgramResult table = run(lines(methods));
    EXPECT_EQ(table.exit_code, 0) << table.err;
    EXPECT_LE(longest_line(table.out), std::stoul(columns)) << table.out;
    EXPECT_THAT(table.out, HasSubstr("streaming-llm"));
    EXPECT_THAT(table.out, HasSubstr("--wide"));
  }
  auto wide = methods;
  wide.push_back("--wide");
  const ProgramResult table = run(lines(wide));
  EXPECT_THAT(table.out, HasSubstr("attention error"));
  EXPECT_THAT(table.out, Not(HasSubstr("--wide")));
}

TEST_F(Usage, CsvAndMarkdownBesideJson) {
  const std::string json = (dir_ / "r.json").string(), csv = (dir_ / "r.csv").string(),
                    markdown = (dir_ / "r.md").string();
  const ProgramResult all = run(
      lines({"--methods", "exact", "--json=" + json, "--csv=" + csv, "--markdown=" + markdown}));
  ASSERT_EQ(all.exit_code, 0) << all.err;
  for (const std::string& file : {json, csv, markdown}) {
    EXPECT_THAT(all.err, HasSubstr("ballast: wrote " + file + "\n"));
  }
  const auto row = nlohmann::json::parse(read_text(json)).at("results")[0];
  const std::string text = read_text(csv);
  EXPECT_THAT(text,
              testing::StartsWith("lines,method,share,score,score_error,score_low,score_high"));
  EXPECT_THAT(text, HasSubstr("\n20,exact,,"));
  EXPECT_THAT(text, HasSubstr("," + std::to_string(row.at("entries").get<int>())));
  EXPECT_THAT(read_text(markdown), HasSubstr("| lines | method |"));
  EXPECT_THAT(read_text(markdown), HasSubstr("---:|"));
  EXPECT_EQ(run(lines({"--methods", "exact", "--csv"})).out.substr(0, 12), "lines,method");
  expect_refusal(run(lines({"--methods", "exact", "--csv", "--json"})), "standard output takes one",
                 2);
}

TEST_F(Usage, CapturedScoresServeReplay) {
  const std::string text = std::string(BALLAST_SOURCE_DIR) + "/examples/record.txt";
  const std::string file = (dir_ / "kv.safetensors").string();
  for (const char* score : {"max", "none"}) {
    const ProgramResult captured = run({"capture", "-m", kModel, "--file", text, "--tokens", "300",
                                        "--scores", score, "-o", file, "-q"});
    ASSERT_EQ(captured.exit_code, 0) << captured.err;
    const ProgramResult made = run({"compress", file, "--method", "replay:bytes=1/4", "--json"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.json().at("scores"), score == std::string("max") ? "max" : "self-attention");
  }
  expect_refusal(run({"capture", "-m", kModel, "--file", text, "-o", file, "--scores", "best"}),
                 "best", 2);
}

TEST_F(Usage, SharesHaveWilsonsInterval) {
  const auto rows = run(lines({"--methods", "exact;local", "--json"})).json().at("results");
  for (const auto& row : rows) {
    const double share = row.at("score"), low = row.at("score_low"), high = row.at("score_high");
    EXPECT_LE(low, share);
    EXPECT_GE(high, share);
    EXPECT_GT(high - low, 0.3);  // three questions say little, whatever their answers
  }
  EXPECT_THAT(run(lines({"--methods", "exact"})).out, HasSubstr("Wilson's 95% interval"));
}

TEST_F(Usage, MemoryIsBytesByDefault) {
  const auto ask = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"eval", "lines",    "-m", kModel, "--lines",
                                    "20",   "--repeat", "2",  "-q",   "--question-later"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  // Storage-only rows stand apart, at their own bytes; what cannot be so small has no score.
  const ProgramResult made = ask(
      {"--cache", "1/4,1/128", "--methods", "exact;exact:type=q2;replay", "--json", "--show-kept"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto rows = made.json().at("results");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1].at("storage_only"), true);
  // Of a text of 300 tokens the means and the first four tokens take a tenth.
  EXPECT_NEAR(rows[1].at("ratio").get<double>(), 0.9 / 0.1406, 0.2);
  EXPECT_EQ(rows[2].at("share"), 0.25);
  EXPECT_GE(rows[2].at("ratio").get<double>(), 4);
  for (const auto& row : {rows[1], rows[2]}) {
    EXPECT_LE(row.at("loss_low").get<double>(), row.at("loss").get<double>());
    EXPECT_GE(row.at("loss_high").get<double>(), row.at("loss").get<double>());
  }
  EXPECT_EQ(rows[3].at("fits"), false);
  EXPECT_TRUE(rows[3].at("score").is_null());
  const auto kept = made.json().at("kept").at("methods");
  ASSERT_EQ(kept.size(), 4u);
  EXPECT_TRUE(kept[2].contains("score")) << kept[2];
  EXPECT_EQ(kept[3].at("fits"), false);
  EXPECT_FALSE(kept[3].contains("score")) << kept[3];
  const ProgramResult table = ask({"--cache", "1/128", "--methods", "exact;replay"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("replay 1/128 of bytes does not fit in 2 of 2 samples"));
  EXPECT_THAT(table.out, HasSubstr("–"));
  const auto standard = ask({"--json"}).json().at("results");
  std::vector<std::string> stored;
  for (const auto& row : standard) {
    if (row.contains("storage_only")) stored.push_back(row.at("cache_type"));
  }
  EXPECT_EQ(stored, (std::vector<std::string>{"int8", "int4", "q4/q2", "q2"}));
  EXPECT_THAT(standard.dump(), HasSubstr("\"share\":0.0625"));
  const std::string header = ask({"--csv", "--methods", "exact;h2o"}).out;
  EXPECT_THAT(header.substr(0, header.find('\n')), testing::EndsWith(",loss,loss_low,loss_high"));
  expect_refusal(ask({"--cache", "1"}), "'1' could be a share or bytes");
  expect_refusal(ask({"--cache", "1/4", "--rates", "0.5"}), "exclude each other");
}

TEST_F(Usage, LengthsCountTheChatTemplate) {
  const auto exact = [](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"eval",  "",       "-m",        kModel, "-q",       "--methods",
                                    "exact", "--json", "--lengths", "600",  "--repeat", "1"};
    all[1] = words[0];
    all.insert(all.end(), words.begin() + 1, words.end());
    const ProgramResult made = run(all);
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return made.json().at("results").at(0).at("entries").get<double>();
  };
  for (const char* raw : {"-q", "--raw"}) {
    for (const auto& words : {std::vector<std::string>{"needle", "--depths", "0.5"},
                              std::vector<std::string>{"records", "--questions", "1"}}) {
      auto all = words;
      all.push_back(raw);
      EXPECT_LE(exact(all), 600 - 8) << words[0];
      EXPECT_GT(exact(all), 540) << words[0];
    }
  }
}

TEST_F(Usage, SeedsThatCannotDifferAreNamed) {
  const ProgramResult table =
      run({"eval",     "attention", "--synth",   "--tokens",  "300",
           "--layers", "1",         "--heads",   "2",         "--kv-heads",
           "1",        "--dim",     "8",         "--sink",    "8",
           "--window", "16",        "--queries", "16",        "--seeds",
           "2",        "--rates",   "0.5",       "--methods", "uniform;streaming-llm",
           "-q"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("seeds cannot differ: streaming-llm\n"));
  EXPECT_THAT(table.out, Not(HasSubstr("± 0 ")));
  EXPECT_THAT(table.out, HasSubstr(" ± "));
}

TEST_F(Usage, AFullDiskLeavesNoProgressOrNamesIt) {
  const std::string json = (dir_ / "r.json").string();
  // `kibibytes`: of the largest file.
  const auto said = [&](const std::string& kibibytes) {
    FILE* pipe =
        ::popen(("bash -c 'trap \"\" XFSZ; ulimit -f " + kibibytes + "; " + BALLAST_PROGRAM +
                 " eval lines -m " + kModel +
                 " -q --lines 20 --repeat 40 --methods exact --json=" + json + " 2>&1 | cat'")
                    .c_str(),
                "r");
    if (pipe == nullptr) return std::string();
    std::string out;
    char buffer[4096];
    while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
    ::pclose(pipe);
    return out;
  };
  EXPECT_THAT(said("0"), ::testing::EndsWith("r.json.progress: cannot write: File too large\n"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  EXPECT_THAT(said("4"),
              ::testing::EndsWith("r.json.progress: cannot write: File too large; " + json +
                                  ".progress has what was found; the same command goes "
                                  "on from there\n"));
}

// Ctrl-C keeps what was found, and says where and what for; what found nothing leaves nothing.
TEST_F(Usage, AnInterruptNamesTheProgress) {
  const std::string json = (dir_ / "r.json").string(), progress = json + ".progress";
  const std::vector<std::string> words = {
      "eval",     "lines", "-m",        kModel,  "--lines",        "20",
      "--repeat", "2000",  "--methods", "exact", "--json=" + json, "-q"};
  const auto findings = [&] {
    const std::string text = std::filesystem::exists(progress) ? read_text(progress) : "";
    return std::count(text.begin(), text.end(), '\n');
  };
  test::Program program(words);
  for (int i = 0; i < 6000 && findings() < 3; ++i) ::usleep(10000);
  program.signal(SIGINT);
  const ProgramResult stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGINT);
  EXPECT_EQ(stopped.err,
            "ballast: " + progress + " has what was found; the same command goes on from there\n");
  EXPECT_GE(findings(), 3);
}

TEST_F(Usage, OneSeedShowsNoSpread) {
  const ProgramResult table =
      run({"eval",    "attention", "--synth",    "--tokens",  "300",   "--layers", "1",
           "--heads", "2",         "--kv-heads", "1",         "--dim", "8",        "--sink",
           "8",       "--window",  "16",         "--queries", "16",    "--seeds",  "1",
           "--rates", "0.5",       "--methods",  "uniform",   "-q"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("one seed shows no spread; --seeds 10 does"));
  EXPECT_THAT(table.out, Not(testing::ContainsRegex("[0-9]  +0\n")));
}

TEST_F(Usage, WhatStandsAroundTablesFitsTheTerminal) {
  const std::string stream = (dir_ / "s.safetensors").string(), cache = (dir_ / "c").string();
  ASSERT_EQ(run({"synth", "-o", stream, "--tokens", "300", "--layers", "1", "--heads", "2",
                 "--kv-heads", "1", "--dim", "8"})
                .exit_code,
            0);
  ASSERT_EQ(run({"compress", stream, "--method", "h2o:rate=0.25", "--save-cache", cache}).exit_code,
            0);
  for (const char* columns : {"50", "80"}) {
    test::columns = columns;
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"inspect", stream},
             {"inspect", cache},
             {"compress", stream, "--method", "h2o:rate=0.25"},
             {"bench", "-m", kModel, "--prompt", "64", "--generate", "2", "--methods", "exact"}}) {
      const ProgramResult said = run(words);
      EXPECT_EQ(said.exit_code, 0) << words[0] << said.err;
      std::string out = said.out;
      for (const std::string& path : {stream, cache, kModel}) {  // one long word
        for (std::size_t at; (at = out.find(path)) != std::string::npos;)
          out.erase(at, path.size());
      }
      EXPECT_LE(longest_line(out), std::stoul(columns)) << words[0] << "\n" << out;
    }
  }
}

TEST_F(Usage, InspectsWhatCompressKept) {
  const std::string stream = (dir_ / "s.safetensors").string(), kept = (dir_ / "kept").string();
  ASSERT_EQ(run({"synth", "-o", stream, "--tokens", "300", "--layers", "1", "--heads", "2",
                 "--kv-heads", "2", "--dim", "8"})
                .exit_code,
            0);
  ASSERT_EQ(run({"compress", stream, "--method", "h2o:rate=0.25", "-o", kept}).exit_code, 0);
  const ProgramResult text = run({"inspect", kept});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("what h2o:rate=0.25 kept of 300 tokens"));
  const auto heads = run({"inspect", kept, "--json"}).json().at("heads");
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_EQ(heads[1].at("head"), "layer.0.head.1");
  EXPECT_EQ(heads[1].at("last"), 299);
  EXPECT_GT(heads[1].at("entries"), 60);
}

TEST_F(Usage, TablesOfNumbersArePlainInCsv) {
  const std::string stream = (dir_ / "s.safetensors").string();
  ASSERT_EQ(run({"synth", "-o", stream, "--tokens", "3000", "--layers", "1", "--heads", "2",
                 "--kv-heads", "1", "--dim", "8"})
                .exit_code,
            0);
  EXPECT_THAT(run({"inspect", stream}).out, HasSubstr("%"));
  const std::string csv = run({"inspect", stream, "--csv"}).out;
  EXPECT_THAT(csv.substr(csv.rfind("\n0,")), Not(HasSubstr("%")));
}

}  // namespace
}  // namespace ballast
