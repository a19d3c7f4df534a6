#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <string>

#include "ballast/method.h"
#include "ballast/threads.h"
#include "ballast/version.h"
#include "bindings/c/guard.h"

namespace ballast::c {
namespace {

struct Log {
  ballast_log_callback callback = nullptr;
  void* user_data = nullptr;
};

std::mutex log_mutex;
Log current_log;  // under log_mutex

thread_local std::string last_error;

ballast_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return BALLAST_INVALID_ARGUMENT;
    case ErrorCode::bad_file:
      return BALLAST_BAD_FILE;
    case ErrorCode::io:
      return BALLAST_IO;
    case ErrorCode::out_of_memory:
      return BALLAST_OUT_OF_MEMORY;
    case ErrorCode::unsupported:
      return BALLAST_UNSUPPORTED;
    case ErrorCode::not_finite:
      return BALLAST_NOT_FINITE;
    case ErrorCode::over_limit:
      return BALLAST_OVER_LIMIT;
  }
  return BALLAST_INTERNAL;
}

ballast_status keep(ballast_status status, const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();  // no memory for the text; the status says enough
  }
  log(BALLAST_LOG_ERROR, text);
  return status;
}

}  // namespace

void log(ballast_log_level level, const char* line) noexcept {
  Log now;
  {
    const std::lock_guard lock(log_mutex);
    now = current_log;
  }
  if (now.callback != nullptr) now.callback(level, line, now.user_data);
}

ballast_status remember_failure() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return keep(BALLAST_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return keep(BALLAST_INTERNAL, error.what());
  } catch (...) {
    return keep(BALLAST_INTERNAL, "an exception of an unknown kind");
  }
}

}  // namespace ballast::c

using namespace ballast;  // NOLINT

const char* ballast_status_name(ballast_status status) {
  switch (status) {
    case BALLAST_OK:
      return "ok";
    case BALLAST_INVALID_ARGUMENT:
      return "invalid_argument";
    case BALLAST_BAD_FILE:
      return "bad_file";
    case BALLAST_IO:
      return "io";
    case BALLAST_OUT_OF_MEMORY:
      return "out_of_memory";
    case BALLAST_UNSUPPORTED:
      return "unsupported";
    case BALLAST_NOT_FINITE:
      return "not_finite";
    case BALLAST_OVER_LIMIT:
      return "over_limit";
    case BALLAST_INTERNAL:
      return "internal";
  }
  return "unknown";
}

const char* ballast_last_error(void) { return c::last_error.c_str(); }

void ballast_set_log(ballast_log_callback callback, void* user_data) {
  const std::lock_guard lock(c::log_mutex);
  c::current_log = {callback, user_data};
}

const char* ballast_version(void) { return BALLAST_VERSION; }

void ballast_set_threads(int32_t threads) { set_threads(threads); }

int32_t ballast_threads(void) { return threads(); }

size_t ballast_method_count(void) { return methods().size(); }

// Names and titles are literals, which end with a 0.
const char* ballast_method_name(size_t i) {
  return i < methods().size() ? methods()[i]->name.data() : nullptr;
}

const char* ballast_method_title(size_t i) {
  return i < methods().size() ? methods()[i]->title.data() : nullptr;
}
