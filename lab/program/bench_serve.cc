#include "program/bench_serve.h"

#include <algorithm>
#include <thread>

#include "ballast/engine/tokenizer.h"
#include "base/os/memory.h"
#include "report/progress.h"
#include "report/units.h"
#include "serve/server.h"

namespace ballast::cli {
namespace {

double middle(const std::vector<double>& times) {
  return times.empty() ? 0 : serve::quantile(times, 0.5);
}

/// A server on a thread of its own.
class Running {
 public:
  Running(const Model& model, const Tokenizer& tokenizer, const serve::ServerOptions& options)
      : server_(model, tokenizer, options), thread_([this] { server_.run(); }) {}
  ~Running() { server_.stop(); }
  int port() const { return server_.port(); }

 private:
  serve::Server server_;
  std::jthread thread_;
};

}  // namespace

std::vector<ServeRow> measure_serve(const Model& model, const ServeBench& bench) {
  const Tokenizer tokenizer(read_vocabulary(model.file().path()));
  const std::size_t most = *std::ranges::max_element(bench.streams);
  std::vector<ServeRow> rows;
  Progress progress("bench");
  const double all =
      static_cast<double>(bench.policies.size() * bench.prompts.size() * bench.streams.size());
  for (const Policy& policy : bench.policies) {
    serve::ServerOptions options;
    options.port = 0;
    options.slots = options.queue = most;
    options.cache = bench.cache;
    options.cache.policy = policy;
    const Running server(model, tokenizer, options);
    // Threads and scratch memory are made at the first request.
    serve::measure_load(server.port(), {.streams = 1, .prompt = 8, .generate = 2});
    for (std::size_t prompt : bench.prompts) {
      for (std::size_t streams : bench.streams) {
        reset_peak_memory();
        ServeRow row{policy.to_string(), prompt, streams, {}, 0};
        row.load = serve::measure_load(server.port(), {.streams = streams,
                                                       .prompt = prompt,
                                                       .generate = bench.generate,
                                                       .number = rows.size() + 1});
        row.peak_memory = peak_memory();
        rows.push_back(std::move(row));
        progress.update(static_cast<double>(rows.size()) / all);
      }
    }
  }
  return rows;
}

Table serve_table(std::span<const ServeRow> rows) {
  Table table({{"method", Align::left, true},
               {"prompt", Align::right, true},
               {"streams", Align::right, true},
               {"first token", Align::right},
               {"p95", Align::right},
               {"a token", Align::right},
               {"tokens/s", Align::right},
               {"caches", Align::right},
               {"memory", Align::right}});
  for (const ServeRow& r : rows) {
    table.add({r.method, format_count(r.prompt), format_count(r.streams),
               format_seconds(middle(r.load.first)),
               format_seconds(serve::quantile(r.load.first, 0.95)),
               format_seconds(middle(r.load.between)), format_number(r.load.tokens_per_second),
               format_bytes(static_cast<double>(r.load.cache_bytes)),
               format_bytes(static_cast<double>(r.peak_memory))});
  }
  return table;
}

Json to_json(std::span<const ServeRow> rows) {
  Json out = Json::array();
  for (const ServeRow& r : rows) {
    out.push_back({{"method", r.method},
                   {"prompt", r.prompt},
                   {"streams", r.streams},
                   {"first_token_median", middle(r.load.first)},
                   {"first_token_p95", serve::quantile(r.load.first, 0.95)},
                   {"token_median", middle(r.load.between)},
                   {"seconds", r.load.seconds},
                   {"tokens_per_second", r.load.tokens_per_second},
                   {"cache_bytes", r.load.cache_bytes},
                   {"peak_memory", r.peak_memory}});
  }
  return out;
}

}  // namespace ballast::cli
