#include "serve/load.h"

#include <httplib.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <thread>

#include "base/fail.h"
#include "base/stopwatch.h"
#include "formats/json_text.h"
#include "report/json.h"

namespace ballast::serve {
namespace {

struct Answer {
  std::vector<double> times;  ///< of each token, from the request on
  std::size_t cache_bytes = 0;
  std::string failure;
};

Json request_of(const LoadOptions& o, std::size_t stream) {
  // Small ids: every vocabulary has them.
  std::vector<std::size_t> tokens{3 + o.number % 251, 3 + stream % 251};
  while (tokens.size() < o.prompt) tokens.push_back(3 + tokens.size() * 7919 % 251);
  tokens.resize(o.prompt);
  return {{"prompt", tokens}, {"max_tokens", o.generate},
          {"temperature", 0}, {"ignore_eos", true},
          {"logprobs", 0},  // an event for each token, whether it has a text or not
          {"stream", true},   {"stream_options", {{"include_usage", true}}}};
}

Answer ask(int port, const std::string& body) {
  Answer out;
  std::string text;
  const Stopwatch watch;
  const auto event = [&](std::string_view data) {
    if (data == "[DONE]") return;
    const auto json = parse_json_text(data, "an event of the server");
    if (json.contains("error")) {
      out.failure = data;
    } else if (json["choices"].empty()) {
      out.cache_bytes = json["usage"]["prompt_cache_bytes"];
    } else if (!json["choices"][0]["logprobs"].is_null()) {
      out.times.push_back(watch.seconds());
    }
  };
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(std::chrono::hours(1));
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.set_header("Content-Type", "application/json");
  request.body = body;
  request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
    text.append(data, size);
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      if (line.starts_with("data: ")) event(line.substr(6));
    }
    text.erase(0, begin);
    return true;
  };
  const httplib::Result result = client.send(request);
  if (!result) {
    out.failure = "no answer: " + httplib::to_string(result.error());
  } else if (result->status != 200) {
    out.failure = fmt::format("status {}: {}{}", result->status, text, result->body);
  }
  return out;
}

}  // namespace

LoadResult measure_load(int port, const LoadOptions& o) {
  require(o.streams > 0 && o.prompt > 1 && o.generate > 0,
          "a load needs streams, prompts of two tokens and tokens to make");
  std::vector<Answer> answers(o.streams);
  std::vector<std::string> bodies;
  for (std::size_t i = 0; i < o.streams; ++i) bodies.push_back(request_of(o, i).dump());
  const Stopwatch watch;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < o.streams; ++i) {
      threads.emplace_back([&, i] {
        try {
          answers[i] = ask(port, bodies[i]);
        } catch (const std::exception& error) {
          answers[i].failure = error.what();
        }
      });
    }
  }
  LoadResult out;
  out.seconds = watch.seconds();
  for (const Answer& answer : answers) {
    require(answer.failure.empty(), "the server: {}", answer.failure);
    require(answer.times.size() == o.generate, "the server made {} tokens of {}",
            answer.times.size(), o.generate);
    out.first.push_back(answer.times[0]);
    for (std::size_t i = 1; i < answer.times.size(); ++i) {
      out.between.push_back(answer.times[i] - answer.times[i - 1]);
    }
    out.cache_bytes += answer.cache_bytes;
  }
  std::ranges::sort(out.first);
  std::ranges::sort(out.between);
  out.tokens_per_second = static_cast<double>(o.streams * o.generate) / out.seconds;
  return out;
}

double quantile(const std::vector<double>& ascending, double share) {
  const double rank = std::ceil(share * static_cast<double>(ascending.size()));
  return ascending.at(static_cast<std::size_t>(std::max(rank, 1.0)) - 1);
}

}  // namespace ballast::serve
