// What C calls a model, and how it says what an answer is to be.
#pragma once

#include <memory>

#include "ballast.h"
#include "ballast/engine/session.h"

struct ballast_model {
  std::shared_ptr<const ballast::TextModel> text;
};

namespace ballast::c {

/// Null: the defaults. Throws Error as read_struct().
GenerateOptions generate_options(const ballast_generate_params* params);

}  // namespace ballast::c
