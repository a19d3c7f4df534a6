#include "serve/connection.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ballast::serve {
namespace {

constexpr double kHeaderSeconds = 10, kIdleSeconds = 5, kWriteSeconds = 30;
constexpr std::size_t kHeaderBytes = 256 << 10;
/// Requests of one connection.
constexpr int kRequests = 1000;

thread_local Connection* serving = nullptr;

int milliseconds(double seconds) { return static_cast<int>(std::max(0.0, seconds) * 1000); }

bool ready(int socket, short events, int most) {
  pollfd wanted{socket, events, 0};
  int result = 0;
  do {
    result = ::poll(&wanted, 1, most);
  } while (result < 0 && errno == EINTR);
  return result > 0;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

void address(int socket, NameOf name_of, std::string& ip, int& port) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  char text[INET6_ADDRSTRLEN] = "";
  if (name_of(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return;
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    port = ntohs(v4.sin_port);
  } else if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    port = ntohs(v6.sin6_port);
  }
  ip = text;
}

}  // namespace

Connection* Connection::current() { return serving; }

void Connection::begin(double seconds) {
  allowed_ = 0;
  since_request = Stopwatch();
  usage = {};
  expect(seconds, kHeaderBytes);
}

void Connection::expect(double seconds, std::size_t bytes) {
  deadline_ = Clock::now() + std::chrono::milliseconds(milliseconds(seconds));
  allowed_ += bytes;
}

bool Connection::wait(double seconds) {
  if (at_ < size_) return true;
  char byte = 0;
  return ready(socket_, POLLIN, milliseconds(seconds)) &&
         ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

bool Connection::gone() const {
  if (server_socket_ == -1) return true;
  pollfd wanted{socket_, POLLRDHUP, 0};
  return ::poll(&wanted, 1, 0) > 0 &&
         (wanted.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

bool Connection::is_readable() const {
  if (at_ < size_) return true;
  const double left = std::chrono::duration<double>(deadline_ - Clock::now()).count();
  return ready(socket_, POLLIN, milliseconds(left));
}

bool Connection::is_writable() const {
  return ready(socket_, POLLOUT, milliseconds(kWriteSeconds));
}

ssize_t Connection::read(char* out, std::size_t size) {
  if (at_ == size_) {
    if (allowed_ == 0 || Clock::now() >= deadline_ || !is_readable()) return -1;
    const ssize_t got = ::recv(socket_, buffer_, sizeof buffer_, 0);
    if (got <= 0) return got;
    at_ = 0;
    size_ = static_cast<std::size_t>(got);
  }
  const std::size_t count = std::min({size, size_ - at_, allowed_});
  if (count == 0) return -1;
  std::memcpy(out, buffer_ + at_, count);
  at_ += count;
  allowed_ -= count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* data, std::size_t size) {
  if (!is_writable()) return -1;
  return ::send(socket_, data, size, MSG_NOSIGNAL);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  address(socket_, &::getpeername, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  address(socket_, &::getsockname, ip, port);
}

void Connection::drain() {
  ::shutdown(socket_, SHUT_WR);
  const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
  while (Clock::now() < end && ready(socket_, POLLIN, 200)) {
    if (::recv(socket_, buffer_, sizeof buffer_, 0) <= 0) return;
  }
}

void HttpServer::allow_waiting(int connections) { ::listen(svr_sock_, connections); }

bool HttpServer::process_and_close_socket(int socket) {
  Connection connection(socket, svr_sock_);
  serving = &connection;
  for (int i = 0; i < kRequests && !connection.closes(); ++i) {
    // Between requests, so that stop() is not held up by clients that are idle.
    bool came = false;
    for (double waited = 0; !came && waited < kIdleSeconds; waited += 0.25) {
      came = connection.wait(0.25);
      if (connection.gone()) break;
    }
    if (!came) break;
    connection.begin(kHeaderSeconds);
    bool closed = false;
    // JSON sent by `curl -d` without a header says that it is a form.
    const auto take_as_json = [](httplib::Request& request) {
      if (request.get_header_value("Content-Type").starts_with("application/x-www-form")) {
        request.headers.erase("Content-Type");
        request.set_header("Content-Type", "application/json");
      }
    };
    if (!process_request(connection, i + 1 == kRequests, closed, take_as_json) || closed) break;
  }
  serving = nullptr;
  if (connection.closes()) connection.drain();
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return true;
}

}  // namespace ballast::serve
