// The calls of /v1/contexts and /v1/library.
#pragma once

#include "serve/calls.h"

namespace ballast::serve {

// `service` must outlive the routes.
void add_context_calls(Routes& routes, const Service& service);
void add_library_calls(Routes& routes, const Service& service);

}  // namespace ballast::serve
