// ballast serve: a model behind OpenAI's API.
#include "cli/serve.h"

#include <fmt/format.h>
#include <semaphore.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>

#include "base/fail.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_options.h"
#include "report/units.h"
#include "serve/server.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  CacheFlags cache;
  serve::ServerOptions server;
  std::string memory;
  std::string max_body = "32M";
  std::string key_file;
  std::string cache_dir;
  bool quiet = false;
};

/// SIGTERM and SIGINT stop the server, so that answers under way end as such; the second signal
/// ends the process.
class StopSignals {
 public:
  explicit StopSignals(serve::Server& server) {
    ::sem_init(&came_, 0, 0);
    thread_ = std::thread([this, &server] {
      while (::sem_wait(&came_) != 0) {
      }
      if (!over_) server.stop();
    });
    struct sigaction action {};
    action.sa_handler = [](int) { ::sem_post(&came_); };
    action.sa_flags = SA_RESETHAND;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      // The parent process may have ignored it.
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~StopSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &before_[i], nullptr);
    over_ = true;
    ::sem_post(&came_);
    thread_.join();
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  static constexpr std::array kSignals = {SIGTERM, SIGINT};
  static inline sem_t came_;
  std::array<struct sigaction, 2> before_{};
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

void run(const Options& o) {
  serve::ServerOptions options = o.server;
  options.cache = o.cache.parse();
  if (!o.memory.empty()) options.memory = parse_bytes(o.memory, "--memory");
  options.max_body = parse_bytes(o.max_body, "--max-body");
  options.cache_dir = o.cache_dir;
  if (!o.key_file.empty()) {
    std::string key;
    for (char c : read_file(o.key_file, {.most = 1 << 20}) + "\n") {
      if (c != '\n' && c != '\r') {
        key += c;
      } else if (!key.empty()) {
        options.keys.push_back(std::exchange(key, ""));
      }
    }
    require(!options.keys.empty(), "--api-key-file {}: the file has no key; give one a line",
            o.key_file);
  }
  const LoadedModel m(o.model);
  o.cache.choose(options.cache, m.model, o.quiet);
  serve::Server server(m.model, m.tokenizer, options);
  for (const std::string& line : server.refused()) {
    tell(fmt::format("note: a context is left out: {}", line));
  }
  const bool v6 = options.host.find(':') != std::string::npos;
  print(fmt::format("ballast: {} at http://{}{}{}:{}\n", server.name(), v6 ? "[" : "", options.host,
                    v6 ? "]" : "", server.port()));
  if (!o.quiet) {
    print(fmt::format("ballast: {} of memory, {} answers at once, {} contexts\n",
                      format_bytes(static_cast<double>(server.memory())), options.slots,
                      server.contexts()));
  }
  flush_output();
  const StopSignals signals(server);
  server.run();
}

}  // namespace

void add_serve(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  serve::ServerOptions& s = o.server;
  CLI::App* app = parent.add_subcommand(
      "serve", "Answer many clients at once, behind OpenAI's API, with contexts read once");
  add_model_option(*app, o.model);
  auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return app->add_option(name, value, help)->type_name(type)->group("Server");
  };
  add("--host", s.host, "Address to listen on", "ADDRESS")->capture_default_str();
  add("--port", s.port, "Port to listen on; 0: any that is free", "N")
      ->capture_default_str()
      ->transform(whole_number(0, 65535));
  add("--name", s.name, "The model's name for clients; that of its file if not given", "NAME");
  add("--slots", s.slots, "Answers made at once", "N")
      ->capture_default_str()
      ->transform(whole_number(1, 1024));
  add("--queue", s.queue, "Requests that may wait; more are refused with status 429", "N")
      ->capture_default_str()
      ->transform(whole_number(1, 4096));
  add("--memory", o.memory,
      "Memory of weights, caches and contexts together: 8G; nine tenths of what is free if not "
      "given",
      "SIZE");
  add("--max-body", o.max_body, "Size of a request", "SIZE")->capture_default_str();
  add("--max-tokens", s.max_tokens, "Tokens of an answer, where the request does not say", "N")
      ->capture_default_str()
      ->transform(whole_number(1, 1 << 30));
  add("--cache-dir", o.cache_dir, "Keep contexts in this folder, for the next start too", "FOLDER");
  add("--api-key", s.keys, "Clients must give this key; may be repeated", "KEY")
      ->allow_extra_args(false);
  add("--api-key-file", o.key_file, "Keys, one a line", "FILE");
  add("--cors-origin", s.origins,
      "Pages of this origin may call, such as https://chat.example; *: all pages", "ORIGIN")
      ->allow_extra_args(false);
  o.cache.add_to(*app);
  app->add_flag("-q,--quiet", o.quiet, "Print the address only");
  app->footer(
      "Example:\n  ballast serve -m model.gguf --cache 1/8 --cache-dir contexts\n  curl "
      "localhost:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"Hello\"}]}'");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
