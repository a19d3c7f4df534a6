#include "serve/calls.h"

#include <chrono>
#include <cmath>
#include <thread>

#include "base/interruption.h"
#include "serve/http/fields.h"

namespace ballast::serve {
namespace {

using namespace std::chrono_literals;

/// Of an answer that its client has not taken: the model then waits, for so long at most.
constexpr std::size_t kMostUnsent = 1 << 20;
constexpr auto kUnsentTime = 2min;

/// One of the slow readers.
struct Slow {
  SlowReaders& all;
  const std::size_t number = ++all.count;
  explicit Slow(SlowReaders& of) : all(of) {}
  ~Slow() { --all.count; }
  Slow(const Slow&) = delete;
  Slow& operator=(const Slow&) = delete;
};

}  // namespace

ApiError shutting_down() { return {503, "shutting_down", "the server is stopping"}; }

Event Waiting::next() {
  keep_up();
  while (true) {
    if (response_.stopping()) throw shutting_down();
    auto event = ticket_->wait(100ms);
    try {
      Interruption::check();
    } catch (const Interrupted&) {
      if (response_.stopping()) continue;  // which the client is told
      throw;
    }
    if (!event) continue;
    if (const auto* error = std::get_if<ApiError>(&*event)) throw ApiError(*error);
    return std::move(*event);
  }
}

void Waiting::keep_up() {
  if (response_.unsent() <= kMostUnsent) return;
  const Slow slow(slow_);
  if (slow.number > slow_.most)
    throw Interrupted();  // where all clients read slowly, they are left
  ticket_->hold(true);
  const auto end = std::chrono::steady_clock::now() + kUnsentTime;
  while (response_.unsent() > kMostUnsent / 2 && !response_.stopping()) {
    Interruption::check();
    if (std::chrono::steady_clock::now() > end) throw Interrupted();
    std::this_thread::sleep_for(20ms);
  }
  ticket_->hold(false);
}

Json Service::sampling() const {
  const auto shown = [](float x) { return std::stod(fmt::format("{}", x)); };
  return {{"temperature", shown(limits.sampling.temperature)},
          {"top_p", shown(limits.sampling.top_p)}};
}

Waiting Service::submit(Job job, const Call& call) const {
  job.client = doorman.client_of(call.request);
  return Waiting(scheduler.submit(std::move(job)), call.response, slow_readers);
}

void answer_in_time(Call& call, bool stream,
                    const std::function<Json(const std::function<void(double)>& progress)>& work) {
  if (!stream) return call.reply(work([](double) {}));
  Response& response = call.response;
  response.set_header("Cache-Control", "no-store");
  response.begin("text/event-stream");
  const auto send = [&](const Json& data) { response.write("data: " + line(data) + "\n\n"); };
  try {
    send(work([&](double done) { send({{"progress", std::round(done * 100) / 100}}); }));
  } catch (const ApiError& error) {
    send(error.to_json());
  }
}

}  // namespace ballast::serve
