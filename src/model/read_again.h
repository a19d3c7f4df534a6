// Some tokens of joined documents, read again so that they know the documents before theirs.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ballast/engine/model.h"

namespace ballast {

/// Reads a share of the tokens of joined documents again, all layers, where they stand: those whose
/// values in the second layer differ most from what they are behind the documents before, as
/// CacheBlend (arXiv 2405.16444) chooses them. The first document has nothing before it.
/// `joined`: a sequence behind documents, to which no token has come. `texts`: the tokens of each
/// document, of which `left_out` at the start of all but the first are left out. `share`: of all
/// documents' tokens but the first's, from 0 to 1. `progress`: may be null; is told the fraction
/// done.
void read_again(const Model& model, Sequence& joined, std::span<const std::vector<Token>> texts,
                std::size_t left_out, double share,
                const std::function<void(double done)>& progress);

}  // namespace ballast
