// Every method's description; each is defined in the method's own file.
#pragma once

#include "ballast/method.h"

namespace ballast {

const MethodInfo& exact_method();
const MethodInfo& balancekv_method();
const MethodInfo& balancekv_stream_method();
const MethodInfo& clustergen_method();
const MethodInfo& kcenter_method();
const MethodInfo& h2o_method();
const MethodInfo& streaming_llm_method();
const MethodInfo& local_method();
const MethodInfo& uniform_method();
const MethodInfo& snapkv_method();
const MethodInfo& pyramidkv_method();
const MethodInfo& topk_method();
const MethodInfo& strided_method();
const MethodInfo& fixed_method();
const MethodInfo& spatten_method();
const MethodInfo& replay_method();

}  // namespace ballast
