// The library's own methods, in the order in which tables show them. Adding one: a line here.
#pragma once

#include "ballast/method.h"

// clang-format off
#define BALLAST_METHODS(METHOD) \
  METHOD(exact)                 \
  METHOD(balancekv)             \
  METHOD(balancekv_stream)      \
  METHOD(clustergen)            \
  METHOD(kcenter)               \
  METHOD(h2o)                   \
  METHOD(streaming_llm)         \
  METHOD(local)                 \
  METHOD(uniform)               \
  METHOD(snapkv)                \
  METHOD(pyramidkv)             \
  METHOD(topk)                  \
  METHOD(strided)               \
  METHOD(fixed)                 \
  METHOD(spatten)               \
  METHOD(calibrated)            \
  METHOD(replay)                \
  METHOD(kvzip)                 \
  METHOD(kvzip_plus)            \
  METHOD(keydiff)               \
  METHOD(expected_attention)    \
  METHOD(criticalkv)            \
  METHOD(dropkv)                \
  METHOD(attention_matching)    \
  METHOD(rkv)                   \
  METHOD(triattention)
// clang-format on

namespace ballast {

// <name>_method() describes the method; src/methods/<name>.cc defines it.
#define BALLAST_DECLARE_METHOD(name) const MethodInfo& name##_method();
BALLAST_METHODS(BALLAST_DECLARE_METHOD)
#undef BALLAST_DECLARE_METHOD

/// Throws Error when a parameter has a bad name, range or default, or is given twice.
void check_parameters(const MethodInfo& info);

}  // namespace ballast
