#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace mft {

/// Writes what is written to a file, or the names in a folder, to the disk itself. Darwin's fsync would leave it in the
/// disk's cache. Returns 0, or -1 with errno, as fsync does.
int sync_to_disk(int descriptor);

/// Makes the file `bytes` long and reserves that room, so that no write into it finds the disk full. Returns 0 or an
/// error number, as posix_fallocate does.
int reserve_on_disk(int descriptor, uint64_t bytes);

/// Opens a file for reads of its first `bytes` from the disk, past the page cache. Returns -1 if it cannot be opened.
int open_uncached(const std::string& path, uint64_t bytes);

/// When a file was last changed.
timespec change_time(const struct stat& status);

}  // namespace mft
