// Random inputs and the float64 reference of attention. They are installed, because the
// conformance tests of methods need them.
#pragma once

#include "ballast/testing/support.h"
