// How many threads the library uses.
#pragma once

namespace ballast {

/// Threads that a call may use, the caller's included: what set_threads() said; else the number in
/// the environment's OMP_NUM_THREADS, as elsewhere; else one for each core that the process may
/// use.
int threads();

/// Sets threads() for all calls from now on, in every thread. Below 1 goes back to the default.
/// Results do not depend on it.
void set_threads(int count);

}  // namespace ballast
