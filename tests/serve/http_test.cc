// Connections: what they cost, what a client may not do, and that no one is kept out by others.
#include "serve/http/http.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "process_threads.h"
#include "resident_memory.h"
#include "sanitized.h"
#include "serve/client.h"

namespace ballast::test {
namespace {

using namespace std::chrono_literals;
using serve::HttpOptions;
using serve::Request;
using serve::Response;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t kMiB = 1 << 20;

/// A running server that answers with the body, with 64 MiB at /large or as a stream at /stream;
/// at /wait once the client has left.
class Http {
 public:
  explicit Http(HttpOptions options = {}, std::size_t memory_bytes = 1024 * kMiB)
      : memory(memory_bytes), server(with_handlers(std::move(options)), memory) {
    thread_ = std::thread([this] { server.run(); });
  }
  ~Http() {
    server.stop();
    thread_.join();
  }

  int port() const { return server.port(); }
  /// The answer to what is sent as it is, up to the end of the connection.
  std::string answer(const std::string& text) const {
    const Raw raw(port());
    raw.write(text);
    return raw.read();
  }

  std::atomic<int> left = 0;     ///< clients that did, before their answer
  std::atomic<int> written = 0;  ///< streams, whole
  serve::Memory memory;
  serve::HttpServer server;

 private:
  HttpOptions with_handlers(HttpOptions options) {
    options.host = "127.0.0.1";
    if (!options.admit) options.admit = [](const Request&) { return std::nullopt; };
    options.handle = [this](Request& request, Response& response) {
      if (request.refused) {
        response.status = request.refused->status();
        response.set_content(request.refused->code(), "text/plain");
      } else if (request.path == "/large") {
        response.set_content(std::string(64 * kMiB, 'x'), "text/plain");
      } else if (request.path == "/stream") {
        response.begin("text/plain");
        for (int i = 0; i < 64; ++i) response.write(std::string(kMiB, 'x'));
        ++written;
      } else if (request.path == "/paced") {
        response.begin("text/plain");
        for (int i = 0; i < 64; ++i) {
          while (response.unsent() > 0 && !response.gone()) std::this_thread::sleep_for(1ms);
          response.write(std::string(kMiB, 'x'));
          ++written;
        }
      } else if (request.path == "/wait") {
        while (!response.gone() && !response.stopping()) std::this_thread::sleep_for(1ms);
        ++left;
        response.abandon();
      } else {
        response.set_content(request.body, "text/plain");
      }
    };
    return options;
  }

  std::thread thread_;
};

std::vector<std::unique_ptr<Raw>> connect(int port, std::size_t count) {
  std::vector<std::unique_ptr<Raw>> out;
  while (out.size() < count) {
    out.push_back(std::make_unique<Raw>(port));
    EXPECT_TRUE(out.back()->connected()) << out.size();
  }
  return out;
}

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const std::string kLast = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

TEST(Http, AThousandIdleConnectionsCostLittleAndKeepNoOneOut) {
  const Http http;
  EXPECT_EQ(send(http.port(), "GET", "/").status, 200);
  const std::size_t before = resident_memory(), threads = process_threads();
  const auto idle = connect(http.port(), 1000);
  EXPECT_EQ(send(http.port(), "GET", "/").status, 200);
  EXPECT_EQ(process_threads(), threads);
  EXPECT_TRUE(kSanitized || resident_memory() < before + 50 * kMiB);
  fmt::print("1,000 idle connections: {:.1f} MB\n",
             (static_cast<double>(resident_memory()) - static_cast<double>(before)) / 1e6);
}

TEST(Http, AThousandSlowSendersKeepNoOneOut) {
  const Http http;
  EXPECT_EQ(send(http.port(), "GET", "/").status, 200);
  const std::size_t threads = process_threads();
  const auto slow = connect(http.port(), 1000);
  const std::string text = post_text("/", std::string(100, 'x'));
  for (std::size_t at = 0; at < text.size(); at += 8) {  // headers, then the body
    for (const auto& one : slow) one->write(text.substr(at, 8));
    EXPECT_EQ(send(http.port(), "GET", "/").status, 200);
  }
  EXPECT_LE(process_threads(), threads + 64);
  for (const auto& one : slow) ASSERT_THAT(one->read("xxx"), StartsWith("HTTP/1.1 200"));
}

TEST(Http, IdleConnectionsEndSoonerWhereTheyCrowd) {
  HttpOptions options;
  options.idle = 60s;
  const Http http(options);
  const auto few = connect(http.port(), 1000);
  for (const auto& one : few) one->write(kGet);
  for (const auto& one : few) ASSERT_THAT(one->read("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  const auto crowd = connect(http.port(), 1100);  // more than half of all
  EXPECT_TRUE(few.front()->ended());
}

TEST(Http, HeadersAndBodiesThatTrickleEnd) {
  HttpOptions options;
  options.idle = options.body = 100ms;
  options.max_body = 100000;
  const Http http(options);
  for (const char* begin : {"GET / HTTP/1.1\r\nA: ",
                            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n", ""}) {
    const Raw raw(http.port());
    raw.write(begin);
    std::atomic<bool> over = false;
    std::thread client([&] {
      while (!over && *begin != '\0') {
        raw.write("h");
        std::this_thread::sleep_for(5ms);
      }
    });
    EXPECT_EQ(raw.read(), "") << begin;
    over = true;
    client.join();
  }
}

TEST(Http, SlowReadersHoldNoHandlerAndAreLeft) {
  HttpOptions options;
  options.most_handlers = 1;
  options.reading = 500ms;
  Http http(options);
  std::vector<std::unique_ptr<Raw>> slow;
  for (const char* path : {"/stream", "/large"}) {
    slow.push_back(std::make_unique<Raw>(http.port()));
    slow.back()->write(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path));
  }
  EXPECT_EQ(send(http.port(), "GET", "/").status, 200);
  EXPECT_EQ(http.written, 1);
  std::this_thread::sleep_for(2500ms);
  for (const auto& one : slow) EXPECT_LT(one->read().size(), 64 * kMiB);
}

TEST(Http, AClientThatReadsGetsAll) {
  const Http http;
  for (const char* path : {"/stream", "/large"}) {
    EXPECT_EQ(send(http.port(), "GET", path).body, std::string(64 * kMiB, 'x')) << path;
  }
}

TEST(Http, AHandlerSeesWhatItsClientHasNotTaken) {
  Http http;
  const Raw raw(http.port());
  raw.write("GET /paced HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  std::this_thread::sleep_for(300ms);
  const int written = http.written;
  EXPECT_GT(written, 0);
  EXPECT_LT(written, 40);  // what the connection itself holds
  EXPECT_GT(raw.read().size(), 64 * kMiB);
  EXPECT_EQ(http.written, 64);
}

TEST(Http, SomePathsAnswerWhateverTheHandlersDo) {
  HttpOptions options;
  options.most_handlers = 1;
  options.at_once = {"/"};
  options.max_body = 10;
  Http http(options);
  auto busy = std::make_unique<Raw>(http.port());
  busy->write("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(send(http.port(), "GET", "/").status, 200);
  EXPECT_EQ(send(http.port(), "POST", "/other", std::string(99, 'x')).status, 413);
  EXPECT_EQ(http.left, 0);
  busy.reset();
}

TEST(Http, HostsAreStrict) {
  const Http http;
  const auto status = [&](const std::string& begin) {
    return http.answer(begin + "Connection: close\r\n\r\n").substr(9, 3);
  };
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\n"), "200");
  EXPECT_EQ(status("GET / HTTP/1.0\r\n"), "200");
  EXPECT_EQ(status("GET / HTTP/1.1\r\n"), "400");
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n"), "400");
  EXPECT_EQ(status("GET / HTTP/1.0\r\nhost: a\r\nHOST: b\r\n"), "400");
}

TEST(Http, LengthsAreStrict) {
  HttpOptions options;
  options.max_body = 1000;
  const Http http(options);
  const auto status = [&](const std::string& headers, const std::string& body = "{}") {
    return http
        .answer("POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers +
                "\r\n\r\n" + body)
        .substr(0, 12);
  };
  EXPECT_EQ(status("Content-Length: 2"), "HTTP/1.1 200");
  EXPECT_EQ(status("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n"), "HTTP/1.1 200");
  for (const char* wrong :
       {"Content-Length: 2\r\nContent-Length: 3", "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 2", "Content-Length: -2",
        "Content-Length: +2", "Content-Length: 2, 2", "Content-Length: 0x2",
        "Content-Length:", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity"}) {
    EXPECT_EQ(status(wrong), "HTTP/1.1 400") << wrong;
  }
  EXPECT_EQ(status("Transfer-Encoding: chunked", "x\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(status("Content-Length: 99999999999999999999"), "HTTP/1.1 413");
  EXPECT_EQ(status("Content-Length: 1001", std::string(1001, 'x')), "HTTP/1.1 413");
  EXPECT_EQ(status("Content-Length: 1001\r\nExpect: 100-continue", ""), "HTTP/1.1 413");
  EXPECT_EQ(
      status("Transfer-Encoding: chunked", "3e9\r\n" + std::string(1001, 'x') + "\r\n0\r\n\r\n"),
      "HTTP/1.1 413");
  EXPECT_EQ(status("A: " + std::string(70000, 'x')), "HTTP/1.1 431");
  // What follows a request whose end is in doubt is no request.
  const std::string two = http.answer(
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n" + kLast);
  EXPECT_EQ(two.find("HTTP/1.1", 5), std::string::npos) << two;
}

TEST(Http, RefusedBodiesAreReadSoThatTheAnswerArrives) {
  HttpOptions options;
  options.max_body = kMiB;
  options.admit = [](const Request& request) -> std::optional<serve::ApiError> {
    if (request.path != "/secret") return std::nullopt;
    return serve::ApiError(401, "key", "no");
  };
  const Http http(options);
  const std::string body(8 * kMiB, 'x');
  EXPECT_EQ(send(http.port(), "POST", "/", body).status, 413);
  EXPECT_EQ(send(http.port(), "POST", "/secret", body).status, 401);
  EXPECT_EQ(http.memory.taken(), 0u);
}

TEST(Http, RequestsComeInPiecesAndOneBehindTheOther) {
  const Http http;
  const std::string one = post_text("/", "one");
  const Raw pieces(http.port());
  for (char c : one) pieces.write({&c, 1});
  EXPECT_THAT(pieces.read("one"), HasSubstr("\r\n\r\none"));
  const std::string all = http.answer(one + kGet + one + kLast);
  std::size_t answers = 0;
  for (std::size_t at = 0; (at = all.find("HTTP/1.1 200", at)) != std::string::npos; ++at)
    ++answers;
  EXPECT_EQ(answers, 4u) << all;
}

TEST(Http, RangesAreIgnoredAndHeadHasNoBody) {
  const Http http;
  EXPECT_EQ(send(http.port(), "POST", "/", "whole", {{"Range", "bytes=0-1"}}).body, "whole");
  const std::string head =
      http.answer("HEAD /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(head, HasSubstr(fmt::format("Content-Length: {}\r\n", 64 * kMiB)));
  EXPECT_THAT(head, testing::EndsWith("\r\n\r\n"));
}

TEST(Http, UnfinishedBodiesCountAsMemory) {
  HttpOptions options;
  options.max_body = 16 * kMiB;
  Http http(options, 12 * kMiB);
  {
    const Raw first(http.port());
    first.write(post_text("/", std::string(10 * kMiB, 'x')).substr(0, 9 * kMiB));
    while (http.memory.taken() < 9 * kMiB) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(send(http.port(), "POST", "/", std::string(8 * kMiB, 'x')).status, 503);
    EXPECT_EQ(send(http.port(), "POST", "/", "small").status, 200);
  }
  while (http.memory.taken() > 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(send(http.port(), "POST", "/", std::string(8 * kMiB, 'x')).status, 200);
}

TEST(Http, AHandlerLearnsThatItsClientHasLeft) {
  Http http;
  for (const bool closed : {false, true}) {
    auto raw = std::make_unique<Raw>(http.port());
    raw->write("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(http.left, closed ? 1 : 0);
    closed ? raw.reset() : raw->end();
    while (http.left < (closed ? 2 : 1)) std::this_thread::sleep_for(1ms);
  }
}

}  // namespace
}  // namespace ballast::test
