// The version of Ballast. CMake reads it from here.
#pragma once

#define BALLAST_VERSION_MAJOR 0
#define BALLAST_VERSION_MINOR 1
#define BALLAST_VERSION_PATCH 0

#define BALLAST_VERSION_TEXT_OF(number) #number
#define BALLAST_VERSION_TEXT(major, minor, patch) \
  BALLAST_VERSION_TEXT_OF(major)                  \
  "." BALLAST_VERSION_TEXT_OF(minor) "." BALLAST_VERSION_TEXT_OF(patch)

/// "major.minor.patch"
#define BALLAST_VERSION \
  BALLAST_VERSION_TEXT(BALLAST_VERSION_MAJOR, BALLAST_VERSION_MINOR, BALLAST_VERSION_PATCH)
