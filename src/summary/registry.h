// Every method's description; each is defined in the method's own file.
#pragma once

#include "ballast/method.h"

namespace ballast {

const MethodInfo& exact_method();
const MethodInfo& balancekv_method();
const MethodInfo& local_method();
const MethodInfo& streaming_llm_method();

}  // namespace ballast
