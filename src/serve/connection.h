// A connection with bounds on what a client may cost, and with a look at whether it is still there.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "base/stopwatch.h"
#include "serve/usage.h"

namespace ballast::serve {

/// A socket that is read within a time and a number of bytes for each request.
class Connection : public httplib::Stream {
 public:
  /// `server_socket`: -1 once the server stops.
  Connection(int socket, const std::atomic<int>& server_socket)
      : socket_(socket), server_socket_(server_socket) {}

  /// The connection that this thread serves; nullptr outside requests.
  static Connection* current();

  /// Begins a request: its line and headers must come within `seconds` and 256 KiB.
  void begin(double seconds);
  /// Allows for the request's body.
  void expect(double seconds, std::size_t bytes);
  /// Waits for the first byte of a request. False: the client ended, or the time is over.
  bool wait(double seconds);
  /// Whether the client has closed its side, or the server stops.
  bool gone() const;
  /// Reads and drops what the client still sends, for a second at most: closing earlier could take
  /// the answer away from it.
  void drain();
  /// The connection ends after this request.
  void close_after() { close_ = true; }
  bool closes() const { return close_; }

  /// Of the request that is being answered.
  Stopwatch since_request;
  Usage usage;

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* out, std::size_t size) override;
  ssize_t write(const char* data, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  int socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  int socket_;
  const std::atomic<int>& server_socket_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::size_t allowed_ = 0;
  char buffer_[16384];
  std::size_t at_ = 0, size_ = 0;
  bool close_ = false;
};

/// httplib's server on such connections.
class HttpServer : public httplib::Server {
 public:
  /// Lets so many connections wait to be taken in; httplib allows five. After the port is bound.
  void allow_waiting(int connections);

 private:
  bool process_and_close_socket(int socket) override;
};

}  // namespace ballast::serve
