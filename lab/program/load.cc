#include "program/load.h"

#include <curl/curl.h>

#include <algorithm>
#include <cmath>
#include <memory>
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

/// Takes the events of one answer.
class Reader {
 public:
  void take(std::string_view piece) {
    text_ += piece;
    std::size_t begin = 0;
    for (std::size_t end; (end = text_.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
      const std::string_view line = std::string_view(text_).substr(begin, end - begin);
      if (line.starts_with("data: ")) event(line.substr(6));
    }
    text_.erase(0, begin);
  }
  const std::string& rest() const { return text_; }

  Answer answer;

 private:
  void event(std::string_view data) {
    if (data == "[DONE]") return;
    const auto json = parse_json_text(data, "an event of the server");
    if (json.contains("error")) {
      answer.failure = data;
    } else if (json["choices"].empty()) {
      answer.cache_bytes = json["usage"]["prompt_cache_bytes"];
    } else if (!json["choices"][0]["logprobs"].is_null()) {
      answer.times.push_back(watch_.seconds());
    }
  }

  Stopwatch watch_;
  std::string text_;  ///< that is no whole event yet
};

std::size_t on_body(char* data, std::size_t, std::size_t size, void* reader) {
  try {
    static_cast<Reader*>(reader)->take({data, size});
    return size;
  } catch (const std::exception& error) {  // libcurl's code is C
    static_cast<Reader*>(reader)->answer.failure = error.what();
    return 0;
  }
}

Answer ask(int port, const std::string& body) {
  Reader reader;
  const std::unique_ptr<CURL, void (*)(CURL*)> owner(::curl_easy_init(), ::curl_easy_cleanup);
  CURL* curl = owner.get();
  const std::string url = fmt::format("http://127.0.0.1:{}/v1/completions", port);
  ::curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  ::curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reader);
  const CURLcode code = ::curl_easy_perform(curl);
  long status = 0;
  ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  Answer& out = reader.answer;
  if (code != CURLE_OK && out.failure.empty()) {
    out.failure = fmt::format("no answer: {}", ::curl_easy_strerror(code));
  } else if (code == CURLE_OK && status != 200) {
    out.failure = fmt::format("status {}: {}", status, reader.rest());
  }
  return std::move(out);
}

}  // namespace

LoadResult measure_load(int port, const LoadOptions& o) {
  require(o.streams > 0 && o.prompt > 1 && o.generate > 0,
          "a load needs streams, prompts of two tokens and tokens to make");
  static const CURLcode ready = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  require(ready == CURLE_OK, ErrorCode::unsupported, "libcurl cannot be used");
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
