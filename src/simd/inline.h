// For functions that have to become part of their caller: its registers hold what they share.
#pragma once

#define BALLAST_INLINE inline __attribute__((always_inline))
// The same for lambdas.
#define BALLAST_INLINE_LAMBDA __attribute__((always_inline))
