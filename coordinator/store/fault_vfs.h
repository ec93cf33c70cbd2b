// SQLite's file system of this machine, with fault points at what changes the disk: store.db_write,
// store.db_sync, store.db_truncate and store.db_remove.
#pragma once

#include <string>

namespace hearth::coordinator {

// Its name for SQLite; registers it at the first call. Thread-safe. Action "error" makes the
// operation fail with an I/O error, "full" with a full disk.
const std::string& FaultVfs();

}  // namespace hearth::coordinator
