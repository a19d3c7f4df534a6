// The server: HTTP on one side, the scheduler on the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"
#include "ballast/engine/vision.h"
#include "ballast/pack.h"
#include "serve/http/usage.h"

namespace ballast::serve {

/// A request that was answered, for a log.
struct RequestRecord {
  double seconds = 0;  ///< from its headers until its answer was made
  std::string client;  ///< the address
  std::string method, path;
  int status = 0;
  Usage usage;  ///< no tokens: the model was not asked
};

struct ServerOptions {
  static constexpr int kNoPort = -1;  ///< for answer() alone

  std::string host = "127.0.0.1";
  int port = 8080;                   ///< 0: any that is free
  std::string name;                  ///< of the model, for clients; empty: of its file
  std::size_t slots = 16;            ///< answers at once
  std::size_t queue = 256;           ///< requests that wait
  std::size_t memory = 0;            ///< bytes; 0: most of what is available
  std::size_t max_body = 32 << 20;   ///< bytes of a request
  std::size_t max_tokens = 2048;     ///< of an answer, unless the request says
  double patience = 0.2;             ///< seconds of a replay pass at a time
  std::vector<std::string> keys;     ///< any of these is needed; empty: none
  std::vector<std::string> origins;  ///< of pages that may call; "*": any
  std::filesystem::path cache_dir;   ///< where contexts and beginnings stay; empty: nowhere
  /// Bytes of beginnings there, and of contexts; 0: no beginnings, any contexts.
  std::size_t cache_dir_max = std::size_t{8} << 30;
  PackPreset pack;                            ///< how exact caches lie there; step 0: bit-exact
  std::filesystem::path library;              ///< documents that requests may ask; empty: none
  CacheOptions cache;                         ///< unless the request says
  std::shared_ptr<const VisionModel> vision;  ///< null: pictures are refused
  /// Called from any thread for each request that was answered, but for those of /health and
  /// /metrics that found it well; may be empty.
  std::function<void(const RequestRecord&)> log;
};

/// A running server. The model and the tokenizer must outlive it.
class Server {
 public:
  /// Where `memory` bytes (0: any) hold no whole model, half of them are for its weights: see
  /// Model::limit_weights().
  static void fit_weights(Model& model, std::size_t memory, std::size_t slots);

  /// Binds the port. Throws Error if that fails, or if --memory does not hold the model.
  Server(const Model& model, const Tokenizer& tokenizer, const ServerOptions& options);
  ~Server();

  int port() const;
  const std::string& name() const;
  std::size_t memory() const;
  std::size_t contexts() const;
  /// A line for each context and document of the library that is on disk and cannot be used.
  const std::vector<std::string>& refused() const;
  /// Serves until stop().
  void run();

  struct Answer {
    int status = 0;
    std::string body;
    Usage usage;
  };
  /// The answer to a POST of `body`, as a client gets it that asks for no stream. May be called
  /// from many threads at once.
  Answer answer(const std::string& path, std::string body);
  /// May be called from any thread.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast::serve
