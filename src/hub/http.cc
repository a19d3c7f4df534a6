#include "hub/http.h"

#include <curl/curl.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string_view>

#include "ballast/version.h"
#include "hub/catalogue.h"
#include "hub/reference.h"

namespace ballast::hub {
namespace {

constexpr std::size_t kMostText = 16 << 20;  ///< of an answer that is no file

struct Request {
  CURL* curl = nullptr;
  Answer answer;
  std::uintmax_t from = 0;
  bool begun = false;
  const TakeBytes* take = nullptr;  ///< null: the body is the answer's
  std::exception_ptr error;         ///< libcurl's code is C
};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

std::size_t on_header(char* data, std::size_t, std::size_t bytes, void* user) {
  auto& request = *static_cast<Request*>(user);
  const std::string_view line(data, bytes);
  if (line.starts_with("HTTP/")) request.answer.headers.clear();  // of a redirect
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    request.answer.headers[lower_case(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  return bytes;
}

std::size_t on_body(char* data, std::size_t, std::size_t bytes, void* user) {
  auto& request = *static_cast<Request*>(user);
  long status = 0;
  ::curl_easy_getinfo(request.curl, CURLINFO_RESPONSE_CODE, &status);
  try {
    if (request.take == nullptr || status >= 300) {
      if (request.answer.body.size() + bytes > kMostText) return 0;
      request.answer.body.append(data, bytes);
      return bytes;
    }
    const bool begin = !request.begun && request.from > 0 && status != 206;
    request.begun = true;
    (*request.take)(std::as_bytes(std::span(data, bytes)), begin);
    return bytes;
  } catch (...) {
    request.error = std::current_exception();
    return 0;
  }
}

std::string host_of(std::string_view url) {
  const std::size_t begin = url.find("://") + 3;
  return std::string(url.substr(0, url.find('/', begin)));
}

enum class Kind : std::uint8_t { text, headers, file };

Answer perform(const std::string& url, Kind kind, std::uintmax_t from, const TakeBytes* take) {
  static const CURLcode ready = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, void (*)(CURL*)> owner(::curl_easy_init(), ::curl_easy_cleanup);
  CURL* curl = owner.get();
  require(ready == CURLE_OK && curl != nullptr, ErrorCode::unsupported, "libcurl cannot be used");
  Request request{
      .curl = curl, .answer = {}, .from = from, .begun = false, .take = take, .error = {}};
  char reason[CURL_ERROR_SIZE] = "";
  const bool secure = url.starts_with("https:");
  ::curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  const std::string certificates = certificate_file();
  if (!certificates.empty()) ::curl_easy_setopt(curl, CURLOPT_CAINFO, certificates.c_str());
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
  ::curl_easy_setopt(curl, CURLOPT_USERAGENT, "ballast/" BALLAST_VERSION);
  ::curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  ::curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, kind == Kind::headers ? 0L : 1L);
  ::curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 20L);
  ::curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 100L);  // bytes a second
  ::curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 60L);
  ::curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  ::curl_easy_setopt(curl, CURLOPT_HEADERDATA, &request);
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &request);
  if (kind == Kind::headers) ::curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  const std::string range = fmt::format("{}-", from);
  if (from > 0) ::curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  const char* token = std::getenv("HF_TOKEN");
  if (token != nullptr && *token != '\0' && host_of(url) == host_of(endpoint())) {
    // libcurl does not send it to another host where a redirect leads.
    ::curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    ::curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, token);
  }
  const CURLcode code = ::curl_easy_perform(curl);
  if (request.error) std::rethrow_exception(request.error);
  ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &request.answer.status);
  if (code != CURLE_OK) {
    throw Unreachable(fmt::format("{}: no answer: {}", host_of(url),
                                  *reason != '\0' ? reason : ::curl_easy_strerror(code)));
  }
  return request.answer;
}

}  // namespace

Answer get(const std::string& url) { return perform(url, Kind::text, 0, nullptr); }

Answer head(const std::string& url) { return perform(url, Kind::headers, 0, nullptr); }

Answer fetch(const std::string& url, std::uintmax_t from, const TakeBytes& take) {
  return perform(url, Kind::file, from, &take);
}

std::string escape(const std::string& text) {
  char* out = ::curl_easy_escape(nullptr, text.c_str(), static_cast<int>(text.size()));
  require(out != nullptr, ErrorCode::out_of_memory, "out of memory");
  std::string escaped(out);
  ::curl_free(out);
  return escaped;
}

std::string certificate_file() {
  const char* named = std::getenv("SSL_CERT_FILE");
  if (named != nullptr && *named != '\0') return named;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (std::filesystem::exists(file)) return file;
  }
  return "";
}

}  // namespace ballast::hub
