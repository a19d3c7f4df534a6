// Widths, formats, hints and exit codes, through the program.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "paths.h"
#include "program.h"
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
  TempDir dir_;
};

TEST_F(Usage, HelpFitsTheTerminal) {
  const std::vector<std::vector<std::string>> commands = {
      {}, {"run"}, {"chat"}, {"inspect"}, {"methods"}};
  for (const char* columns : {"60", "80", "120"}) {
    test::columns = columns;
    for (auto command : commands) {
      command.push_back("--help");
      const ProgramResult help = run(command);
      EXPECT_LE(longest_line(help.out), std::stoul(columns)) << columns << "\n" << help.out;
      EXPECT_THAT(help.out, HasSubstr("--threads N")) << help.out;
    }
  }
}

TEST_F(Usage, ExamplesAreOfTheirCommand) {
  for (const char* words :
       {"", "run", "chat", "serve", "generate", "library", "library add", "library ask",
        "library list", "library remove", "pull", "models", "remove", "calibrate", "perplexity",
        "tokenize", "methods", "inspect"}) {
    std::vector<std::string> command;
    std::istringstream in(words);
    for (std::string word; in >> word;) command.push_back(word);
    command.emplace_back("--help");
    const std::string help = run(command).out;
    const std::size_t at = help.rfind("Example:");
    ASSERT_NE(at, std::string::npos) << words;
    EXPECT_THAT(help.substr(at),
                HasSubstr("\n  ballast " + std::string(*words == 0 ? "run" : words)))
        << help;
  }
}

TEST_F(Usage, TablesFitTheTerminal) {
  test::columns = "80";
  EXPECT_LE(longest_line(run({"methods"}).out), 80u);
  EXPECT_LE(longest_line(run({"methods", "balancekv"}).out), 80u);
  for (const char* columns : {"50", "80"}) {
    test::columns = columns;
    const ProgramResult said = run({"run", "-m", kModel, "x", "-n", "2", "--stats"});
    EXPECT_EQ(said.exit_code, 0) << said.err;
    EXPECT_LE(longest_line(said.out), std::stoul(columns)) << said.out;
  }
}

TEST_F(Usage, TablesOfNumbersArePlainInCsv) {
  const std::string model = run({"inspect", kModel, "--csv"}).out;
  EXPECT_THAT(model, Not(HasSubstr("KiB,")));
  EXPECT_THAT(model, HasSubstr("\nparameters,"));
  EXPECT_THAT(model, Not(HasSubstr("parameters,\"")));
}

TEST_F(Usage, EveryTableHasCsvAndMarkdown) {
  const auto output = [](std::vector<std::string> words, const char* format) {
    words.push_back(format);
    const ProgramResult said = run(words);
    EXPECT_EQ(said.exit_code, 0) << said.err;
    return said.out;
  };
  const std::vector<std::string> list = {"methods"}, inspect = {"inspect", kModel};
  EXPECT_THAT(output(list, "--csv"), testing::StartsWith("method,keeps,paper\nexact,"));
  EXPECT_THAT(output(list, "--markdown"), testing::StartsWith("| method | keeps | paper |\n|---"));
  EXPECT_THAT(output({"methods", "h2o"}, "--csv"),
              testing::StartsWith("key,default,values,meaning\n"));
  // Two tables, and nothing of what stands around them.
  const std::string described = output(inspect, "--csv");
  EXPECT_THAT(described, testing::StartsWith("model," + kModel + "\n"));
  EXPECT_THAT(described, HasSubstr("\n\n\"cache per 1,000 tokens\","));
  EXPECT_THAT(described, Not(HasSubstr("\n\n\n")));
  EXPECT_THAT(output(inspect, "--json"), testing::StartsWith("{"));
  const std::string file = (dir_ / "m.csv").string();
  const ProgramResult both = run({"methods", "--csv=" + file});
  EXPECT_THAT(both.out, HasSubstr("A method string is"));
  EXPECT_EQ(read_text(file), output(list, "--csv"));
  expect_refusal(run({"methods", "--csv", "--json"}), "standard output takes one", 2);
  for (const std::string format : {"--json", "--csv", "--markdown"}) {
    expect_refusal(run({"methods", format + "=" + file, format + "=" + file + "2"}),
                   format + " is given more than once; see ballast methods --help", 2);
  }
}

// What `methods --choose` recommends stands in docs/methods.md, and runs as it stands there.
TEST_F(Usage, EveryChoiceIsDocumentedAndRuns) {
  const std::string source = BALLAST_SOURCE_DIR;
  const std::string page = read_text(source + "/docs/methods.md");
  const auto choices = run({"methods", "--choose", "--json"}).json().at("choices");
  EXPECT_GE(choices.size(), 6u);
  for (const auto& choice : choices) {
    const std::string options = choice.at("options");
    EXPECT_THAT(page, HasSubstr("| " + choice.at("when").get<std::string>() + " | `" + options +
                                "` | " + choice.at("reads").get<std::string>() + " |"));
    std::vector<std::string> words = {"run",
                                      "-m",
                                      kModel,
                                      "--context",
                                      source + "/examples/record.txt",
                                      "--question",
                                      "What is the number in line 7?",
                                      "-n",
                                      "1",
                                      "-q"};
    for (std::size_t begin = 0; begin < options.size();) {
      const std::size_t end = std::min(options.find(' ', begin), options.size());
      words.push_back(options.substr(begin, end - begin));
      begin = end + 1;
    }
    const ProgramResult said = run(words);
    EXPECT_EQ(said.exit_code, 0) << options << ": " << said.err;
  }
  expect_refusal(run({"methods", "h2o", "--choose"}), "a name or --choose, not both", 2);
}

// The forms of a share are no remedy where bytes are wanted.
TEST_F(Usage, OptionsInBytesNameNoShares) {
  const auto refused = [](std::vector<std::string> words, const std::string& option,
                          const char* value) {
    words.insert(words.end(), {option, value});
    const ProgramResult made = run(words);
    expect_refusal(made, option + " " + value + ": give bytes with a unit, such as 512M or 8G", 2);
    EXPECT_THAT(made.err, Not(HasSubstr("1/8")));
  };
  for (const char* value : {"abc", "0", "4096"}) {
    refused({"run", "-m", kModel, "x"}, "--memory", value);
    refused({"serve", "-m", kModel}, "--memory", value);
    refused({"serve", "-m", kModel}, "--max-body", value);
  }
}

TEST_F(Usage, SaysWhatWasMeant) {
  expect_refusal(run({"chta"}), "unknown command 'chta'; did you mean chat?; known: run, ", 2);
  expect_refusal(run({"run", "--temperatur", "1"}), "; did you mean --temperature?; see", 2);
  expect_refusal(run({"run", "--ctx-size", "4096"}), "--cache bounds their memory", 2);
  expect_refusal(run({"run", "--n-predict", "4"}), "did you mean --max-tokens?", 2);
  expect_refusal(run({"methods", "balancekvv"}),
                 "unknown method 'balancekvv'; did you mean balance", 2);
  expect_refusal(run({"run", "-m", kModel, "--method", "h2o:budgets=9", "x"}),
                 "unknown key 'budgets'; did you mean budget?", 2);
  EXPECT_EQ(run({"methods", "BalanceKV"}).out, run({"methods", "balancekv"}).out);
  EXPECT_EQ(run({"methods", "Attention Matching"}).out, run({"methods", "attention-matching"}).out);
  EXPECT_EQ(run({"methods", "StreamingLLM"}).out, run({"methods", "streaming-llm"}).out);
  const auto stored = [&](const char* type) {
    return run({"run", "-m", kModel, "x", "-n", "1", "--json", "--cache-type", type})
        .json()
        .at("key_type");
  };
  EXPECT_EQ(stored("q8_0"), "int8");
  EXPECT_EQ(stored("FP16"), "f16");
}

TEST_F(Usage, SaysWhatOtherProgramsWordsMean) {
  const auto refused = [&](std::vector<std::string> words, const std::string& message) {
    words.insert(words.begin(), {"run", "-m", kModel, "x"});
    expect_refusal(run(words), message, 2);
  };
  refused({"--cache", "q8_0"}, "q8_0 is a storage type; did you mean --cache-type q8_0?");
  refused({"--cache", "FP16"}, "FP16 is a storage type; did you mean --cache-type fp16?");
  refused({"--cache", "BalanceKV"}, "BalanceKV is a method; did you mean --method balancekv?");
  refused({"--cache", "much"}, "'much' is not an amount of memory");
  refused({"--ctx_size", "9"}, "--cache bounds their memory");
  refused({"--dtype", "f16"}, "did you mean --cache-type?");
  refused({"--flash-attn"}, "nothing to switch on");
  refused({"-fa"}, "unknown option -fa; attention always goes block by block");
  refused({"-ngl", "99"}, "unknown option -ngl; models run on the processor");
  refused({"-ngl=99"}, "unknown option -ngl; models run on the processor");
  refused({"-ctk", "q8_0"}, "unknown option -ctk; did you mean --key-type?");
  refused({"-ctv", "q8_0"}, "unknown option -ctv; did you mean --value-type?");
  EXPECT_EQ(run({"run", "-qm", kModel, "x", "-n1", "--stop", "-ngl"}).exit_code, 0);
  refused({"y"}, "unexpected argument 'y'; several words need quotes");
  expect_refusal(run({"run", "mini", "hi"}),
                 "unexpected argument 'hi'; the model needs -m: ballast run -m MODEL;", 2);
  EXPECT_EQ(run({"help", "run"}).out, run({"run", "--help"}).out);
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"version"}).out, run({"--version"}).out);
}

TEST_F(Usage, HelpAndErrorsHaveNoWordsOfLibraries) {
  const std::vector<std::string> of_lab = {"synth", "capture", "compress",
                                           "eval",  "report",  "bench"};
  std::vector<std::vector<std::string>> commands = {{}};
  const std::string list = run({"no-such"}).err;
  std::size_t at = list.find("known: ") + 7;
  for (std::size_t end = 0; list[at - 1] != ';'; at = end + 1) {
    end = list.find_first_of(",;", at);
    const std::size_t begin = list.find_first_not_of(' ', at);
    const std::string name = list.substr(begin, end - begin);
    if (std::ranges::find(of_lab, name) == of_lab.end()) commands.push_back({name});
  }
  EXPECT_GT(commands.size(), 12u);
  for (auto command : commands) {
    command.push_back("--help");
    const std::string help = run(command).out;
    for (const char* word : {" UINT", " FLOAT", " INT", ":INT", "FLOAT in", "=[]", ":{", "TEXT=16"})
      EXPECT_THAT(help, Not(HasSubstr(word))) << command[0];
  }
  for (const char* port : {"abc", "-1", "65536"}) {
    expect_refusal(run({"serve", "-m", kModel, "--port", port}),
                   std::string("--port: ") + port + " is not a whole number from 0 to 65535", 2);
  }
  const auto checked =
      run({"serve", "-m", kModel, "--port", "0", "--cache-dir-max", "0", "--check", "-q"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("ballast-mini at http://127.0.0.1:"));
  expect_refusal(run({"serve", "-m", kModel, "--log", "jsn"}),
                 "--log: jsn is unknown; known: text, json, off; did you mean json?", 2);
  expect_refusal(run({"run", "-m", kModel, "x", "--threads", "x"}),
                 "--threads: x is not a whole number from 1 to 1024", 2);
}

TEST_F(Usage, WrongUsageIsExit2InOurWords) {
  expect_refusal(run({"run", "-m", kModel, "x", "--threads", "0"}),
                 "--threads: 0 is not a whole number from 1 to 1024", 2);
  expect_refusal(run({"run", "-m", kModel, "x", "--temperature", "hot"}),
                 "--temperature: 'hot' is not a number", 2);
  expect_refusal(run({"run", "-m", kModel, "x", "--stop"}), "--stop needs a value", 2);
  expect_refusal(run({"run", "-m", kModel, "x", "--chat", "--raw"}), "exclude each other", 2);
  expect_refusal(run({"run", "-m", kModel, "x", "--method", "nonsense"}), "unknown method", 2);
  expect_refusal(run({"run", "-m", kModel, "x", "--cache-type", "f8"}), "unknown storage type", 2);
}

TEST_F(Usage, LoadedCachesRefuseFlagsOfTheirOwn) {
  const std::string cache = (dir_ / "a.cache").string(), text = (dir_ / "a.txt").string();
  write_text(text, "A record of many lines.\n");
  const ProgramResult saved =
      run({"run", "-m", kModel, "--raw", "--context", text, "--save-cache", cache});
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_THAT(saved.err, HasSubstr("ballast: wrote " + cache));
  for (const auto& [flag, value] : std::vector<std::pair<std::string, std::string>>{
           {"--method", "exact"}, {"--cache", "1/8"}, {"--cache-type", "int8"}}) {
    expect_refusal(
        run({"run", "-m", kModel, "--load-cache", cache, "--question", "x", flag, value}),
        flag + " has no effect with --load-cache", 2);
  }
}

TEST_F(Usage, DropsAByteOrderMarkAndReadsUtf16) {
  const std::string marked = (dir_ / "bom.txt").string(), plain = (dir_ / "plain.txt").string(),
                    utf16 = (dir_ / "utf16.txt").string(), bare = (dir_ / "bare.txt").string();
  write_text(plain, "The record says:");
  write_text(marked, "\xEF\xBB\xBFThe record says:");
  std::string wide;
  for (char c : std::string("The record says:")) wide += std::string{c, '\0'};
  write_text(utf16, "\xFF\xFE" + wide);
  write_text(bare, wide);
  const auto ids = [&](const std::string& file) {
    return run({"run", "-m", kModel, "-f", file, "-n", "3", "--json"}).json().at("answers")[0];
  };
  for (const std::string& file : {marked, utf16, bare}) {
    EXPECT_EQ(ids(file).at("ids"), ids(plain).at("ids")) << file;
  }
}

TEST_F(Usage, InspectSaysWhatAFileIs) {
  const std::string text = (dir_ / "a.txt").string(), cache = (dir_ / "a.cache").string();
  write_text(text, "A record of many lines, and no more.\n");
  const ProgramResult refused = run({"inspect", text});
  expect_refusal(refused, text + ": not a safetensors file, nor of another kind that inspect knows",
                 1);
  EXPECT_THAT(refused.err, HasSubstr("a saved cache); it seems to be a text file"));
  ASSERT_EQ(run({"run", "-m", kModel, "--raw", "--context",
                 std::string(BALLAST_SOURCE_DIR) + "/examples/record.txt", "--cache", "1/4",
                 "--save-cache", cache})
                .exit_code,
            0);
  const std::string described = run({"inspect", cache}).out;
  EXPECT_THAT(described, HasSubstr("in types that replay chose by entry"));
  EXPECT_THAT(described, Not(HasSubstr("{\"")));
  EXPECT_THAT(described, HasSubstr("fingerprint"));
}

}  // namespace
}  // namespace ballast
