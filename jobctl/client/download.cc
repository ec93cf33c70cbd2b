#include "jobctl/client/download.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/sha256.h"
#include "common/weights/manifest.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

// Thousands of files have less.
constexpr size_t kManifestMax = size_t{64} << 20;

std::string Join(const std::string& dir, std::string_view name) {
  return absl::StrCat(dir, "/", std::string(name));
}

// The step that an interrupted download is of; 0 = there is none.
int64_t InterruptedStep(Env& env, const std::string& dir) {
  const absl::StatusOr<std::string> text = env.ReadFile(Join(dir, weights::kManifestFile));
  const auto json = text.ok() ? nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false)
                              : nlohmann::json();
  const auto step = json.is_object() ? json.find("step") : json.end();
  return json.is_object() && step != json.end() && step->is_number_integer() ? step->get<int64_t>()
                                                                             : 0;
}

class Download {
 public:
  Download(Env& env,
           Client& client,
           const DownloadOptions& options,
           const DownloadRetry& retry,
           const std::function<void(const DownloadProgress&)>& progress)
      : env_(env),
        client_(client),
        options_(options),
        retry_(retry),
        progress_(progress),
        partial_(absl::StrCat(options.out, ".downloading")) {}

  absl::StatusOr<Downloaded> Run() {
    if (env_.Exists(options_.out)) {
      return absl::AlreadyExistsError(
          absl::StrCat(options_.out, ": already there; it is not replaced"));
    }
    HEARTH_RETURN_IF_ERROR(Begin());
    for (const weights::ManifestEntry& entry : entries_) {
      HEARTH_RETURN_IF_ERROR(Fetch(entry));
    }
    for (const weights::ManifestEntry& entry : entries_) {
      const absl::Status sound = weights::CheckSums(env_, partial_, {entry});
      if (absl::IsDataLoss(sound)) {
        // Removed, so that a repeated command fetches it again instead of continuing after wrong
        // bytes.
        HEARTH_RETURN_IF_ERROR(env_.RemoveAll(Join(partial_, entry.path)));
      }
      HEARTH_RETURN_IF_ERROR(sound);
    }
    HEARTH_RETURN_IF_ERROR(Finish());
    return done_;
  }

 private:
  // Which checkpoint, and which of its files; the folder for them.
  absl::Status Begin() {
    const int64_t interrupted = InterruptedStep(env_, partial_);
    absl::Status status = absl::NotFoundError("");
    // Without a step the newest checkpoint is meant, but an interrupted download is finished first.
    if (options_.step == 0 && interrupted > 0) {
      status = TakeManifest(interrupted);
    }
    // It may have been removed since.
    if (absl::IsNotFound(status)) {
      status = TakeManifest(options_.step);
    }
    HEARTH_RETURN_IF_ERROR(status);
    const std::string file = Join(partial_, weights::kManifestFile);
    const absl::StatusOr<std::string> before = env_.ReadFile(file);
    if (!before.ok() || *before != manifest_) {
      // The files here are of another checkpoint, or the checkpoint was written again.
      HEARTH_RETURN_IF_ERROR(env_.RemoveAll(partial_));
      HEARTH_RETURN_IF_ERROR(env_.CreateDirs(partial_));
      HEARTH_RETURN_IF_ERROR(env_.WriteFileAtomically(file, manifest_));
    }
    HEARTH_ASSIGN_OR_RETURN(entries_, weights::ParseManifest(manifest_, Where()));
    if (!options_.state) {
      std::erase_if(entries_, [](const weights::ManifestEntry& entry) {
        return !weights::IsModelFile(entry.path);
      });
    }
    for (const weights::ManifestEntry& entry : entries_) {
      done_.bytes += entry.bytes;
    }
    done_.files = static_cast<int64_t>(entries_.size());
    return absl::OkStatus();
  }

  std::string Where() const {
    return absl::StrCat("MANIFEST.json of step ", done_.checkpoint.step(), " of ", options_.job_id);
  }

  absl::Status TakeManifest(int64_t step) {
    v1::DownloadCheckpointRequest request;
    request.set_job_id(options_.job_id);
    request.set_step(step);
    const auto once = [&](const std::function<void()>& progressed) -> absl::Status {
      manifest_.clear();
      bool too_long = false;
      const absl::Status ended =
          client_.DownloadCheckpoint(request, [&](const v1::DownloadCheckpointResponse& response) {
            progressed();
            if (response.has_checkpoint()) {
              done_.checkpoint = response.checkpoint();
            }
            manifest_ += response.data();
            too_long = manifest_.size() > kManifestMax;
            return !too_long;
          });
      return too_long ? absl::DataLossError(absl::StrCat(Where(), " is too long")) : ended;
    };
    HEARTH_RETURN_IF_ERROR(retry_(once));
    const std::string& recorded = done_.checkpoint.manifest_sha256();
    if (!recorded.empty() && Sha256Hex(manifest_) != recorded) {
      return absl::DataLossError(
          absl::StrCat(Where(), ": SHA-256 is ", Sha256Hex(manifest_), ", recorded ", recorded));
    }
    return absl::OkStatus();
  }

  // Bytes of the file that are here.
  absl::StatusOr<int64_t> Have(const weights::ManifestEntry& entry, const std::string& path) {
    if (!env_.Exists(path)) {
      return 0;
    }
    HEARTH_ASSIGN_OR_RETURN(const int64_t size, env_.FileSize(path));
    if (size > entry.bytes) {
      HEARTH_RETURN_IF_ERROR(env_.Truncate(path, entry.bytes));
    }
    return std::min(size, entry.bytes);
  }

  absl::Status Fetch(const weights::ManifestEntry& entry) {
    const std::string path = Join(partial_, entry.path);
    HEARTH_RETURN_IF_ERROR(env_.CreateDirs(std::filesystem::path(path).parent_path().string()));
    HEARTH_ASSIGN_OR_RETURN(int64_t have, Have(entry, path));
    here_ += have;
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, env_.NewAppendableFile(path));
    if (have < entry.bytes) {
      // Each attempt goes on from `have`, which Take has moved.
      HEARTH_RETURN_IF_ERROR(retry_([&](const std::function<void()>& progressed) {
        return FetchFrom(entry, *file, have, progressed);
      }));
    }
    if (have != entry.bytes) {
      return absl::DataLossError(
          absl::StrCat(path, ": ", have, " bytes came, the manifest says ", entry.bytes));
    }
    HEARTH_RETURN_IF_ERROR(file->Sync());
    return file->Close();
  }

  // One stream, from `have` on.
  absl::Status FetchFrom(const weights::ManifestEntry& entry,
                         WritableFile& file,
                         int64_t& have,
                         const std::function<void()>& progressed) {
    v1::DownloadCheckpointRequest request;
    request.set_job_id(options_.job_id);
    request.set_step(done_.checkpoint.step());
    request.set_file(entry.path);
    request.set_offset(have);
    absl::Status wrong;
    const absl::Status ended =
        client_.DownloadCheckpoint(request, [&](const v1::DownloadCheckpointResponse& response) {
          progressed();
          wrong = Take(entry, response, file, have);
          return wrong.ok();
        });
    return wrong.ok() ? ended : wrong;
  }

  absl::Status Take(const weights::ManifestEntry& entry,
                    const v1::DownloadCheckpointResponse& response,
                    WritableFile& file,
                    int64_t& have) {
    if (response.has_checkpoint() &&
        response.checkpoint().manifest_sha256() != done_.checkpoint.manifest_sha256()) {
      return absl::AbortedError(
          absl::StrCat("the checkpoint of step ", done_.checkpoint.step(),
                       " was replaced while it was copied; repeat the command"));
    }
    const auto size = static_cast<int64_t>(response.data().size());
    if (response.file_bytes() != entry.bytes || have + size > entry.bytes) {
      return absl::DataLossError(absl::StrCat(entry.path, ": the worker has ",
                                              response.file_bytes(), " bytes, the manifest says ",
                                              entry.bytes));
    }
    HEARTH_RETURN_IF_ERROR(file.Append(response.data()));
    have += size;
    here_ += size;
    done_.fetched += size;
    progress_({entry.path, here_, done_.bytes});
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (!options_.state) {
      // Without the state, the manifest names only the files that are here, so that the folder can
      // be verified.
      HEARTH_RETURN_IF_ERROR(
          env_.WriteFileAtomically(Join(partial_, weights::kManifestFile),
                                   weights::ManifestToJson(done_.checkpoint.step(), entries_)));
    }
    HEARTH_RETURN_IF_ERROR(env_.SyncDir(partial_));
    HEARTH_RETURN_IF_ERROR(env_.Rename(partial_, options_.out));
    const std::string parent = std::filesystem::path(options_.out).parent_path().string();
    return env_.SyncDir(parent.empty() ? "." : parent);
  }

  Env& env_;
  Client& client_;
  const DownloadOptions& options_;
  const DownloadRetry& retry_;
  const std::function<void(const DownloadProgress&)>& progress_;
  const std::string partial_;
  std::string manifest_;
  std::vector<weights::ManifestEntry> entries_;
  int64_t here_ = 0;
  Downloaded done_;
};

}  // namespace

absl::StatusOr<Downloaded> DownloadCheckpoint(
    Env& env,
    Client& client,
    const DownloadOptions& options,
    const DownloadRetry& retry,
    const std::function<void(const DownloadProgress&)>& progress) {
  return Download(env, client, options, retry, progress).Run();
}

}  // namespace hearth::jobctl
