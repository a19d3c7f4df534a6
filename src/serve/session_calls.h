// The calls of /v1/sessions.
#pragma once

#include "serve/calls.h"

namespace ballast::serve {

/// `service` must outlive the routes.
void add_session_calls(Routes& routes, const Service& service);

}  // namespace ballast::serve
