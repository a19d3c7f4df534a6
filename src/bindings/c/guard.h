// What stands between C and exceptions.
#pragma once

#include <cstring>
#include <utility>

#include "ballast.h"
#include "base/fail.h"

namespace ballast::c {

/// For a handler: keeps the text of the current exception for ballast_last_error(), logs it, and
/// returns its status.
ballast_status remember_failure() noexcept;

/// Sends a line to the log, if there is one.
void log(ballast_log_level level, const char* line) noexcept;

/// Runs `body`; no exception leaves it.
template <typename Body>
ballast_status guarded(Body&& body) noexcept {
  try {
    body();
    return BALLAST_OK;
  } catch (...) {
    return remember_failure();
  }
}

/// Throws Error if a pointer that must be given is null.
template <typename T>
T& given(T* pointer, const char* name) {
  require(pointer != nullptr, "{} is NULL", name);
  return *pointer;
}

/// The caller's struct, completed with what `standard` has beyond the fields that the caller's
/// header knew. Throws Error on a size that no header had.
template <typename T>
T read_struct(const T* from, T standard, const char* name) {
  if (from == nullptr) return standard;
  const std::size_t size = from->size;
  require(size > sizeof(std::size_t),
          "{}: size is {}; take the struct from its default function, which sets it", name, size);
  require(size <= sizeof(T), "{}: {} bytes, but this library knows {}: it is older than the header",
          name, size, sizeof(T));
  std::memcpy(&standard, from, size);
  standard.size = sizeof(T);
  return standard;
}

/// Writes to the caller's struct what its header knew. Throws Error as read_struct().
template <typename T>
void write_struct(T from, T* to, const char* name) {
  given(to, name);
  read_struct<T>(to, from, name);
  from.size = to->size;
  std::memcpy(to, &from, from.size);
}

/// Copies `count` elements out and says how many there are. Throws Error when there is room for
/// some only.
template <typename T>
void write_array(const T* from, std::size_t count, T* to, std::size_t capacity,
                 std::size_t* out_count, const char* name) {
  given(out_count, "count");
  require(capacity == 0 || capacity >= count, "{}: room for {}, {} are needed", name, capacity,
          count);
  require(capacity == 0 || to != nullptr, "{} is NULL, but its capacity is {}", name, capacity);
  *out_count = count;
  if (capacity != 0 && count != 0) std::memcpy(to, from, count * sizeof(T));
}

}  // namespace ballast::c
