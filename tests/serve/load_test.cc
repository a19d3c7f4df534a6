// Many clients, broken requests, and a server that is killed.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>

#include "cli/program.h"
#include "process_threads.h"
#include "resident_memory.h"
#include "sanitized.h"
#include "serve/client.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

/// A sanitizer notes what is accessed.
void expect_little_more_than(std::size_t before) {
  if (kSanitized) return;
  EXPECT_LT(resident_memory(), before + (std::size_t{64} << 20));
}

using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

Json request(int number) {
  return {{"prompt", fmt::format("record {}: the number is {}.\nrecord {}: the number is", number,
                                 number * 37 % 1009, number)},
          {"temperature", 0},
          {"max_tokens", 24},
          {"ignore_eos", true}};
}

struct Kind {
  std::string path;
  Json body;
};

/// Requests that have beginnings in common or none, caches of several methods, a context, several
/// choices, and JSON.
std::vector<Kind> kinds(const TestServer& server) {
  std::vector<Kind> out;
  for (int i = 0; i < 4; ++i) out.push_back({"/v1/completions", request(i)});
  std::string records;
  for (int i = 0; i < 40; ++i) records += fmt::format("record {}: number {}.\n", i, i * 37 % 101);
  for (int i = 0; i < 4; ++i) {
    Json body = request(i);
    body["prompt"] = records + body["prompt"].get<std::string>();
    out.push_back({"/v1/completions", body});
    if (i == 0) body["cache"] = {{"bytes", 0.25}};
    if (i == 1) body["cache"] = {{"method", "snapkv:rate=0.25"}};
    if (i == 2) body["n"] = 3;
    if (i == 3) body["response_format"] = {{"type", "json_object"}};
    out.push_back({"/v1/completions", body});
  }
  Json read_again = request(4);
  read_again["prompt"] = records + read_again["prompt"].get<std::string>();
  read_again["cache"] = {{"bytes", "64K"}, {"method", "replay:chunk=32"}, {"protocol", "stream"}};
  out.push_back({"/v1/completions", read_again});
  const Json context =
      server.post("/v1/contexts", {{"text", records}, {"cache", {{"bytes", 0.25}}}}).json();
  for (int i = 0; i < 4; ++i) {
    Json body = {{"messages", {{{"role", "user"}, {"content", fmt::format("record {}?", i)}}}},
                 {"temperature", i < 2 ? 0.0 : 1.0},
                 {"seed", i},
                 {"max_tokens", 24}};
    if (i % 2 == 0) body["context"] = context["id"];
    out.push_back({"/v1/chat/completions", body});
  }
  return out;
}

/// The texts of all choices; a line that says what went wrong otherwise.
std::string text_of(const Reply& reply, bool stream) {
  if (reply.status != 200) return fmt::format("status {}: {}", reply.status, reply.body);
  std::vector<std::string> texts(16);
  const auto add = [&](const Json& choice) {
    std::string& text = texts.at(choice["index"]);
    if (choice.contains("text")) text += choice["text"];
    if (choice.contains("message")) text += choice["message"]["content"];
    if (choice.contains("delta")) text += choice["delta"].value("content", "");
  };
  if (!stream) {
    const Json json = reply.json();
    for (const Json& choice : json["choices"]) add(choice);
  } else {
    const std::vector<std::string> events = events_of(reply.body);
    if (events.empty() || events.back() != "[DONE]") return "no end: " + reply.body;
    for (const std::string& event : events) {
      if (event == "[DONE]") continue;
      const Json json = Json::parse(event);
      if (!json.contains("choices")) return event;
      for (const Json& choice : json["choices"]) add(choice);
    }
  }
  return fmt::format("{}", fmt::join(texts, "|"));
}

/// Clients that ask again and again for `seconds`, one in four leaving early. Every answer must be
/// the one that its request gets alone.
void load(std::size_t streams, double seconds) {
  serve::ServerOptions options;
  options.slots = streams;
  options.queue = 8 * streams;  // of clients that left until that is noticed, too
  options.memory = std::size_t{512} << 20;
  const TestServer server(options);
  const std::vector<Kind> all = kinds(server);
  std::vector<std::string> expected;
  for (const Kind& kind : all)
    expected.push_back(text_of(server.post(kind.path, kind.body), false));
  for (const std::string& text : expected) ASSERT_NE(text.find_first_not_of('|'), text.npos);
  std::atomic<int> whole = 0, left = 0, wrong = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  auto clients = [&](auto until) {
    std::vector<std::thread> threads;
    for (std::size_t c = 0; c < streams; ++c) {
      threads.emplace_back([&, c] {
        std::mt19937 random(static_cast<unsigned>(c));
        while (until()) {
          const std::size_t kind = random() % all.size();
          Json body = all[kind].body;
          const bool stream = random() % 2 == 0;
          body["stream"] = stream;
          if (random() % 4 == 0) {
            const Raw raw(server.port());
            raw.write(post_text(all[kind].path, body.dump()));
            if (random() % 2 == 0) raw.read("data: ");
            ++left;
            continue;
          }
          const std::string text = text_of(server.post(all[kind].path, body), stream);
          ++whole;
          if (text == expected[kind]) continue;
          ++wrong;
          ADD_FAILURE() << "kind " << kind << ", stream " << stream << ": " << text.substr(0, 400)
                        << "\nexpected: " << expected[kind];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  // Threads have their memory, and caches theirs, after a first round.
  std::atomic<std::size_t> rounds = 0;
  clients([&] { return rounds++ < 4 * streams; });
  const std::size_t before = resident_memory();
  clients([&] { return std::chrono::steady_clock::now() < end; });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(whole, static_cast<int>(streams));
  EXPECT_GT(left, 0);
  expect_little_more_than(before);
  EXPECT_LE(server.metric("memory_taken_bytes"), static_cast<double>(options.memory));
  for (int i = 0; i < 200 && server.metric("streams") > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(server.metric("streams"), 0);
  EXPECT_EQ(server.metric("requests_queued"), 0);
  fmt::print("{} whole answers, {} wrong, {} clients left, {} MiB before, {} after\n", whole.load(),
             wrong.load(), left.load(), before >> 20, resident_memory() >> 20);
}

/// A request that no client library sends.
std::string broken(std::mt19937& random) {
  const std::string good = request(1).dump();
  auto any = [&](std::size_t below) { return random() % below; };
  switch (any(12)) {
    case 0: {  // bytes of the JSON changed; half of these stay valid
      std::string body = good;
      for (std::size_t i = 0; i <= any(4); ++i)
        body[any(body.size())] = static_cast<char>(any(256));
      body[0] = '[';
      return post_text("/v1/completions", body);
    }
    case 1:
      return post_text("/v1/chat/completions", good);
    case 2:
      return post_text("/v1/completions", good.substr(0, any(good.size())));
    case 3:
      return post_text("/v1/completions", std::string(any(70000), "[{\"\\"[any(4)]));
    case 4:
      return post_text("/v1/completions",
                       R"({"prompt":{},"temperature":[],"stop":{"a":1},"n":"x"})");
    case 5:
      return "GET / HTTP/9.9\r\n\r\n";
    case 6:
      return std::string("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 11);
    case 7:
      return fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\nx",
                         "99999999999999999999");
    case 8:
      return "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    case 9:
      return fmt::format("GET /{} HTTP/1.1\r\n\r\n", std::string(any(9000), 'a'));
    case 10:
      return post_text("/v1/completions", R"({"prompt":"\ud800","max_tokens":1e300})");
    default:
      return fmt::format("GET /none HTTP/1.1\r\n{}\r\n",
                         std::string(any(300), 'h') + ": " + std::string(any(9000), 'v') + "\r\n");
  }
}

void malformed(int count) {
  const TestServer server;
  std::mt19937 random(5);
  std::size_t before = 0;
  for (int i = 0; i < count; ++i) {
    if (i == count / 10) before = resident_memory();
    const std::string text = broken(random);
    const Raw raw(server.port());
    ASSERT_TRUE(raw.connected()) << i;
    raw.write(text);
    raw.end();
    const std::string answer = raw.read();
    if (text.starts_with('\x16') && answer.empty()) continue;  // TLS: the connection ends
    ASSERT_THAT(answer, AnyOf(StartsWith("HTTP/1.1 4"), StartsWith("HTTP/1.1 505")))
        << i << ": " << text.substr(0, 300);
  }
  expect_little_more_than(before);
  EXPECT_EQ(server.post("/v1/completions", request(1)).status, 200);
}

TEST(ServeLoad, StreamsStayApartAndClientsMayLeave) { load(16, 3); }
TEST(LongServeLoad, StreamsStayApartAndClientsMayLeave) { load(64, 300); }
TEST(ServeLoad, MalformedRequestsGetA4xx) { malformed(200); }
TEST(LongServeLoad, MalformedRequestsGetA4xx) { malformed(10000); }

TEST(ServeLoad, SeveralRequestsOnOneConnection) {
  const TestServer server;
  const Raw raw(server.port());
  const std::string one = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  raw.write(one + one + one + "GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::string all = raw.read();
  std::size_t answers = 0;
  for (std::size_t at = 0; (at = all.find("HTTP/1.1 200", at)) != std::string::npos; ++at)
    ++answers;
  EXPECT_EQ(answers, 3u);
  EXPECT_THAT(all, HasSubstr("HTTP/1.1 404"));
}

TEST(ServeLoad, NoThreadIsLeft) {
  TestServer::mini();
  {
    const TestServer server;  // the shared pool has its threads now
    server.post("/v1/completions", request(1));
  }
  const std::size_t before = process_threads();
  {
    const TestServer server;
    EXPECT_EQ(server.post("/v1/completions", request(1)).status, 200);
    EXPECT_GT(process_threads(), before);
  }
  EXPECT_EQ(process_threads(), before);
}

/// The program `ballast serve`, killed at the end.
class ServeProgram {
 public:
  explicit ServeProgram(const std::filesystem::path& folder) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    program_.emplace(std::vector<std::string>{"serve", "-m", kMini, "--port", "0", "-q", "--memory",
                                              "1G", "--cache-dir", folder.string()},
                     "", ends[1]);
    ::close(ends[1]);
    std::string line;
    for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) line += c;
    ::close(ends[0]);
    port_ = std::stoi(line.substr(line.rfind(':') + 1));
  }
  ~ServeProgram() { kill(); }
  int port() const { return port_; }
  void kill() {
    if (program_) end(SIGKILL);
  }
  /// Its exit code.
  int end(int signal) {
    program_->signal(signal);
    const int code = program_->wait().exit_code;
    program_.reset();
    return code;
  }

 private:
  std::optional<Program> program_;
  int port_ = 0;
};

TEST(ServeLoad, ASignalEndsStreamsAsSuch) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const TempDir dir;
    ServeProgram server(dir / "contexts");
    Json endless = {
        {"prompt", "The sky"}, {"ignore_eos", true}, {"max_tokens", 100000}, {"stream", true}};
    const Raw stream(server.port());
    stream.write(post_text("/v1/completions", endless.dump()));
    ASSERT_THAT(stream.read("data: "), HasSubstr("data: "));
    EXPECT_EQ(server.end(signal), 0);
    const std::string rest = stream.read();
    EXPECT_THAT(rest, HasSubstr("shutting_down"));
    EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
  }
}

TEST(ServeLoad, KilledWhileItReadsAContext) {
  const TempDir dir;
  const std::filesystem::path folder = dir / "contexts";
  std::string text;
  for (int i = 0; i < 60; ++i) text += fmt::format("record {}: the number is {}.\n", i, i * 37);
  const std::string body = Json{{"text", text}, {"cache", {{"bytes", 0.25}}}}.dump();
  std::string id, answer;
  auto ask = [&](int port) -> std::string {
    const Json question = {{"context", id},
                           {"messages", {{{"role", "user"}, {"content", "record 3?"}}}},
                           {"temperature", 0},
                           {"max_tokens", 8}};
    return send(port, "POST", "/v1/chat/completions", question.dump())
        .json()["choices"][0]["message"]["content"];
  };
  double seconds = 0;
  {
    const ServeProgram server(folder);
    const auto begin = std::chrono::steady_clock::now();
    const Reply made = send(server.port(), "POST", "/v1/contexts", body);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_EQ(made.status, 200) << made.body;
    id = made.json()["id"];
    answer = ask(server.port());
  }
  std::size_t there = 1;
  for (int i = 0; i < 5; ++i) {
    ServeProgram server(folder);
    const Json list = send(server.port(), "GET", "/v1/contexts").json()["data"];
    EXPECT_GE(list.size(), there);  // whole or absent
    EXPECT_LE(list.size(), there + 1);
    there = list.size();
    EXPECT_EQ(ask(server.port()), answer);
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      EXPECT_NE(entry.path().extension(), ".partial");
    }
    const Raw raw(server.port());
    raw.write(post_text("/v1/contexts", body));
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds * (0.8 + 0.1 * i)));
    server.kill();
  }
}

}  // namespace
}  // namespace ballast::test
