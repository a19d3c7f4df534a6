// ballast generate: answers to a file of prompts.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/fail.h"
#include "base/os/files.h"
#include "base/read_file.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/model_options.h"
#include "cli/serve.h"
#include "formats/json_text.h"
#include "report/progress.h"
#include "report/units.h"
#include "serve/server.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  CacheFlags cache;
  std::string prompts, out;
  std::string memory;
  std::size_t slots = 32;
  std::size_t max_tokens = 512;
  bool quiet = false;
  JsonOption json;
};

/// A line of the file of prompts, as a request.
struct Request {
  std::string id;
  std::string path;
  Json body;
};

Request request_of(const std::string& line, const std::string& place) {
  Request out;
  const Json json =
      line.front() == '{' || line.front() == '"' ? parse_json_text<Json>(line, place) : Json(line);
  if (json.is_string()) {
    out.body = {{"messages", {{{"role", "user"}, {"content", json}}}}};
  } else {
    out.body = json.value("body", json);
    require(out.body.is_object(), "{}: body: expected an object", place);
    if (json.contains("custom_id")) {
      const Json& id = json["custom_id"];
      out.id = id.is_string() ? id.get<std::string>() : to_text(id);
    }
    if (!json.contains("body")) out.body.erase("custom_id");
    if (json.contains("body") && json.contains("url")) {
      require(json["url"].is_string(), "{}: url: expected a text", place);
      out.path = json["url"].get<std::string>();
    }
  }
  if (out.path.empty()) {
    out.path = out.body.contains("messages") ? "/v1/chat/completions" : "/v1/completions";
  }
  out.body.erase("stream");                                       // answers come whole
  if (out.path.starts_with("/api/")) out.body["stream"] = false;  // Ollama's stream by default
  out.body.erase("stream_options");
  return out;
}

std::vector<Request> read_requests(const std::string& path) {
  std::string note;
  const std::string text =
      as_utf8(read_file(path, {.most = std::size_t{4} << 30}), path, {}, &note);
  if (!note.empty()) tell("note: " + note);
  std::vector<Request> out;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    line.erase(0, line.find_first_not_of(" \t"));
    Request request = request_of(line, fmt::format("{}, line {}", path, number));
    if (request.id.empty()) request.id = fmt::format("line-{}", number);
    out.push_back(std::move(request));
  }
  require(!out.empty(), "{}: no prompts; give one a line, as text or as JSON", path);
  return out;
}

/// The file of answers, a line each, in the order of the prompts. What is there is gone on from.
class Answers {
 public:
  Answers(const std::string& path, const std::vector<Request>& requests) : path_(path) {
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    require(file_ >= 0, ErrorCode::io, "{}: {}", path, std::strerror(errno));
    struct stat status {};
    require(::fstat(file_, &status) == 0 && S_ISREG(status.st_mode), ErrorCode::io,
            "{}: a pipe or a device; name a file, which an interrupted run can go on with", path);
    require(lock_file(file_, Lock::alone_or_not), ErrorCode::io,
            "{}: another ballast generate writes to this file", path);
    const std::string text = read_file(path, {.most = std::size_t{16} << 30});
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string place = fmt::format("{}, line {}", path, done_ + 1);
      const Json json = parse_json_text<Json>(text.substr(begin, end - begin), place);
      const std::string id =
          json.is_object() && json.contains("custom_id") && json["custom_id"].is_string()
              ? json["custom_id"].get<std::string>()
              : "";
      require(done_ < requests.size() && id == requests[done_].id,
              "{}: the answer to '{}', where that to '{}' belongs; name another file with -o",
              place, id, done_ < requests.size() ? requests[done_].id : "nothing");
      ++done_;
    }
    // What was cut off in the middle of a line is made again, if it is of an answer.
    const std::string_view rest = std::string_view(text).substr(begin);
    const std::string answer = fmt::format("{{\"id\":\"batch_req_{}\",", done_ + 1);
    require(rest.substr(0, answer.size()) == answer.substr(0, rest.size()),
            "{}, line {}: no answer of ballast generate; name another file with -o", path,
            done_ + 1);
    if (::ftruncate(file_, static_cast<off_t>(begin)) != 0 || ::lseek(file_, 0, SEEK_END) < 0) {
      fail(ErrorCode::io, "{}: {}; name a file that can be added to", path, std::strerror(errno));
    }
  }
  ~Answers() { ::close(file_); }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  std::size_t done() const { return done_; }
  void add(const std::string& line) {
    require(write_all(file_, line), ErrorCode::io,
            "{}: {}; the answers before are whole, the same command goes on", path_,
            std::strerror(errno));
    ++done_;
  }

 private:
  std::string path_;
  int file_ = -1;
  std::size_t done_ = 0;
};

struct Sums {
  std::size_t answers = 0, failed = 0, read = 0, cached = 0, made = 0;
  double seconds = 0;
};

/// Has `server` answer requests from answers.done() on, as many at once as it takes.
Sums answer_all(serve::Server& server, const std::vector<Request>& requests, Answers& answers,
                std::size_t at_once, bool quiet) {
  Progress progress("generate");
  Sums sums;
  const Stopwatch watch;
  std::mutex mutex;
  std::map<std::size_t, std::string> ready;  // lines that wait for those before them
  std::exception_ptr failure;
  std::size_t next = answers.done();
  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (next < requests.size() && !failure) {
      const std::size_t i = next++;
      const Request& request = requests[i];
      lock.unlock();
      try {
        const serve::Server::Answer answer = server.answer(request.path, to_text(request.body));
        const Json line = {{"id", fmt::format("batch_req_{}", i + 1)},
                           {"custom_id", request.id},
                           {"response",
                            {{"status_code", answer.status},
                             {"request_id", fmt::format("req_{}", i + 1)},
                             {"body", parse_json_text<Json>(answer.body, "the answer")}}},
                           {"error", nullptr}};
        std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
        lock.lock();
        ready[i] = std::move(text);
        ++(answer.status == 200 ? sums.answers : sums.failed);
        sums.read += answer.usage.prompt - answer.usage.cached;
        sums.cached += answer.usage.cached;
        sums.made += answer.usage.made;
        while (!ready.empty() && ready.begin()->first == answers.done()) {
          answers.add(ready.begin()->second);
          ready.erase(ready.begin());
        }
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        failure = std::current_exception();
      }
      if (!quiet) {
        progress.update(static_cast<double>(answers.done() + ready.size()) /
                        static_cast<double>(requests.size()));
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < std::min(at_once, requests.size() - next); ++t) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  sums.seconds = watch.seconds();
  return sums;
}

void run(Options& o) {
  o.json.open();
  const std::vector<Request> requests = read_requests(o.prompts);
  Answers answers(o.out, requests);
  const std::size_t before = answers.done();
  Sums sums;
  if (before < requests.size()) {
    TextModel m(o.model);
    serve::ServerOptions options;
    options.port = serve::ServerOptions::kNoPort;
    options.cache = o.cache.parse();
    if (!o.memory.empty()) options.memory = parse_bytes(o.memory, "--memory");
    options.slots = o.slots;
    options.max_tokens = o.max_tokens;
    serve::Server::fit_weights(m.model, options.memory, options.slots);
    o.cache.choose(options.cache, m.model);
    serve::Server server(m.model, m.tokenizer, options);
    // More than answers, so that the next prompt waits beside them.
    sums = answer_all(server, requests, answers, o.slots + o.slots / 4 + 1, o.quiet);
  }
  if (!o.quiet && o.json.text()) {
    std::string text = fmt::format("{} answers in {}", before + sums.answers, o.out);
    if (before > 0) text += fmt::format(", {} of them from before", before);
    if (sums.failed > 0) text += fmt::format(", {} errors beside them", sums.failed);
    if (sums.seconds > 0) {
      text +=
          fmt::format("; {} tokens read, {} made in {}, {:.1f} a second", sums.read, sums.made,
                      format_seconds(sums.seconds), static_cast<double>(sums.made) / sums.seconds);
    }
    tell(text);
  }
  o.json.write({{"prompts", requests.size()},
                {"answers_before", before},
                {"answers", sums.answers},
                {"errors", sums.failed},
                {"prompt_tokens", sums.read},
                {"cached_tokens", sums.cached},
                {"generated_tokens", sums.made},
                {"seconds", sums.seconds}});
}

}  // namespace

void add_generate(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand(
      "generate", "Answer a file of prompts, as many at once as memory takes; can be gone on with");
  add_model_option(*app, o.model);
  app->add_option("--prompts", o.prompts,
                  "A prompt a line: a text, a JSON string, the body of a request, or a line of an "
                  "OpenAI batch")
      ->type_name("FILE")
      ->required();
  app->add_option("-o,--out", o.out,
                  "Answers, a line each as in an OpenAI batch, in the order of the prompts; those "
                  "that are there are not made again")
      ->type_name("FILE")
      ->required();
  app->add_option(
         "--memory", o.memory,
         "Memory of weights and caches together: 8G; a larger model is read from disk as it "
         "runs; nine tenths of what is free if not given")
      ->type_name("SIZE");
  app->add_option("--slots", o.slots, "Answers made at once, where memory allows")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 1024));
  app->add_option("-n,--max-tokens", o.max_tokens, "Tokens of an answer, where its line has none")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 1 << 30));
  o.cache.add_to(*app);
  o.json.add_to(*app);
  app->add_flag("-q,--quiet", o.quiet, "Show no progress and no summary");
  app->footer(
      "Example:\n  ballast generate -m model.gguf --prompts questions.txt -o answers.jsonl "
      "--cache 1/8 --memory 8G");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
