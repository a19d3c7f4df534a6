# Cross builds for ARM64 Linux on Debian x86-64, with tests under qemu: ./test.sh --arm64.
# ./setup.sh --arm64 installs the compiler, qemu-user and Debian's libraries for ARM64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR /usr/bin/qemu-aarch64)

# Libraries of both processors cannot be installed side by side where a package is not Multi-Arch:
# ./setup.sh unpacks SentencePiece's here.
set(unpacked ${CMAKE_CURRENT_LIST_DIR}/../.cache/arm64)
set(ENV{PKG_CONFIG_LIBDIR} "${unpacked}/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig")
