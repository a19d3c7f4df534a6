// A server in this process, and clients of it.
#pragma once

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "ballast/engine/model.h"
#include "paths.h"
#include "serve/server.h"

namespace ballast::test {

using Json = nlohmann::json;

inline const std::string kMini = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";

using Headers = std::multimap<std::string, std::string>;  // names of replies in small letters

struct Reply {
  int status = 0;  ///< 0: none
  std::string body;
  Headers headers;
  Json json() const { return Json::parse(body); }
  std::string code() const { return json()["error"]["code"]; }
};

/// Sends one request on a connection of its own.
inline Reply send(int port, const std::string& method, const std::string& path,
                  const std::string& body = "", const Headers& headers = {}) {
  Reply reply;
  const std::unique_ptr<CURL, void (*)(CURL*)> owner(::curl_easy_init(), ::curl_easy_cleanup);
  CURL* curl = owner.get();
  const std::string url = fmt::format("http://127.0.0.1:{}{}", port, path);
  curl_slist* lines = ::curl_slist_append(nullptr, "Expect:");
  if (!body.empty() && !headers.contains("Content-Type"))
    lines = ::curl_slist_append(lines, "Content-Type: application/json");
  for (const auto& [name, value] : headers)
    lines = ::curl_slist_append(lines, (name + ": " + value).c_str());
  ::curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl, CURLOPT_TIMEOUT, 300L);
  ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, lines);
  if (method == "POST") {
    ::curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    ::curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
  } else {
    ::curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method.c_str());
  }
  using Take = std::size_t (*)(char*, std::size_t, std::size_t, void*);
  const Take on_header = [](char* data, std::size_t, std::size_t size, void* out) {
    const std::string line(data, size);
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) return size;
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    static_cast<Reply*>(out)->headers.emplace(name, line.substr(colon + 2, size - colon - 4));
    return size;
  };
  const Take on_body = [](char* data, std::size_t, std::size_t size, void* out) {
    static_cast<Reply*>(out)->body.append(data, size);
    return size;
  };
  ::curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  ::curl_easy_setopt(curl, CURLOPT_HEADERDATA, &reply);
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply);
  long status = 0;
  if (::curl_easy_perform(curl) == CURLE_OK)
    ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  reply.status = static_cast<int>(status);
  ::curl_slist_free_all(lines);
  return reply;
}

/// The data of a stream's events.
inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const std::size_t end = body.find("\n\n", at);
    out.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return out;
}

/// A plain connection, to send what no client library would.
class Raw {
 public:
  explicit Raw(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const timeval patience{20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~Raw() { ::close(socket_); }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;

  bool connected() const { return connected_; }
  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void end() const { ::shutdown(socket_, SHUT_WR); }
  /// Whether the server ends the connection within 20 s, and sends nothing before.
  bool ended() const {
    char byte = 0;
    return ::recv(socket_, &byte, 1, 0) == 0;
  }
  /// What comes up to `until`, or to the end.
  std::string read(std::string_view until = "") const {
    std::string out;
    char buffer[4096];
    while (until.empty() || out.find(until) == std::string::npos) {
      const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      out.append(buffer, static_cast<std::size_t>(got));
    }
    return out;
  }

 private:
  int socket_;
  bool connected_ = false;
};

inline std::string post_text(const std::string& path, const std::string& body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", path,
                     body.size(), body);
}

/// A running server with the shipped model.
class TestServer {
 public:
  explicit TestServer(serve::ServerOptions options = {}) : TestServer(mini(), std::move(options)) {}
  TestServer(const Model& model, serve::ServerOptions options)
      : TestServer(model, std::move(options), Tokenizer(read_vocabulary(*model.file().gguf()))) {}
  TestServer(const Model& model, serve::ServerOptions options, Tokenizer tokenizer)
      : tokenizer_(std::move(tokenizer)) {
    options.port = 0;
    options.cache.key_type = options.cache.value_type = StorageType::bf16;  // as the program
    if (options.memory == 0) options.memory = std::size_t{1} << 30;
    server_.emplace(model, tokenizer_, options);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~TestServer() {
    server_->stop();
    thread_.join();
  }

  static const Model& mini() {
    static const Model model(kMini);
    return model;
  }
  int port() const { return server_->port(); }
  const serve::Server& server() const { return *server_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

  Reply get(const std::string& path, const Headers& headers = {}) const {
    return send(port(), "GET", path, "", headers);
  }
  Reply post(const std::string& path, const Json& body, const Headers& headers = {}) const {
    return send(port(), "POST", path, body.dump(), headers);
  }
  /// The value of a metric.
  double metric(const std::string& name) const {
    const std::string all = get("/metrics").body;
    const std::size_t at = all.find("\nballast_" + name + " ");
    return at == std::string::npos ? -1 : std::stod(all.substr(at + name.size() + 10));
  }

 private:
  Tokenizer tokenizer_;
  std::optional<serve::Server> server_;
  std::thread thread_;
};

}  // namespace ballast::test
