// Long work that is done in turns with other work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ballast::serve {

/// A function on a thread of its own that runs only while its owner waits in run(), until it calls
/// leave(): so what it shares with the owner needs no lock.
class Turns {
 public:
  /// `on_end` is called on that thread when the function is over.
  Turns(std::function<void(Turns&)> work, std::function<void()> on_end);
  /// Cancels and waits for the end.
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Lets the function run to its next pause(), its leave() or its end. Does nothing after leave().
  void run();
  /// Whether the function is over. Throws what it threw, once.
  bool over();
  /// The function should end soon; it may take more turns for that.
  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

  // For the function.
  /// Waits for the next turn.
  void pause();
  /// The rest runs beside the owner.
  void leave();

 private:
  enum class Whose { owner, function, both };

  std::mutex mutex_;
  std::condition_variable changed_;
  Whose turn_ = Whose::owner;
  bool over_ = false;
  std::exception_ptr thrown_;
  std::atomic<bool> cancelled_ = false;
  std::thread thread_;
};

inline Turns::Turns(std::function<void(Turns&)> work, std::function<void()> on_end)
    : thread_([this, work = std::move(work), on_end = std::move(on_end)] {
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [&] { return turn_ != Whose::owner; });
        }
        std::exception_ptr thrown;
        try {
          if (!cancelled_) work(*this);
        } catch (...) {
          thrown = std::current_exception();
        }
        {
          const std::scoped_lock lock(mutex_);
          thrown_ = thrown;
          over_ = true;
          turn_ = Whose::both;
        }
        changed_.notify_all();
        on_end();
      }) {}

inline Turns::~Turns() {
  cancel();
  {
    const std::scoped_lock lock(mutex_);
    turn_ = Whose::both;
  }
  changed_.notify_all();
  thread_.join();
}

inline void Turns::run() {
  std::unique_lock lock(mutex_);
  if (turn_ == Whose::both) return;
  turn_ = Whose::function;
  changed_.notify_all();
  changed_.wait(lock, [&] { return turn_ != Whose::function; });
}

inline bool Turns::over() {
  const std::scoped_lock lock(mutex_);
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  return over_;
}

inline void Turns::pause() {
  std::unique_lock lock(mutex_);
  if (turn_ == Whose::function) {
    turn_ = Whose::owner;
    changed_.notify_all();
    changed_.wait(lock, [&] { return turn_ != Whose::owner; });
  }
}

inline void Turns::leave() {
  {
    const std::scoped_lock lock(mutex_);
    turn_ = Whose::both;
  }
  changed_.notify_all();
}

}  // namespace ballast::serve
