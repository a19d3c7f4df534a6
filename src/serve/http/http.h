// HTTP: one thread has all connections, a few others answer what has come whole.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/stopwatch.h"
#include "serve/http/api_error.h"
#include "serve/http/memory.h"
#include "serve/http/usage.h"

struct MHD_Connection;

namespace ballast::serve {

class HttpServer;

/// A request, or its beginning.
struct Request {
  std::string method;  ///< in capitals; HEAD comes as GET, and gets no body
  std::string path;    ///< decoded, without a query
  std::string client;  ///< the address
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  Lease memory;  ///< of the body, then of an answer that is whole
  Lease share;   ///< of the body, in what all bodies may have
  std::optional<ApiError>
      refused;      ///< why it must not be answered otherwise; there is no body then
  Stopwatch since;  ///< its headers came

  /// The first header of that name in any case; nullptr: none.
  const std::string* find(std::string_view name) const;
  /// The same; empty: none.
  std::string header(std::string_view name) const;
};

/// The answer to a request: a whole one, or a stream that is sent as it is written.
class Response {
 public:
  int status = 200;
  Usage usage;

  void set_header(std::string name, std::string value);
  void set_content(std::string body, std::string type);
  /// Sends the headers; what is written follows, and the handler's end is the stream's.
  void begin(std::string type);
  bool begun() const;
  /// Never waits for the client. What it does not read for a while is dropped with the connection.
  void write(std::string_view text);
  /// Bytes written that the client has not taken: a handler should not write more and more.
  std::size_t unsent() const;
  /// There is no answer, or no end of the stream: the connection is closed.
  void abandon();

  /// The body so far.
  const std::string& body() const { return out_; }

  /// Whether the client has closed its side.
  bool gone() const;
  /// Whether the server stops.
  bool stopping() const;

 private:
  friend class HttpServer;
  /// Lets the thread of the connections go on with this one.
  void wake();

  const HttpServer* server_ = nullptr;  ///< null: the answer is not sent
  std::vector<std::pair<std::string, std::string>> headers_;
  mutable std::mutex mutex_;              ///< of all below
  MHD_Connection* connection_ = nullptr;  ///< until it is closed
  int socket_ = -1;
  bool suspended_ = false;
  bool begun_ = false, ended_ = false, abandoned_ = false;
  std::string out_;     ///< the body, or what is not sent yet of a stream
  std::size_t at_ = 0;  ///< bytes of out_ that were sent
};

struct HttpOptions {
  std::string host;
  int port = 0;                     ///< 0: any that is free
  std::size_t max_body = 32 << 20;  ///< bytes
  /// Bytes of all bodies that are not handled, so that there is memory to handle them.
  std::size_t bodies = static_cast<std::size_t>(-1);
  // Times that a client has.
  std::chrono::milliseconds idle{30000};     ///< for headers, since it has an answer or connected
  std::chrono::milliseconds body{20000};     ///< and a second for each MiB of max_body
  std::chrono::milliseconds reading{30000};  ///< for the next bytes of an answer
  std::size_t most_handlers = 64;            ///< requests that are answered at once; others wait
  /// Paths that are answered on a thread of their own, with what is refused: soon, whatever the
  /// others do.
  std::vector<std::string> at_once;
  /// Looks at a request without its body, on the thread of all connections. An error is put into
  /// `refused`, and the body is dropped.
  std::function<std::optional<ApiError>(const Request&)> admit;
  /// Answers a request, on one of several threads. Throws nothing.
  std::function<void(Request&, Response&)> handle;
};

/// A server of HTTP/1.1. Connections cost no thread, and a few KB while they are idle. Time is
/// limited for headers, bodies, and the reading of answers; bodies count in `memory` until they are
/// handled.
class HttpServer {
 public:
  /// Takes the port: connections wait for run(). Throws Error.
  HttpServer(HttpOptions options, Memory& memory);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  /// Serves until stop(); then waits for handlers, and a little for clients that still read.
  void run();
  /// May be called from any thread. Does not wait.
  void stop();
  bool stopping() const;

  struct Impl;

 private:
  friend class Response;
  /// Has run() look at connections that were resumed.
  void wake() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast::serve
