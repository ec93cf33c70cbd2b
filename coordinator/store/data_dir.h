// The folder of a store: whose it is, and the quarantine for unknown things found in it.
//
//   <data-dir>/.hearth-data   the marker: a random id, which store.db records too, and the highest
//                             generation that this folder has seen. A store.db that was put back
//                             from a copy brings the generation of its day and is known by that.
//   <data-dir>/quarantine/<time of the start, UTC>/   what a start found and did not know
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/io/env.h"

namespace hearth::coordinator {

struct Marker {
  int64_t id = 0;          // > 0
  int64_t generation = 0;  // of the last start
};

std::string MarkerPath(const std::string& dir);
std::string MarkerText(const Marker& marker);
// kDataLoss: no marker of ours, or its checksum differs.
absl::StatusOr<Marker> ParseMarker(std::string_view text);

// What a folder contains, before anything in it is changed.
struct FolderState {
  std::optional<Marker> marker;
  bool marker_damaged = false;
  bool has_database = false;        // store.db with something in it
  bool has_jobs = false;            // jobs/ with something in it
  std::vector<std::string> others;  // entries that no coordinator makes; at most 10
};

absl::StatusOr<FolderState> LookAtFolder(Env& env, const std::string& dir);

// Whether a coordinator may open the folder. kFailedPrecondition: it is not a data dir of ours, or
// its store.db is missing; kDataLoss: its marker is damaged. The text says what to do. With
// `restore` a folder of ours is opened whatever is missing; a foreign one is not.
absl::Status AdmitFolder(const FolderState& folder, const std::string& dir, bool restore);

absl::Status WriteMarker(Env& env, const std::string& dir, const Marker& marker);

// Keeps files that must neither stay in place nor be lost. Makes its folder when it gets the first.
class Quarantine {
 public:
  Quarantine(Env& env, std::string data_dir, absl::Time now);

  // `path` lies under the data dir; its place in the quarantine's folder is the same. Durable when
  // it returns OK.
  absl::Status Move(const std::string& path);
  absl::Status Copy(const std::string& path);

  // "" while it is empty.
  const std::string& folder() const { return folder_; }
  int64_t entries() const { return entries_; }

 private:
  // Where `path` goes; makes the folders above it.
  absl::StatusOr<std::string> PlaceFor(const std::string& path);

  Env& env_;
  const std::string data_dir_;
  const std::string stamp_;
  std::string folder_;
  int64_t entries_ = 0;
};

}  // namespace hearth::coordinator
