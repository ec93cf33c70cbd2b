// A thin layer over SQLite's C API: statuses instead of result codes, RAII instead of finalize.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace hearth::coordinator {

// A prepared statement. Parameters and columns are bound and read in order, so a call site reads
// like the SQL text. Not thread-safe; must not outlive its Database.
class Statement {
 public:
  Statement() = default;
  Statement(sqlite3* db, sqlite3_stmt* stmt) : db_(db), stmt_(stmt) {}
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;

  // Bind the next parameter. A failed bind is remembered and returned by Step or Run.
  Statement& Text(std::string_view value);
  Statement& Blob(std::string_view value);
  Statement& Int(int64_t value);

  // True while there is a row.
  absl::StatusOr<bool> Step();
  // Executes to the end and makes the statement ready for the next set of parameters.
  absl::Status Run();
  void Reset();

  int64_t ColumnInt(int column) const;
  // Bytes of a text or blob column.
  std::string ColumnBytes(int column) const;

 private:
  sqlite3* db_ = nullptr;
  sqlite3_stmt* stmt_ = nullptr;
  int next_parameter_ = 1;
  int bind_error_ = 0;
};

// One connection. kResourceExhausted: disk full; kDataLoss: file damaged or no database;
// kUnavailable: locked by another process for longer than the busy timeout; kPermissionDenied;
// kInternal. Every text names the file.
//
// SQL may call row_crc(x, ...): CRC-32C over the types, lengths and bytes of its arguments.
class Database {
 public:
  ~Database();
  // Creates the file if absent. WAL, synchronous=FULL, busy timeout 5 s. `vfs`: the registered file
  // system of SQLite's that has the file; "" = the machine's, with fault points while faults are
  // configured.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const std::string& vfs = "");
  // Changes nothing in the file. kPermissionDenied: absent.
  static absl::StatusOr<std::unique_ptr<Database>> OpenReadOnly(const std::string& path,
                                                                const std::string& vfs = "");

  // What PRAGMA integrity_check finds, at most `max` lines; empty = the file is sound.
  absl::StatusOr<std::vector<std::string>> FindDamage(int max);

  // Copies the database, as committed at one moment, to a new file and syncs it; others may write
  // meanwhile (SQLite's online backup). The copy needs no -wal beside it.
  absl::Status BackupTo(const std::string& path);

  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(std::string_view sql);

 private:
  explicit Database(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<std::unique_ptr<Database>> OpenWith(const std::string& path,
                                                            int flags,
                                                            const std::string& vfs = "");

  std::string path_;
  sqlite3* db_ = nullptr;
};

}  // namespace hearth::coordinator
