// Documents that were read each alone, and stand one behind the other.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ballast/cache.h"

namespace ballast {

/// A text that was read alone and is to stand among others.
struct JoinedDocument {
  std::shared_ptr<const Cache> cache;
  /// Tokens at its start that are left out: those that stand before the first document already.
  std::size_t left_out = 0;
};

/// An exact cache whose tokens follow those documents, as if they had been read one behind the
/// other: none of their rows is changed or copied, queries are turned back by where each document
/// stands. What documents say of each other's tokens is lost. All bytes of the documents count as
/// its own. It cannot be saved. Throws Error unless all are of one model, at absolute positions,
/// and hold a token that is not left out.
Cache join_documents(std::vector<JoinedDocument> documents);

/// Tokens of the documents; 0 for any other cache.
std::size_t joined_tokens(const Cache& cache);

}  // namespace ballast
