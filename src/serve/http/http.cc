#include "serve/http/http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <set>
#include <thread>

#include "base/fail.h"
#include "base/os/files.h"
#include "base/os/process.h"

namespace ballast::serve {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Connections at once; those of one address.
constexpr std::size_t kConnections = 4096, kOfAddress = 3072;
/// Bytes that a connection has for headers and for what goes through it.
constexpr std::size_t kConnectionBytes = 64 << 10;
/// Bytes of a body that add a second to its time.
constexpr std::size_t kBodyRate = 1 << 20;
/// Idle connections have a part of their time where they crowd.
constexpr int kCrowdPart = 16;
/// Time for clients to read the ends of their answers when the server stops.
constexpr Clock::duration kStopping = 2s;

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string address_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof text);
  }
  return text;
}

/// A socket that listens; -1: none can.
int listen_on(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* all = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &all) != 0) return -1;
  int out = -1;
  for (const addrinfo* one = all; one != nullptr && out == -1; one = one->ai_next) {
    const int yes = 1;
    out = ::socket(one->ai_family, one->ai_socktype, one->ai_protocol);
    if (out == -1) continue;
    make_nonblocking(out);
    // Not SO_REUSEPORT, which lets two servers share a port in silence.
    ::setsockopt(out, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(out, one->ai_addr, one->ai_addrlen) == 0 && ::listen(out, SOMAXCONN) == 0) continue;
    ::close(std::exchange(out, -1));
  }
  ::freeaddrinfo(all);
  return out;
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

/// Connections that this process may have, of kConnections.
std::size_t connections_allowed() {
  constexpr std::size_t kOthers = 64;  // files
  return std::min(kConnections, std::max<std::size_t>(raise_open_files(), 128) - kOthers);
}

bool has_epoll() { return ::MHD_is_feature_supported(MHD_FEATURE_EPOLL) == MHD_YES; }

/// Returns when a connection or `woken` has something to read, or after these milliseconds.
void wait_for(MHD_Daemon* daemon, int woken, int milliseconds) {
  if (has_epoll()) {
    const int events = ::MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    pollfd wanted[] = {{events, POLLIN, 0}, {woken, POLLIN, 0}};
    ::poll(wanted, 2, milliseconds);
    return;
  }
  fd_set in, out, broken;  // macOS
  FD_ZERO(&in);
  FD_ZERO(&out);
  FD_ZERO(&broken);
  int last = woken;
  ::MHD_get_fdset(daemon, &in, &out, &broken, &last);
  FD_SET(woken, &in);
  timeval time{0, milliseconds * 1000};
  ::select(std::max(last, woken) + 1, &in, &out, &broken, &time);
}

struct Exchange {
  Request request;
  Response response;
  std::size_t most = 0;  ///< bytes of the body
  bool handed = false;
};

/// For the thread of all connections alone.
struct Connection {
  int socket = -1;
  Clock::duration reading{};           ///< the time of HttpOptions
  std::shared_ptr<Exchange> exchange;  ///< from the headers on
  Clock::time_point since;             ///< what it does now
  Clock::duration allowed{};           ///< for that

  void now_does(Clock::duration most) {
    since = Clock::now();
    allowed = most;
  }
};

Connection& connection_of(MHD_Connection* of) {
  return *static_cast<Connection*>(
      ::MHD_get_connection_info(of, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context);
}

/// A request may name its server in its first line, which then counts (RFC 9112, 3.2.2).
void split_url(Request& request) {
  constexpr std::string_view kScheme = "http://";
  if (!same_name(std::string_view(request.path).substr(0, kScheme.size()), kScheme)) return;
  const std::size_t end = std::min(request.path.find('/', kScheme.size()), request.path.size());
  std::string host = request.path.substr(kScheme.size(), end - kScheme.size());
  if (host.find('@') != host.npos) return;  // a user's name could look like a host's
  request.path.erase(0, end);
  if (request.path.empty()) request.path = "/";
  for (auto& [name, value] : request.headers) {
    if (same_name(name, "Host")) value = host;
  }
}

/// What is wrong with a request before it says what it wants. Whoever stands between may read
/// doubtful lengths another way, and take a part of this request for the next one.
std::optional<ApiError> wrong_headers(const Request& request, std::string_view version) {
  int lengths = 0, encodings = 0, hosts = 0;
  bool wrong = false;
  for (const auto& [name, value] : request.headers) {
    if (same_name(name, "Content-Length")) {
      ++lengths;
      wrong |= value.empty() || value.find_first_not_of("0123456789") != std::string::npos;
    } else if (same_name(name, "Transfer-Encoding")) {
      ++encodings;
      wrong |= !same_name(value, "chunked");
    } else if (same_name(name, "Host")) {
      ++hosts;
    }
  }
  if (wrong || lengths + encodings > 1) {
    return ApiError(400, "invalid_request",
                    "the request must state its length once: as Content-Length, a number, or as "
                    "Transfer-Encoding, chunked");
  }
  if (hosts > 1 || (hosts == 0 && version == "HTTP/1.1")) {
    return ApiError(400, "invalid_request", "the request must have one header Host");
  }
  return std::nullopt;
}

}  // namespace

const std::string* Request::find(std::string_view name) const {
  for (const auto& [one, value] : headers) {
    if (same_name(one, name)) return &value;
  }
  return nullptr;
}

std::string Request::header(std::string_view name) const {
  const std::string* value = find(name);
  return value == nullptr ? "" : *value;
}

void Response::set_header(std::string name, std::string value) {
  headers_.emplace_back(std::move(name), std::move(value));
}

void Response::set_content(std::string body, std::string type) {
  set_header("Content-Type", std::move(type));
  const std::scoped_lock lock(mutex_);
  out_ = std::move(body);
}

void Response::begin(std::string type) {
  set_header("Content-Type", std::move(type));
  const std::scoped_lock lock(mutex_);
  begun_ = true;
  wake();
}

bool Response::begun() const {
  const std::scoped_lock lock(mutex_);
  return begun_;
}

void Response::write(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  if (connection_ == nullptr) return;
  if (at_ > out_.size() / 2) {  // what was sent goes
    out_.erase(0, at_);
    at_ = 0;
  }
  out_ += text;
  wake();
}

std::size_t Response::unsent() const {
  const std::scoped_lock lock(mutex_);
  return out_.size() - at_;
}

void Response::abandon() {
  const std::scoped_lock lock(mutex_);
  abandoned_ = true;
}

bool Response::gone() const {
  const std::scoped_lock lock(mutex_);
  if (server_ == nullptr) return false;
  if (connection_ == nullptr) return true;
  pollfd wanted{socket_, POLLRDHUP, 0};
  return ::poll(&wanted, 1, 0) > 0 &&
         (wanted.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

bool Response::stopping() const { return server_ != nullptr && server_->stopping(); }

void Response::wake() {
  if (!std::exchange(suspended_, false) || connection_ == nullptr) return;
  ::MHD_resume_connection(connection_);
  server_->wake();
}

struct HttpServer::Impl {
  Impl(HttpServer& server, HttpOptions options, Memory& memory)
      : server(server), o(std::move(options)), memory(memory), bodies(o.bodies) {
    o.max_body = std::min(o.max_body, o.bodies);
  }

  // What the library calls.
  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* path,
                               const char* method, const char* version, const char* data,
                               std::size_t* size, void**) {
    return static_cast<Impl*>(self)->take(connection, path, method, version, data, size);
  }
  static void on_connection(void* self, MHD_Connection* connection, void** context,
                            MHD_ConnectionNotificationCode code);
  static void on_completed(void* self, MHD_Connection* connection, void**,
                           MHD_RequestTerminationCode);
  static ssize_t on_read(void* connection, std::uint64_t, char* out, std::size_t most);

  MHD_Result take(MHD_Connection* of, const char* path, const char* method, const char* version,
                  const char* data, std::size_t* size);
  void begin(Connection& connection, MHD_Connection* of, const char* path, const char* method,
             const char* version);
  ApiError too_large() const {
    return {413, "request_too_large", fmt::format("the body is larger than {} bytes", o.max_body)};
  }
  void take_body(Exchange& exchange, std::string_view piece);
  /// Suspends the connection until a handler has something to send.
  void hand_over(Connection& connection, MHD_Connection* of);
  MHD_Result answer(Connection& connection, MHD_Connection* of);
  /// Closes the connections whose time is over.
  void sweep();

  /// Threads that answer requests in the order in which they came.
  struct Handlers {
    std::deque<std::shared_ptr<Exchange>> queue;
    std::size_t most = 1, idle = 0;
    std::vector<std::thread> threads;
    std::condition_variable changed;
  };
  void work(Handlers& handlers);

  HttpServer& server;
  HttpOptions o;
  Memory& memory;
  Memory bodies;
  Descriptor listener;
  Wakeup woken;  ///< run() has something to do
  std::atomic<bool> stopping = false;
  std::size_t most_connections = 0;
  std::set<Connection*> connections;
  std::size_t exchanges = 0;  ///< requests that have come and are not answered

  std::mutex mutex;  ///< of all below
  Handlers many, at_once;
  bool over = false;
};

void HttpServer::Impl::on_connection(void* self, MHD_Connection* connection, void** context,
                                     MHD_ConnectionNotificationCode code) {
  auto& impl = *static_cast<Impl*>(self);
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    auto* one = new Connection;
    one->socket =
        ::MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    one->reading = impl.o.reading;
    one->now_does(impl.o.idle);
    *context = one;
    impl.connections.insert(one);
  } else {
    auto* one = static_cast<Connection*>(*context);
    impl.connections.erase(one);
    delete one;
  }
}

void HttpServer::Impl::on_completed(void* self, MHD_Connection* of, void**,
                                    MHD_RequestTerminationCode) {
  Connection& connection = connection_of(of);
  if (connection.exchange == nullptr) return;
  auto& impl = *static_cast<Impl*>(self);
  --impl.exchanges;
  Response& response = connection.exchange->response;
  {
    const std::scoped_lock lock(response.mutex_);
    response.connection_ = nullptr;
    response.out_ = {};
    response.at_ = 0;
  }
  connection.exchange = nullptr;
  connection.now_does(impl.o.idle);
}

ssize_t HttpServer::Impl::on_read(void* context, std::uint64_t, char* out, std::size_t most) {
  auto& connection = *static_cast<Connection*>(context);
  Response& response = connection.exchange->response;
  const std::scoped_lock lock(response.mutex_);
  const std::size_t count = std::min(most, response.out_.size() - response.at_);
  if (count > 0) {
    std::memcpy(out, response.out_.data() + response.at_, count);
    response.at_ += count;
    if (response.at_ == response.out_.size()) {
      response.out_.clear();
      response.at_ = 0;
    }
    connection.now_does(connection.reading);
    return static_cast<ssize_t>(count);
  }
  if (response.abandoned_) return MHD_CONTENT_READER_END_WITH_ERROR;
  if (response.ended_) return MHD_CONTENT_READER_END_OF_STREAM;
  response.suspended_ = true;
  connection.now_does(Clock::duration::max());
  ::MHD_suspend_connection(response.connection_);
  return 0;
}

MHD_Result HttpServer::Impl::take(MHD_Connection* of, const char* path, const char* method,
                                  const char* version, const char* data, std::size_t* size) {
  Connection& connection = connection_of(of);
  try {
    if (connection.exchange == nullptr) {
      begin(connection, of, path, method, version);
    } else if (*size > 0) {
      take_body(*connection.exchange, {data, std::exchange(*size, 0)});
    } else if (!connection.exchange->handed) {
      hand_over(connection, of);
    } else {
      return answer(connection, of);
    }
    return MHD_YES;
  } catch (const std::exception&) {  // no memory, no thread
    return MHD_NO;
  }
}

void HttpServer::Impl::begin(Connection& connection, MHD_Connection* of, const char* path,
                             const char* method, const char* version) {
  connection.exchange = std::make_shared<Exchange>();
  ++exchanges;
  connection.now_does(o.body + std::chrono::seconds(o.max_body / kBodyRate));
  Request& request = connection.exchange->request;
  Response& response = connection.exchange->response;
  response.server_ = &server;
  response.connection_ = of;
  response.socket_ = connection.socket;
  request.method = std::string_view(method) == "HEAD" ? "GET" : method;
  request.path = path;
  request.client =
      address_of(::MHD_get_connection_info(of, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
  ::MHD_get_connection_values(
      of, MHD_HEADER_KIND,
      [](void* headers, MHD_ValueKind, const char* name, const char* value) {
        static_cast<decltype(request.headers)*>(headers)->emplace_back(
            name, value == nullptr ? "" : value);
        return MHD_YES;
      },
      &request.headers);
  const auto wrong = wrong_headers(request, version);
  split_url(request);
  request.refused = wrong ? wrong : o.admit(request);
  const std::string length = request.header("Content-Length");
  std::uint64_t stated = o.max_body;  // the library refuses numbers of more than 64 bits
  if (!wrong && !length.empty()) {
    std::from_chars(length.data(), length.data() + length.size(), stated);
    if (stated > o.max_body && !request.refused) request.refused = too_large();
  }
  connection.exchange->most = std::min<std::size_t>(stated, o.max_body);
  if (wrong) response.set_header("Connection", "close");
  // The other bodies that are refused are read, so that the answer does not cross them; one that
  // waits for a word is not sent.
  if (wrong || (request.refused && request.find("Expect") != nullptr)) hand_over(connection, of);
}

void HttpServer::Impl::take_body(Exchange& exchange, std::string_view piece) {
  Request& request = exchange.request;
  if (request.refused) return;
  const std::size_t size = request.body.size() + piece.size();
  if (size > o.max_body) {
    request.refused = too_large();
  } else if (size > request.body.capacity()) {
    const std::size_t room = std::min(std::max(2 * request.body.capacity(), size), exchange.most);
    const bool may = bodies.take(room, request.share);
    if (may && memory.take(room, request.memory)) {
      request.body.reserve(room);
    } else {
      if (may) memory.want(room);
      request.refused =
          ApiError(503, "insufficient_memory", "no memory is free for the body; try again later");
    }
  }
  if (request.refused) {
    request.body = {};
    request.memory.shrink(0);
    request.share.shrink(0);
  } else {
    request.body += piece;
  }
}

void HttpServer::Impl::hand_over(Connection& connection, MHD_Connection* of) {
  Exchange& exchange = *connection.exchange;
  const bool soon =
      exchange.request.refused || std::ranges::count(o.at_once, exchange.request.path) > 0;
  Handlers& handlers = soon ? at_once : many;
  const std::scoped_lock lock(mutex);
  if (handlers.idle <= handlers.queue.size() && handlers.threads.size() < handlers.most) {
    try {
      handlers.threads.emplace_back([this, &handlers] { work(handlers); });
    } catch (const std::system_error&) {  // those that there are must do
      if (handlers.threads.empty()) throw;
    }
  }
  handlers.queue.push_back(connection.exchange);
  exchange.handed = true;
  connection.now_does(Clock::duration::max());
  exchange.response.suspended_ = true;
  ::MHD_suspend_connection(of);
  handlers.changed.notify_one();
}

MHD_Result HttpServer::Impl::answer(Connection& connection, MHD_Connection* of) {
  Response& response = connection.exchange->response;
  std::uint64_t size = MHD_SIZE_UNKNOWN;
  {
    const std::scoped_lock lock(response.mutex_);
    if (response.abandoned_) return MHD_NO;
    if (!response.begun_) size = response.out_.size();
  }
  connection.now_does(connection.reading);
  MHD_Response* made =
      ::MHD_create_response_from_callback(size, 32 << 10, on_read, &connection, nullptr);
  if (made == nullptr) return MHD_NO;
  for (const auto& [name, value] : response.headers_) {
    ::MHD_add_response_header(made, name.c_str(), value.c_str());
  }
  const MHD_Result queued = ::MHD_queue_response(of, static_cast<unsigned>(response.status), made);
  ::MHD_destroy_response(made);
  return queued;
}

void HttpServer::Impl::sweep() {
  const Clock::time_point now = Clock::now();
  const bool crowd = connections.size() > most_connections / 2;
  for (Connection* one : connections) {
    const bool waits = one->exchange == nullptr;
    if (now - one->since > (waits && crowd ? one->allowed / kCrowdPart : one->allowed)) {
      ::shutdown(one->socket, SHUT_RDWR);  // which the library notices
    }
  }
}

void HttpServer::Impl::work(Handlers& handlers) {
  std::unique_lock lock(mutex);
  while (true) {
    ++handlers.idle;
    handlers.changed.wait(lock, [&] { return over || !handlers.queue.empty(); });
    --handlers.idle;
    if (handlers.queue.empty()) return;
    const std::shared_ptr<Exchange> exchange = std::move(handlers.queue.front());
    handlers.queue.pop_front();
    lock.unlock();
    Request& request = exchange->request;
    Response& response = exchange->response;
    o.handle(request, response);
    request.body = {};
    request.share.shrink(0);
    {
      const std::scoped_lock own(response.mutex_);
      request.memory.shrink(response.begun_ ? 0 : response.out_.size());
      response.ended_ = true;
      response.wake();
    }
    lock.lock();
  }
}

HttpServer::HttpServer(HttpOptions options, Memory& memory)
    : impl_(std::make_unique<Impl>(*this, std::move(options), memory)) {
  impl_->listener = Descriptor(listen_on(impl_->o.host, impl_->o.port));
  require(impl_->listener.number() != -1, ErrorCode::io,
          "cannot listen on {} port {}: the port is taken or the address is not of this machine; "
          "choose others with --port and --host",
          impl_->o.host, impl_->o.port);
  impl_->o.port = port_of(impl_->listener.number());
  impl_->most_connections = connections_allowed();
  impl_->many.most = impl_->o.most_handlers;
}

HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->o.port; }
bool HttpServer::stopping() const { return impl_->stopping; }

void HttpServer::stop() {
  impl_->stopping = true;
  wake();
}

void HttpServer::wake() const { impl_->woken.wake(); }

void HttpServer::run() {
  if (impl_->stopping) return;
  const auto most = static_cast<unsigned>(impl_->most_connections);
  MHD_Daemon* daemon = ::MHD_start_daemon(
      (has_epoll() ? MHD_USE_EPOLL : MHD_NO_FLAG) | MHD_ALLOW_SUSPEND_RESUME, 0, nullptr, nullptr,
      Impl::on_request, impl_.get(), MHD_OPTION_LISTEN_SOCKET, impl_->listener.number(),
      MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
      static_cast<unsigned>(std::min<std::size_t>(most, kOfAddress)),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, MHD_OPTION_NOTIFY_CONNECTION,
      Impl::on_connection, impl_.get(), MHD_OPTION_NOTIFY_COMPLETED, Impl::on_completed,
      impl_.get(), MHD_OPTION_END);
  require(daemon != nullptr, ErrorCode::io, "cannot serve on port {}", impl_->o.port);
  Clock::time_point swept = Clock::now();
  const auto serve = [&] {
    MHD_UNSIGNED_LONG_LONG most = 100;  // milliseconds
    if (::MHD_get_timeout(daemon, &most) != MHD_YES) most = 100;
    wait_for(daemon, impl_->woken.descriptor(),
             static_cast<int>(std::min<MHD_UNSIGNED_LONG_LONG>(most, 100)));
    impl_->woken.clear();
    const bool works = ::MHD_run(daemon) == MHD_YES;
    if (Clock::now() - swept > 100ms) {
      impl_->sweep();
      swept = Clock::now();
    }
    return works;
  };
  bool works = true;
  while (works && !impl_->stopping) works = serve();
  impl_->stopping = true;
  ::MHD_quiesce_daemon(daemon);
  const Clock::time_point end = Clock::now() + kStopping;
  while (works && impl_->exchanges > 0 && Clock::now() < end) works = serve();
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->over = true;
  }
  for (Impl::Handlers* handlers : {&impl_->many, &impl_->at_once}) {
    handlers->changed.notify_all();
    for (std::thread& thread : handlers->threads) thread.join();
  }
  ::MHD_stop_daemon(daemon);
}

}  // namespace ballast::serve
