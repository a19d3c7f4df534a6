// Threads that the library's loops run on.
#pragma once

#include <memory>

namespace ballast {

/// Worker threads for the library's loops over heads, rows and sequences.
///
/// A Cache is given a pool by CacheOptions::pool, an Engine by its constructor; each uses shared()
/// without one. Inside a call of an engine, caches without a pool of their own use the engine's.
///
/// The thread that calls works too, so a pool of n threads has n - 1 workers. Several threads may
/// use one pool at the same time: workers join whichever loop has work left, each caller goes on
/// with its own, and a caller waits only for workers inside its loop. Up to eight loops run in
/// parallel; further callers run theirs alone. For a fixed number of workers, give each caller a
/// pool of its own.
///
/// A loop inside a loop runs on the thread that is there; so do all loops of a child process that
/// fork() made while the pool existed. Results do not depend on the number of threads.
class ThreadPool {
 public:
  /// `threads`: the caller included, at most 1024. Below 1: one for each core that the process may
  /// use. Workers start when the first loop needs them, and sleep between loops.
  explicit ThreadPool(int threads = 0);
  /// Ends the workers. No loop may be running on the pool.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Threads of one loop at most, the caller included.
  int threads() const;

  /// The pool of everything that was given none; it lasts as long as the process.
  static ThreadPool& shared();

  /// For the library.
  class Loops;
  Loops& loops() const { return *loops_; }

 private:
  explicit ThreadPool(std::unique_ptr<Loops> loops);

  std::unique_ptr<Loops> loops_;
};

/// Threads of the shared pool: what set_threads() said, else one for each core that the process may
/// use.
int threads();

/// Sets threads() for loops that start from now on. Below 1 goes back to the default. Other pools
/// keep theirs.
void set_threads(int count);

}  // namespace ballast
