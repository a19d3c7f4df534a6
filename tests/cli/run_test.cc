// ballast run and chat on a tiny model with random weights.
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "ballast/engine/sampler.h"
#include "tiny_model.h"

namespace ballast {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::kContext;
using test::run_with;
using test::Said;
using test::Words;
using testing::HasSubstr;
using testing::IsEmpty;
using test::operator+;

class RunModel : public test::TinyModel {};

TEST_F(RunModel, MakesTheTokensThatTheEngineMakes) {
  const Model model(case_->gguf());
  const Tokenizer tokenizer(read_vocabulary(case_->gguf()));
  Engine engine(model);
  Sequence sequence(model, {});
  std::vector<float> logits = engine.prefill(sequence, tokenizer.encode("Hello"));
  std::vector<Token> ids;
  std::vector<double> chances;
  while (ids.size() < 5) {
    ids.push_back(static_cast<Token>(std::ranges::max_element(logits) - logits.begin()));
    chances.push_back(logits[ids.back()] - log_sum_exp(logits));
    ASSERT_FALSE(tokenizer.is_end(ids.back()));
    engine.decode(sequence, ids.back(), logits);
  }
  const json answer = answers({"Hello", "-n", "5", "--cache-type", "f32"}).at(0);
  EXPECT_EQ(answer.at("ids"), ids);
  EXPECT_EQ(answer.at("finish"), "length");
  EXPECT_EQ(answer.at("text"), to_valid_utf8(tokenizer.decode(ids, {.text_start = false})));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const json& chance = answer.at("log_probabilities").at(i);
    EXPECT_NEAR(chance.at("log_probability").get<double>(), chances[i], 1e-4);
    EXPECT_EQ(chance.at("likeliest").size(), 2u);
    EXPECT_EQ(chance.at("likeliest").at(0).at("id"), ids[i]);
  }
  EXPECT_NEAR(answer.at("least_probability").get<double>(),
              std::exp(*std::ranges::min_element(chances)), 1e-4);
  EXPECT_EQ(answer.at("unsure"), false);
  const Said shown = run({"Hello", "-n", "5", "--cache-type", "f32"});
  EXPECT_EQ(shown.out, answer.at("text").get<std::string>() + "\n");
  EXPECT_THAT(shown.err, IsEmpty());
}

TEST_F(RunModel, ACacheIsHeldToTheMemoryGiven) {
  const Words ask = {"--context", path("context"), "--question", "Where?", "--raw"};
  const json all = run(ask + Words{"--cache", "1/2", "--json"}).json();
  const json& bytes = all.at("statistics").at("cache_after_prompt").at("bytes");
  // layers · KV heads · (key and value) · elements · bf16
  const std::size_t exact = count(kContext) * 3 * 2 * 2 * 8 * 2;
  EXPECT_LE(bytes.at("summary").get<std::size_t>(), exact / 2);
  EXPECT_GT(bytes.at("summary").get<std::size_t>(), exact / 4);
  EXPECT_EQ(answers(ask + Words{"--cache", "100%"}), answers(ask));
  expect_refusal(run(ask + Words{"--cache", "1"}), "a share or bytes");
  expect_refusal(run(ask + Words{"--cache", "10B"}), "give at least");
  expect_refusal(run(ask + Words{"--cache", "1/2", "--method", "replay:bytes=1/8"}), "both say");
}

TEST_F(RunModel, EveryMethodTakesACache) {
  const Words ask = {"--context", path("context"), "--question", "Where?", "--raw"};
  const std::size_t exact = count(kContext) * 3 * 2 * 2 * 8 * 2;
  for (const char* method : {"local", "uniform:sink=1,window=4", "streaming-llm"}) {
    for (const char* protocol : {"prefill", "stream"}) {
      const Words words = {"--cache", "3/4", "--method", method, "--protocol", protocol, "--json"};
      const Said said = run(ask + words);
      ASSERT_EQ(said.exit_code, 0) << said.err;
      const json bytes = said.json().at("statistics").at("cache_after_prompt").at("bytes");
      // Room for question and answer comes on top.
      EXPECT_LE(bytes.at("total").get<std::size_t>(), exact * 3 / 4 + (count("Where?") + 9) * 192)
          << method << " in " << protocol;
    }
  }
  expect_refusal(run(ask + Words{"--cache", "3/4", "--method", "h2o:rate=0.5"}), "both say");
  expect_refusal(run(ask + Words{"--cache", "3/4", "--method", "exact"}), "exact:type=int4");
  expect_refusal(run(ask + Words{"--method", "h2o:bytes=1/2,rate=0.5"}), "give one");
  EXPECT_EQ(answers(ask + Words{"--method", "exact:type=int8"}),
            answers(ask + Words{"--cache-type", "int8"}));
}

TEST_F(RunModel, MemoryIsForTheAnswerToo) {
  const Words ask = {"--context", path("context"), "--question", "Where?", "--raw"};
  // A token takes 3 · 2 · 2 · 8 · 2 = 192 bytes.
  const Words memory = {"--memory", "8K", "--json"};
  const Said kept = run(ask + memory);
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  const json all = kept.json();
  EXPECT_LE(all.at("answers").at(0).at("cache").at("bytes").at("total"), 8192);
  // Prefill would read into more than that; stream does not.
  const Said said = run(ask + Words{"--method", "streaming-llm", "--memory", "7K", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.err, HasSubstr("more than the 7.00 KiB given: the text is summarised while"));
  EXPECT_LE(said.json().at("answers").at(0).at("cache").at("bytes").at("total"), 7168);
  EXPECT_EQ(answers(ask + Words{"--memory", "1M"}), answers(ask));
  expect_refusal(run(ask + Words{"--memory", "1/8"}), "give bytes with a unit, such as");
  expect_refusal(run(ask + Words{"--memory", "1K"}), "questions and answers of");
  expect_refusal(run(ask + Words{"--memory", "8K", "--cache", "1/8"}), "give one");
}

TEST_F(RunModel, TakesItsPromptFromAnywhere) {
  write_text(dir_ / "prompt", "Hello");
  const Said said = run({"Hello"});
  EXPECT_EQ(said.exit_code, 0);
  EXPECT_EQ(run({"-f", path("prompt")}).out, said.out);
  EXPECT_EQ(run({}, "Hello").out, said.out);
  EXPECT_EQ(run({"-f", "-"}, "Hello").out, said.out);
}

TEST_F(RunModel, SameSeedSameTextOnAnyNumberOfThreads) {
  const Words drawn = {"Hello", "--temperature", "1.5", "--top-k", "50", "--repeat-penalty", "1.1"};
  const json first = answers(drawn + Words{"--seed", "3", "--threads", "1"});
  EXPECT_EQ(answers(drawn + Words{"--seed", "3", "--threads", "3"}), first);
  EXPECT_NE(answers(drawn + Words{"--seed", "4"}), first);
}

TEST_F(RunModel, QuestionsShareOneCompressedContext) {
  for (const char* method : {"exact", "h2o:budget=20,sink=2", "balancekv:budget=24,sink=2,window=8",
                             "streaming-llm:budget=16,sink=2"}) {
    for (const char* protocol : {"prefill", "stream"}) {
      const Words base = {"--context", path("context"), "--method", method, "--protocol", protocol};
      const json one = answers(base + Words{"--question", "Who?"});
      const json two = answers(base + Words{"--question", "Where is it?"});
      const json both = answers(base + Words{"--question", "Who?", "--question", "Where is it?"});
      ASSERT_EQ(both.size(), 2u);
      EXPECT_EQ(both.at(0), one.at(0)) << method << " " << protocol;
      EXPECT_EQ(both.at(1), two.at(0)) << method << " " << protocol;
      write_text(dir_ / "questions", "Who?\n\n \t \r\nWhere is it?\r\n");
      EXPECT_EQ(answers(base + Words{"--questions", path("questions")}), both);
    }
  }
}

TEST_F(RunModel, ASavedContextAnswersAsTheContextDoes) {
  for (const Words& form : {Words{}, Words{"--raw"}}) {
    for (const char* protocol : {"prefill", "stream"}) {
      const Words base = {
          "--context",  path("context"), "--method",     "clustergen:budget=24,sink=2,window=8",
          "--protocol", protocol,        "--cache-type", "int8"};
      const json direct = answers(base + form + Words{"--question", "Who?"});
      const Said saved = run(base + form + Words{"--save-cache", path("cache")});
      EXPECT_EQ(saved.exit_code, 0) << saved.err;
      EXPECT_EQ(answers({"--load-cache", path("cache"), "--question", "Who?"}), direct);
      EXPECT_EQ(
          answers({"--load-cache", path("cache"), "--question", "x", "--question", "Who?"}).at(1),
          direct.at(0));
      EXPECT_THAT(run_with({"inspect", path("cache")}).out,
                  HasSubstr("model                 tiny\n"));
    }
  }
}

TEST_F(RunModel, ABudgetThatCoversTheTextIsExact) {
  const Words base = {"--context", path("context"), "--question", "Who?", "--cache-type", "f32"};
  const json exact = answers(base);
  for (const char* method : {"h2o:budget=128", "balancekv:budget=128", "clustergen:budget=128",
                             "snapkv:budget=128", "uniform:budget=128"}) {
    for (const char* protocol : {"prefill", "stream"}) {
      const json got = answers(base + Words{"--method", method, "--protocol", protocol});
      EXPECT_EQ(got.at(0).at("ids"), exact.at(0).at("ids")) << method << " " << protocol;
    }
  }
}

TEST_F(RunModel, QuestionsGoThroughTheTemplateAndPromptsDoNot) {
  auto prompt_tokens = [&](const Words& more) {
    return run(more + Words{"--json"})
        .json()
        .at("statistics")
        .at("prompt")
        .at("tokens")
        .get<std::size_t>();
  };
  EXPECT_EQ(prompt_tokens({"Who?"}), count("Who?"));
  EXPECT_EQ(prompt_tokens({"--question", "Who?", "--raw"}), count("Who?"));
  const std::size_t asked = count("<s>User: Who?\nAssistant:", true);
  EXPECT_EQ(prompt_tokens({"--question", "Who?"}), asked);
  EXPECT_EQ(prompt_tokens({"Who?", "--chat"}), asked);
  EXPECT_EQ(prompt_tokens({"Who?", "--chat", "--system", "Be short."}),
            count("<s>Be short.\n\nUser: Who?\nAssistant:", true));
}

TEST_F(RunModel, EndsWhereItIsTold) {
  const json whole = answers({"Hello"}).at(0);
  EXPECT_EQ(answers({"Hello", "-n", "3"}).at(0).at("ids").size(), 3u);
  // The first character that is one byte.
  const std::string text = whole.at("text");
  const auto at = std::ranges::find_if(text, [](char c) { return c > ' '; }) - text.begin();
  ASSERT_LT(at, static_cast<long>(text.size()));
  const json stopped = answers({"Hello", "--stop", text.substr(at, 1)}).at(0);
  EXPECT_EQ(stopped.at("finish"), "stop");
  EXPECT_EQ(stopped.at("text"), text.substr(0, at));
  const json full = answers({"Hello", "-n", "0"}).at(0);
  if (full.at("finish") != "end") {
    EXPECT_EQ(full.at("finish"), "positions");
    EXPECT_EQ(full.at("ids").size(), 128 + 1 - count("Hello"));
  }
}

TEST_F(RunModel, ReportsWhatItDid) {
  const Words base = {"--context",  path("context"), "--question",
                      "Who?",       "--method",      "streaming-llm:budget=16,sink=2",
                      "--protocol", "stream"};
  const json all = run(base + Words{"--json"}).json();
  const json& s = all.at("statistics");
  EXPECT_EQ(all.at("method"), "streaming-llm:budget=16,sink=2");
  EXPECT_GT(s.at("prompt").at("tokens"), kContext.size() - 10);
  EXPECT_GT(s.at("question").at("tokens"), 4);
  EXPECT_EQ(s.at("answer").at("tokens"), all.at("answers").at(0).at("ids").size());
  const json& cache = s.at("cache_after_prompt");
  EXPECT_LE(cache.at("entries"), 16);
  EXPECT_EQ(cache.at("tokens"), s.at("prompt").at("tokens"));
  const json& bytes = cache.at("bytes");
  EXPECT_EQ(bytes.at("total"), bytes.at("sink").get<int>() + bytes.at("summary").get<int>() +
                                   bytes.at("window").get<int>() + bytes.at("watch").get<int>());
  EXPECT_GT(cache.at("ratio"), 2.0);
  EXPECT_GT(s.at("peak_memory"), 1000000);
  const Said text = run(base + Words{"--stats"});
  for (const char* part : {"prompt", "compress", "question", "answer", "sink", "summary", "window",
                           "exact", "ratio", "peak memory", "estimated"}) {
    EXPECT_THAT(text.err, HasSubstr(part));
  }
  const Said file = run(base + Words{"--json=" + path("report.json")});
  EXPECT_EQ(json::parse(read_text(path("report.json")))
                    .at("answers")
                    .at(0)
                    .at("text")
                    .get<std::string>() +
                "\n",
            file.out);
}

TEST_F(RunModel, RefusesWhatItCannotDo) {
  expect_refusal(run({std::string(200, 'x')}),
                 "the prompt has 204 tokens, but the model has 128 positions");
  expect_refusal(run({"--context", path("context"), "--question", std::string(90, 'x')}),
                 "but the model has 128 positions");
  expect_refusal(run({"--context", path("absent"), "--question", "x"}), path("absent"));
  expect_refusal(run({"--prompt-file", dir_.path().string()}), "cannot read: it is a folder");
  expect_refusal(run({"x", "--method", "nonsense"}), "nonsense");
  expect_refusal(run({"x", "--protocol", "later"}), "later");
  expect_refusal(run({"x", "--cache-type", "f8"}), "f8");
  expect_refusal(run({"x", "--temperature", "-1"}), "temperature -1");
  expect_refusal(run({"x", "--top-p", "0"}), "top-p 0");
  expect_refusal(run({"x", "--stop", ""}), "--stop: an empty text");
  expect_refusal(run({"x", "--chat", "--raw"}), "--chat and --raw exclude each other");
  expect_refusal(run({"x", "--save-cache", path("cache")}), "--save-cache needs a --context");
  expect_refusal(run({"x", "--prompt-file", path("context")}), "not both");
  expect_refusal(run({}, ""), "an empty prompt");
  expect_refusal(run({"--context", path("context")}, ""), "an empty question");
  write_text(dir_ / "empty", "");
  expect_refusal(run({"--context", path("empty"), "--question", "x"}), "the context is empty");
  write_text(dir_ / "none", "\n \n   \r\n");
  expect_refusal(run({"--questions", path("none")}), "no questions");
  expect_refusal(run({"x", "-n", "many"}), "--max-tokens", 2);
  expect_refusal(run({"x", "-n", "-3"}), "--max-tokens: -3 is not a whole number from 0", 2);
  expect_refusal(run({"x", "-n", "3", "-n", "4"}), "--max-tokens is given more than once", 2);
  expect_refusal(run({"x", "--method", "exact", "--method", "h2o"}),
                 "--method is given more than once", 2);
  for (const char* folder : {"BALLAST_MODELS", "HF_HUB_CACHE", "LLAMA_CACHE"}) {
    ::setenv(folder, path("none").c_str(), 1);
  }
  expect_refusal(run_with({"run", "x"}), "no model is here: give -m FILE, or fetch one", 2);
  expect_refusal(run_with({"run", "-m", path("absent"), "x"}), path("absent"));
  expect_refusal(run_with({"run", "-m", path("context"), "x"}), path("context"));
}

TEST_F(RunModel, FindsAnUnwritableCacheBeforeTheWork) {
  // The model is not even looked at.
  expect_refusal(run_with({"run", "-m", path("absent"), "--context", path("context"),
                           "--save-cache", path("no/folder")}),
                 path("no/folder"));
}

TEST_F(RunModel, SavedCachesStandOneBehindTheOther) {
  write_text(dir_ / "first", "The cat is here.");
  write_text(dir_ / "second", "The bird is red.");
  for (const char* name : {"first", "second"}) {
    const Said saved = run({"--raw", "--context", path(name), "--method", "h2o:budget=8,sink=2",
                            "--save-cache", path(name) + ".cache"});
    EXPECT_EQ(saved.exit_code, 0) << saved.err;
  }
  const std::string a = path("first.cache"), b = path("second.cache");
  const Words ask = {"--question", "Who?"};
  const json both = answers(Words{"--context", a, "--context", b} + ask);
  EXPECT_EQ(answers(Words{"--load-cache", a, "--load-cache", b} + ask), both);
  EXPECT_EQ(answers(Words{"--context", a} + ask), answers(Words{"--load-cache", a} + ask));
  expect_refusal(run(Words{"--context", a, "--context", path("first")} + ask),
                 "a text beside saved caches");
  expect_refusal(run(Words{"--context", a, "--context", path("absent")} + ask),
                 path("absent") + ": there is no such file");
  const Words again = {"--context", a, "--context", b, "--read-again", "50"};
  EXPECT_NE(answers(again + ask), both);
  expect_refusal(run(Words{"--context", a, "--read-again", "50"} + ask),
                 "--read-again 50: only of several saved contexts");
}

TEST_F(RunModel, RefusesCachesOfOtherModels) {
  const test::ReferenceCase other("llama-linear");
  const Words save = {"--context", path("context"), "--save-cache", path("cache")};
  EXPECT_EQ(run_with(Words{"run", "-m", other.gguf().string()} + save).exit_code, 0);
  expect_refusal(run({"--load-cache", path("cache"), "x"}), "made with another model, 'tiny'");
  std::string bytes = read_text(path("cache"));
  bytes[bytes.size() / 2] ^= 1;
  write_text(path("cache"), bytes);
  expect_refusal(run({"--load-cache", path("cache"), "x"}), "damaged");
  expect_refusal(run({"--load-cache", path("context"), "x"}), "not a saved Ballast cache");
  expect_refusal(run({"--load-cache", path("absent"), "x"}), path("absent"));
}

TEST_F(RunModel, RefusesWhatMemoryCannotHold) {
  // The same model, of two thousand million positions.
  std::string bytes = read_text(model());
  const std::string key = "llama.context_length";
  const std::size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  const std::uint32_t positions = 2000000000;
  std::memcpy(&bytes[at + key.size() + 4], &positions, 4);
  write_text(dir_ / "long.gguf", bytes);
  expect_refusal(run_with({"run", "-m", path("long.gguf"), "x", "-n", "2000000000"}),
                 "this run needs");
  EXPECT_EQ(run_with({"run", "-m", path("long.gguf"), "x", "-n", "2"}).exit_code, 0);
}

// --- chat ---

TEST_F(RunModel, AConversationReadsOnlyWhatIsNew) {
  const Words base = {"chat", "-m", model(), "-n", "4", "--cache-type", "f32"};
  const Said first = run_with(base, "Hi\n");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out, run({"Hi", "--chat", "-n", "4", "--cache-type", "f32"}).out);
  const Said two = run_with(base + Words{"--stats"}, "Hi\n\nAnd?\n/exit\nnot read\n");
  EXPECT_THAT(two.out, testing::StartsWith(first.out));
  EXPECT_GT(two.out.size(), first.out.size());
  // The second turn reads the answer's last token and what follows an answer.
  const std::size_t said = count("<s>User: Hi\nAssistant:", true);
  const std::size_t more = count("\n\nUser: And?\nAssistant:", true) - count("\n", true);
  EXPECT_THAT(two.err, HasSubstr("[read " + std::to_string(said) + " tokens"));
  EXPECT_THAT(two.err, HasSubstr("[read " + std::to_string(said + 1 + more) + " tokens"));
  EXPECT_EQ(std::count(two.err.begin(), two.err.end(), '\n'), 2);
}

TEST_F(RunModel, AConversationEndsAtTheLastPosition) {
  const Said said = run_with({"chat", "-m", model(), "-n", "0"}, "Hi\nHo\nHum\n");
  EXPECT_EQ(said.exit_code, 1);
  EXPECT_THAT(said.err, HasSubstr("0 of the model's 128 positions are left: /clear and begin"));
  expect_refusal(
      run_with({"chat", "-m", model(), "--protocol", "stream", "--method", "h2o:rate=0.5"}),
      "give the method a budget");
}

TEST_F(RunModel, AConversationIsExactUntilItsMemoryIsFull) {
  const Words base = {"chat", "-m", model(), "-n", "4", "--stats"};
  const std::string turns = "Hi\nHo\n";
  const Said exact = run_with(base, turns);
  for (const Words& method : {Words{}, Words{"--method", "streaming-llm"}}) {
    EXPECT_EQ(run_with(base + method + Words{"--cache", "64K"}, turns).out, exact.out);
    EXPECT_EQ(run_with(base + method + Words{"--memory", "64K"}, turns).out, exact.out);
  }
  // 192 bytes a token: the second turn passes it, and 32 tokens stay.
  const Said full =
      run_with(base + Words{"--cache", "6K", "--method", "streaming-llm"}, turns + "Hum\n");
  EXPECT_EQ(full.exit_code, 0) << full.err;
  EXPECT_THAT(full.err, HasSubstr(" in 6.00 KiB"));
  expect_refusal(run_with(base + Words{"--cache", "1/8"}), "a conversation has no known length");
}

TEST_F(RunModel, CtrlCAtThePromptEndsAConversation) {
  int in[2];
  ASSERT_EQ(::pipe(in), 0);
  const std::string out = path("out");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGINT, SIG_DFL);  // what runs in the background of a shell ignores it
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    ::close(in[1]);
    ::execl(BALLAST_PROGRAM, BALLAST_PROGRAM, "chat", "-m", model().c_str(), "-n", "2", nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ASSERT_EQ(::write(in[1], "Hi\n", 3), 3);
  // The answer's last character says that the next line is waited for.
  for (int i = 0; i < 2000 && !read_text(out).ends_with('\n'); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(in[1]);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

// The pipe that the answer goes to is full and nobody reads it: the first Ctrl-C waits for ever.
TEST_F(RunModel, ASecondCtrlCEndsAConversationAtOnce) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer holds a signal back until the call that blocks returns";
#endif
  int in[2], out[2];
  ASSERT_EQ(::pipe(in), 0);
  ASSERT_EQ(::pipe(out), 0);
  ASSERT_EQ(::fcntl(out[1], F_SETFL, O_NONBLOCK), 0);
  const std::string filling(4096, 'x');
  while (::write(out[1], filling.data(), filling.size()) > 0) continue;
  ASSERT_EQ(::fcntl(out[1], F_SETFL, 0), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGINT, SIG_DFL);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::close(in[1]);
    ::execl(BALLAST_PROGRAM, BALLAST_PROGRAM, "chat", "-m", model().c_str(), nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ASSERT_EQ(::write(in[1], "Hi\n", 3), 3);
  // It has taken the line and then sleeps for a while: it is at the pipe.
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  int unread = 1;
  for (int asleep = 0, i = 0; asleep < 20 && i < 6000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(::ioctl(in[1], FIONREAD, &unread), 0);
    const std::string text = read_text(stat);
    const bool sleeps = text.find(") S ") != std::string::npos;
    asleep = unread == 0 && sleeps ? asleep + 1 : 0;
  }
  ASSERT_EQ(unread, 0);
  int status = 0;
  ::kill(child, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(::waitpid(child, &status, WNOHANG), 0);
  ::kill(child, SIGINT);
  bool ended = false;
  for (int i = 0; i < 3000 && !ended; ++i) {
    ended = ::waitpid(child, &status, WNOHANG) == child;
    if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(ended);
  if (!ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

}  // namespace
}  // namespace ballast
