// Who holds which rows: copies of a cache share them, and they are paid for once.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cache/held_memory.h"
#include "serve/http/memory.h"

namespace ballast::serve {

/// Safe to use from many threads.
class RowLedger {
 public:
  /// The part of somebody in rows that several may hold, each with the lease that pays for it. The
  /// cache must stay as long.
  struct Hold {
    std::vector<std::pair<HeldMemory, std::shared_ptr<const Lease>>> rows;

    std::size_t bytes() const;
    /// Of these, what others hold, too.
    std::size_t shared_bytes() const;
  };

  /// All rows of the cache. What nobody held is paid for by `lease`, which has at least that.
  Hold hold(const Cache& cache, Lease& lease);
  /// Those rows of the cache that somebody holds.
  Hold join(const Cache& cache) const;
  /// Bytes that are paid for.
  std::size_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<const void*, std::weak_ptr<const Lease>> all_;
};

}  // namespace ballast::serve
