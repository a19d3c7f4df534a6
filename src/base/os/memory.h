// Pages of memory and of mapped files, and how much memory this process and its machine have. Sizes
// in bytes; addresses and sizes of pages are whole but where said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace ballast {

/// Zeroed memory to read and write, that takes none before it is touched; null: there is none.
/// `surely`: the system counts it now, where it counts at all.
std::byte* map_memory(std::size_t bytes, bool surely = false) noexcept;
/// A file, `bytes` > 0 of it, to read; null with errno.
const std::byte* map_file(int file, std::size_t bytes) noexcept;
void unmap(const std::byte* begin, std::size_t bytes) noexcept;

/// Requests large pages. Nothing changes on a system that has none.
void prefer_large_pages(const std::byte* begin, std::size_t bytes) noexcept;
/// Gives memory back until it is touched again; what it holds is lost.
void give_back(std::byte* begin, std::size_t bytes) noexcept;

/// Of a mapped file, for any part of it. Asks for its pages, and returns before they are there.
void read_pages_ahead(std::span<const std::byte> part) noexcept;
/// Reads them; where the system cannot, the first use of each page waits.
void read_pages(std::span<const std::byte> part) noexcept;
/// Gives back those that lie wholly in the part, unless others use them. `part` begins at `offset`
/// of the open `file`.
void drop_file_pages(std::span<const std::byte> part, int file, std::uint64_t offset) noexcept;

/// The most that this process has held, pages of mapped files included; 0 if the system does not
/// say.
std::size_t peak_memory();
/// Restarts the count, where the system allows it.
void reset_peak_memory();

/// What this process holds now, without pages of these mapped files; 0: unknown.
std::size_t resident_memory(std::span<const std::filesystem::path> files);

/// What processes can still have, and what limits of a container leave this one; the largest number
/// if the system does not say.
std::size_t free_memory();

/// The heap's: what is freed goes back to the system now; arrays of 128 KiB and more do when they
/// are freed, from this call on.
void trim_heap();
void give_back_arrays();

}  // namespace ballast
