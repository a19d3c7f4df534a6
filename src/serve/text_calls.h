// The calls that ask for text, of all APIs.
#pragma once

#include "serve/calls.h"

namespace ballast::serve {

/// `service` must outlive the routes.
void add_text_calls(Routes& routes, const Service& service);

}  // namespace ballast::serve
