// The calls that turn texts into tokens, tokens into texts, and texts into vectors.
#pragma once

#include "serve/calls.h"

namespace ballast::serve {

/// `service` must outlive the routes.
void add_token_calls(Routes& routes, const Service& service);

}  // namespace ballast::serve
