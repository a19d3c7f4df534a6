// ballast serve: a model behind OpenAI's API.
#include "cli/serve.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <ctime>
#include <deque>
#include <thread>

#include "ballast/engine/packing.h"
#include "base/fail.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "base/printable.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_options.h"
#include "cli/pictures.h"
#include "report/json.h"
#include "report/units.h"
#include "serve/server.h"
#include "serve/texts/contexts.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  CacheFlags cache;
  serve::ServerOptions server;
  std::string mmproj;
  std::string memory;
  std::string max_body = "32M";
  std::string key_file;
  std::string cache_dir;
  std::string pack;
  std::string cache_dir_max = "8G";
  std::string library;
  std::string log;
  bool check = false;
  bool quiet = false;
};

/// Writes a line about a request to standard error.
void log_request(const serve::RequestRecord& r, const std::string& model, bool json) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char time[32];
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &parts);
  const serve::Usage& u = r.usage;
  const double making = u.seconds - u.first_seconds;
  const double rate = making > 0 ? static_cast<double>(u.made) / making : 0;
  std::string line;
  if (json) {
    Json out = {{"time", time},
                {"client", r.client},
                {"method", r.method},
                {"path", printable(r.path)},
                {"status", r.status},
                {"seconds", r.seconds},
                {"model", model},
                {"prompt_tokens", u.prompt},
                {"cached_tokens", u.cached},
                {"generated_tokens", u.made}};
    if (u.made > 0) {
      out["first_token_ms"] = u.first_seconds * 1e3;
      out["tokens_per_second"] = rate;
    }
    line = out.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else {
    line = fmt::format("{} {} {} {} {} {:.3f} s", time, r.client, printable(r.method),
                       printable(r.path), r.status, r.seconds);
    if (u.prompt > 0)
      line += fmt::format(", {} tokens read, {} cached", u.prompt - u.cached, u.cached);
    if (u.made > 0) {
      line += fmt::format(", {} made, first after {:.0f} ms, {:.1f} a second", u.made,
                          u.first_seconds * 1e3, rate);
    }
  }
  std::fprintf(stderr, "%s\n", line.c_str());
}

/// SIGTERM and SIGINT stop the server, so that answers under way end as such; the second signal
/// ends the process.
class StopSignals {
 public:
  explicit StopSignals(serve::Server& server) {
    came_.emplace();
    thread_ = std::thread([this, &server] {
      came_->wait();
      if (!over_) server.stop();
    });
    for (int signal : {SIGTERM, SIGINT})
      handlers_.emplace_back(
          signal, [](int) { came_->wake(); }, true);
  }
  ~StopSignals() {
    handlers_.clear();
    over_ = true;
    came_->wake();
    thread_.join();
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  static inline std::optional<Wakeup> came_;
  std::deque<SignalHandler> handlers_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

/// Keys of a file, one a line.
std::vector<std::string> keys_of(const std::string& file) {
  std::vector<std::string> out;
  std::string key;
  for (char c : as_utf8(read_file(file, {.most = 1 << 20}), file) + "\n") {
    if (c != '\n' && c != '\r') {
      key += c;
    } else if (!key.empty()) {
      out.push_back(std::exchange(key, ""));
    }
  }
  return out;
}

/// What does not depend on the model.
serve::ServerOptions options_of(const Options& o) {
  serve::ServerOptions options = o.server;
  options.cache = o.cache.parse();
  if (!o.memory.empty()) options.memory = parse_bytes(o.memory, "--memory");
  options.max_body = parse_bytes(o.max_body, "--max-body");
  options.cache_dir = o.cache_dir;
  options.cache_dir_max =
      o.cache_dir_max == "0" ? 0 : parse_bytes(o.cache_dir_max, "--cache-dir-max");
  require(o.library.empty() || std::filesystem::is_directory(o.library),
          "--library {}: no such folder; ballast library add --library {} FILE makes it", o.library,
          o.library);
  options.library = o.library;
  if (!o.key_file.empty()) {
    const std::vector<std::string> keys = keys_of(o.key_file);
    options.keys.insert(options.keys.end(), keys.begin(), keys.end());
    require(!options.keys.empty(), "--api-key-file {}: the file has no key; give one a line",
            o.key_file);
  }
  return options;
}

/// Says where the server is, and who may ask it.
void greet(const Options& o, const serve::ServerOptions& options, const serve::Server& server) {
  const bool own =
      options.host == "localhost" || options.host == "::1" || options.host.starts_with("127.");
  if (!own && options.keys.empty()) {
    tell(
        "note: any machine that reaches this one may ask and read what others have sent; "
        "--api-key-file FILE asks clients for a key");
  }
  const bool v6 = options.host.find(':') != std::string::npos;
  print(fmt::format("ballast: {} at http://{}{}{}:{}\n", server.name(), v6 ? "[" : "", options.host,
                    v6 ? "]" : "", server.port()));
  if (!o.quiet) {
    print(fmt::format("ballast: {} of memory, {} answers at once, {} contexts\n",
                      format_bytes(static_cast<double>(server.memory())), options.slots,
                      server.contexts()));
  }
  if (!o.quiet && !o.cache_dir.empty() && serve::packs(options.pack, options.cache)) {
    print(
        fmt::format("ballast: in {} caches lie packed to about 1/{}; --pack off keeps every bit\n",
                    o.cache_dir, options.pack.divisor));
  }
  flush_output();
}

void run(const Options& o) {
  ::umask(077);  // what clients have read is for nobody else of this machine
  serve::ServerOptions options = options_of(o);
  TextModel m(o.model);
  serve::Server::fit_weights(m.model, options.memory, options.slots);
  std::string name = options.name;
  const std::string log = !o.log.empty() ? o.log : o.quiet ? "off" : "text";
  if (log != "off") {
    options.log = [&name, json = log == "json"](const serve::RequestRecord& record) {
      log_request(record, name, json);
    };
  }
  o.cache.choose(options.cache, m.model);
  if (o.pack != "off") {
    options.pack = o.pack.empty() ? default_pack_preset(m.model) : pack_preset(m.model, o.pack);
  }
  if (!o.mmproj.empty() || VisionModel::is_in(m.model)) {
    options.vision = std::make_shared<VisionModel>(m.model, m.tokenizer, o.mmproj);
  }
  serve::Server server(m.model, m.tokenizer, options);
  name = server.name();
  for (const std::string& line : server.refused()) {
    tell(fmt::format("note: a context is left out: {}", line));
  }
  greet(o, options, server);
  if (o.check) return;
  const StopSignals signals(server);
  server.run();
}

void add_server_options(CLI::App& app, Options& o) {
  serve::ServerOptions& s = o.server;
  auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return app.add_option(name, value, help)->type_name(type)->group("Server");
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
      "Memory of weights, caches and contexts together: 8G; a larger model is read from disk as "
      "it runs; nine tenths of what is free if not "
      "given",
      "SIZE");
  add("--max-body", o.max_body, "Size of a request", "SIZE")->capture_default_str();
  add("--max-tokens", s.max_tokens, "Tokens of an answer, where the request does not say", "N")
      ->capture_default_str()
      ->transform(whole_number(1, 1 << 30));
  add("--cache-dir", o.cache_dir,
      "Keep contexts and beginnings of conversations in this folder, for the next start too",
      "FOLDER");
  add("--cache-dir-max", o.cache_dir_max,
      "Bytes of beginnings there, of which those used longest ago are removed, and of contexts, of "
      "which more are refused; 0: no beginnings, any contexts",
      "SIZE")
      ->capture_default_str();
  add("--pack", o.pack,
      "How exact caches that rest lie there, and in memory: packed to 1/16, 1/32, 1/64 of their "
      "bytes with a little loss; off: bit-exact  [default: 1/16 where the model has a basis, see "
      "ballast calibrate]",
      "SIZE");
  add("--library", o.library,
      "Folder of ballast library add: a request with \"context\": \"library\" asks its documents",
      "DIR");
  add("--api-key", s.keys, "Clients must give this key; may be repeated", "KEY")
      ->allow_extra_args(false);
  add("--api-key-file", o.key_file, "Keys, one a line", "FILE");
  add("--cors-origin", s.origins,
      "Pages of this origin may call, such as https://chat.example; *: all pages", "ORIGIN")
      ->allow_extra_args(false);
}

}  // namespace

void add_serve(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "serve", "Answer many clients at once, behind OpenAI's API, with contexts read once");
  add_model_option(*app, o.model);
  add_mmproj_option(*app, o.mmproj);
  add_server_options(*app, o);
  o.cache.add_to(*app);
  app->add_option("--log", o.log,
                  "A line on standard error for each request: text, json or off; text unless -q")
      ->type_name("FORMAT")
      ->group("Server")
      ->transform(one_of({"text", "json", "off"}));
  app->add_flag("--check", o.check,
                "Load the model and the contexts, take the port, and end: an error says why not")
      ->group("Server");
  app->add_flag("-q,--quiet", o.quiet, "Print the address only, and no line for requests");
  app->footer(
      "Example:\n  ballast serve -m model.gguf --cache 1/8 --cache-dir contexts\n  curl "
      "localhost:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"Hello\"}]}'");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
