// Which handler answers a request.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "report/json.h"
#include "serve/http/gate.h"
#include "serve/http/http.h"

namespace ballast::serve {

/// A request and where its answer goes.
struct Call {
  Request& request;
  Response& response;
  TextWork work = {};
  std::vector<std::string> parts = {};  ///< of the path, where the route's pattern has stars

  /// The body as an object, once. Throws ApiError.
  Json take_object();
  /// The rest waits for the model.
  void end_work();
  void reply(const Json& json);
};

/// Handlers by method and path.
class Routes {
 public:
  using Handler = std::function<void(Call&)>;

  /// In a pattern * stands for what is between two slashes and ** for all that is left. Of several
  /// that fit a path, the first has it.
  void get(std::string pattern, Handler handler) { add("GET", pattern, handler); }
  void post(std::string pattern, Handler handler) { add("POST", pattern, handler); }
  void add(std::string method, std::string pattern, Handler handler) {
    all_.push_back({std::move(method), std::move(pattern), std::move(handler)});
  }
  /// Runs the handler. Throws what that throws, and ApiError where there is none.
  void answer(Call& call) const;

 private:
  struct Route {
    std::string method, pattern;
    Handler handler;
  };
  std::vector<Route> all_;
};

/// A number in a path. Throws ApiError.
std::size_t number_of(const std::string& part);

}  // namespace ballast::serve
