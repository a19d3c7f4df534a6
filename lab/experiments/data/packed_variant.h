// A packed context (see ballast/pack.h) among the methods that experiments compare: `packed:1/16`.
#pragma once

#include <cstddef>
#include <string>

#include "ballast/engine/model.h"

namespace ballast {

/// "1/16" of the method string "packed:1/16"; empty: it is another method's.
std::string packed_form(const std::string& method);
/// What reads the text: `exact` for packed contexts. Throws Error as Policy::parse() does.
Policy policy_of(const std::string& method);

/// A text as it comes back from its packed file.
struct Unpacked {
  Sequence sequence;
  std::size_t bytes = 0;  ///< of the file
};
/// Packs an exact cache whose prompt has ended, and unpacks it. Throws Error if the model has no
/// basis, or no such form.
Unpacked through_packing(const Model& model, const Sequence& exact, const std::string& form);

}  // namespace ballast
