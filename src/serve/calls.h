// What calls are answered with.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "serve/http/doorman.h"
#include "serve/http/routes.h"
#include "serve/requests/limits.h"
#include "serve/scheduling/scheduler.h"

namespace ballast::serve {

/// Answers that wait for their readers: each has a thread.
struct SlowReaders {
  std::size_t most;
  std::atomic<std::size_t> count = 0;
};

ApiError shutting_down();

/// Cancels a ticket that nobody waits for any more.
class Waiting {
 public:
  Waiting(std::shared_ptr<Ticket> ticket, const Response& response, SlowReaders& slow)
      : ticket_(std::move(ticket)), response_(response), slow_(slow) {}
  ~Waiting() {
    if (ticket_) ticket_->cancel();
  }
  Waiting(Waiting&&) = default;
  Waiting& operator=(Waiting&&) = delete;

  /// The next event; never an ApiError, which is thrown, as when the server stops. Throws
  /// Interrupted.
  Event next();

 private:
  /// Has the model wait while the client has much to read.
  void keep_up();

  std::shared_ptr<Ticket> ticket_;
  const Response& response_;
  SlowReaders& slow_;
};

/// The parts of a server. All of them outlive it.
struct Service {
  const Model& model;
  const Tokenizer& tokenizer;
  const RequestLimits& limits;
  const Doorman& doorman;
  Bodies& bodies;
  Contexts& contexts;
  Sessions& sessions;
  Scheduler& scheduler;
  SlowReaders& slow_readers;

  /// Of what a request makes; see Contexts.
  std::string owner_of(const Call& call) const {
    return contexts.owners().of(Doorman::key_of(call.request));
  }
  /// What holds for requests that do not say, as decimal numbers.
  Json sampling() const;
  /// Gives the call's job to the model. Throws ApiError as Scheduler::submit() does.
  Waiting submit(Job job, const Call& call) const;
};

/// Answers with what `work` makes. `stream`: with server-sent events, of which the last has it, and
/// those before what `work` has said of its progress, from 0 to 1.
void answer_in_time(Call& call, bool stream,
                    const std::function<Json(const std::function<void(double)>& progress)>& work);

}  // namespace ballast::serve
