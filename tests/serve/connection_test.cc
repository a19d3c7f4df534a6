#include "serve/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace ballast::serve {
namespace {

/// A connection and the client's end of it.
struct Pair {
  Pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0); }
  ~Pair() {
    for (int end : ends) ::close(end);
  }
  int ends[2];
  std::atomic<int> server = 1;
};

TEST(Connection, HeadersThatTrickleEnd) {
  Pair pair;
  Connection connection(pair.ends[0], pair.server);
  connection.begin(0.1);
  std::atomic<bool> over = false;
  std::thread client([&] {  // a byte now and then would hold a thread for ever
    while (!over && ::send(pair.ends[1], "h", 1, MSG_NOSIGNAL) == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  char byte = 0;
  while (connection.read(&byte, 1) == 1) EXPECT_EQ(byte, 'h');
  over = true;
  client.join();
}

TEST(Connection, ARequestHasAsManyBytesAsItIsAllowed) {
  Pair pair;
  Connection connection(pair.ends[0], pair.server);
  const std::string sent(300 << 10, 'x');
  std::thread client([&] {
    std::size_t done = 0;
    while (done < sent.size()) {
      const ssize_t count = ::send(pair.ends[1], &sent[done], sent.size() - done, MSG_NOSIGNAL);
      if (count <= 0) return;
      done += static_cast<std::size_t>(count);
    }
  });
  connection.begin(60);
  std::size_t read = 0;
  char buffer[1000];
  const auto all = [&] {
    for (ssize_t count; (count = connection.read(buffer, sizeof buffer)) > 0;) {
      read += static_cast<std::size_t>(count);
    }
  };
  all();
  EXPECT_EQ(read, std::size_t{256} << 10);
  connection.expect(60, 1000);
  all();
  EXPECT_EQ(read, (std::size_t{256} << 10) + 1000);
  connection.begin(60);  // the next one
  while (read < sent.size()) {
    const ssize_t count = connection.read(buffer, sizeof buffer);
    ASSERT_GT(count, 0);
    read += static_cast<std::size_t>(count);
  }
  client.join();
}

TEST(Connection, KnowsThatTheClientIsGone) {
  Pair pair;
  Connection connection(pair.ends[0], pair.server);
  EXPECT_FALSE(connection.gone());
  pair.server = -1;
  EXPECT_TRUE(connection.gone());
  pair.server = 1;
  ::shutdown(pair.ends[1], SHUT_WR);
  EXPECT_TRUE(connection.gone());
}

}  // namespace
}  // namespace ballast::serve
