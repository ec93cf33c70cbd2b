#include "coordinator/core/folders/checkpoint_folders.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/gangs/verdict.h"
#include "coordinator/core/transitions.h"

namespace hearth::coordinator {
namespace {

constexpr absl::Duration kLookEvery = absl::Minutes(10);
// A gang that has ended may be followed by others.
constexpr absl::Duration kAfterGang = absl::Seconds(5);
// What an interrupted write left has then been listed without a change: nobody writes it. Times of
// files would not tell where a wall clock has jumped.
constexpr absl::Duration kRestUnchanged = absl::Seconds(45);
// A listing that is younger serves a prune as it is.
constexpr absl::Duration kFresh = absl::Seconds(3);
// File systems have clocks of their own.
constexpr absl::Duration kClockSlack = absl::Minutes(1);
constexpr int kListedMax = 2000;
constexpr int kPrunedMax = 5000;
constexpr size_t kNameMax = 255;

// Nothing that a worker says is joined to a path unseen.
bool WellFormed(const v1::CheckpointFolder& folder) {
  const std::string& name = folder.name();
  const bool named = absl::StartsWith(name, "step-") || absl::StartsWith(name, ".deleted-");
  if (!ValidateJobId(folder.job_id()).ok() || folder.epoch() < 1 || folder.bytes() < 0 ||
      folder.step() < 0 || name.size() > kNameMax || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    return false;
  }
  switch (folder.kind()) {
    case v1::CHECKPOINT_FOLDER_KIND_COMPLETE:
    case v1::CHECKPOINT_FOLDER_KIND_TEMPORARY:
      return named;
    case v1::CHECKPOINT_FOLDER_KIND_EMPTY_EPOCH:
      return name.empty();
    default:
      return false;
  }
}

std::string PathOf(const v1::Worker& worker, const v1::CheckpointFolder& folder) {
  std::string path =
      absl::StrCat(worker.checkpoint_root(), "/", folder.job_id(), "/e", folder.epoch());
  if (!folder.name().empty()) {
    absl::StrAppend(&path, "/", folder.name());
  }
  return path;
}

v1::CoordinatorMessage DeleteMessage(const std::string& job_id,
                                     const std::string& path,
                                     bool only_if_empty) {
  v1::CoordinatorMessage message;
  message.mutable_delete_checkpoint()->set_job_id(job_id);
  message.mutable_delete_checkpoint()->set_path(path);
  message.mutable_delete_checkpoint()->set_only_if_empty(only_if_empty);
  return message;
}

}  // namespace

std::string FolderOn(const v1::Worker& worker, const v1::Checkpoint& checkpoint) {
  // Only the part below the root is the same for all: workers may mount one root at different
  // paths.
  const std::string part = absl::StrCat("/", checkpoint.job_id(), "/e", checkpoint.epoch(), "/");
  const size_t at = checkpoint.path().rfind(part);
  if (at == std::string::npos || worker.checkpoint_root().empty()) {
    return checkpoint.path();
  }
  return worker.checkpoint_root() + checkpoint.path().substr(at);
}

std::vector<CommandRow> CheckpointFolders::Rows() {
  return {
      Row<&CheckpointFolders::Prune>("prune_folders"),
      Row<&CheckpointFolders::Listed>("agent_folders"),
  };
}

bool CheckpointFolders::Sees(const WorkerState& worker) const {
  return !worker.worker().root_uuid().empty() && worker.connection != 0 &&
         !liveness_.Silent(worker, turn_.mono());
}

std::string CheckpointFolders::WhyNotIdleReader(const WorkerState& worker,
                                                const std::string& root_uuid) const {
  if (worker.worker().root_uuid() != root_uuid) {
    return "sees another checkpoint folder";
  }
  if (worker.connection == 0) {
    return "is not connected";
  }
  if (!Sees(worker)) {
    return "does not answer";
  }
  if (!worker.job_id.empty()) {
    return absl::StrCat("runs ", worker.job_id);
  }
  if (!worker.foreign.empty()) {
    return "still ends another task";
  }
  if (worker.Unhealthy()) {
    return "is unhealthy";
  }
  if (worker.Stopping()) {
    return "is stopping";
  }
  return worker.worker().cordoned() ? "is cordoned" : "";
}

const WorkerState* CheckpointFolders::WorkerOfRoot(const std::string& root_uuid) const {
  for (const auto& [id, worker] : workers_.all()) {
    if (worker.worker().root_uuid() == root_uuid && Sees(worker)) {
      return &worker;
    }
  }
  return nullptr;
}

std::map<std::string_view, const WorkerState*> CheckpointFolders::SeersOfRoots() const {
  std::map<std::string_view, const WorkerState*> seers;
  for (const auto& [id, worker] : workers_.all()) {
    if (Sees(worker)) {
      seers.try_emplace(worker.worker().root_uuid(), &worker);
    }
  }
  return seers;
}

void CheckpointFolders::LookAtRootsOf(const JobState& job) {
  for (const v1::RankRecord& rank : job.record().ranks()) {
    roots_.LookAt(workers_.at(rank.worker_id()).worker().root_uuid(), kAfterGang, turn_.mono());
  }
}

void CheckpointFolders::AskForListings() {
  std::optional<std::map<std::string_view, const WorkerState*>> seers;  // made when somebody asks
  const auto worker_of = [this, &seers](const std::string& uuid) -> const WorkerState* {
    if (!seers.has_value()) {
      seers = SeersOfRoots();
    }
    const auto found = seers->find(uuid);
    return found == seers->end() ? nullptr : found->second;
  };
  const auto is_open = [this](uint64_t id) { return workers_.OnConnection(id) != nullptr; };
  for (const std::string& uuid : roots_.TakeDue(worker_of, is_open, turn_.mono())) {
    const WorkerState& worker = *worker_of(uuid);
    v1::CoordinatorMessage message;
    message.mutable_list_checkpoints()->set_request_id(roots_.Ask(uuid, worker, turn_.mono()));
    turn_.Send(worker, std::move(message));
  }
}

void CheckpointFolders::Drop(const v1::Checkpoint& checkpoint) {
  if (const WorkerState* worker = WorkerOfRoot(checkpoint.root_uuid())) {
    v1::CoordinatorMessage message;
    message.mutable_delete_checkpoint()->set_job_id(checkpoint.job_id());
    message.mutable_delete_checkpoint()->set_path(FolderOn(worker->worker(), checkpoint));
    turn_.Send(*worker, std::move(message));
  }
  // Otherwise it is found when a worker connects.
}

CheckpointFolders::Leftover CheckpointFolders::JudgeFolder(
    const v1::CheckpointFolder& folder) const {
  Leftover out;
  const auto found = jobs_.all().find(folder.job_id());
  if (found == jobs_.all().end()) {
    out.needed = false;
    out.reason = "no job here has this id: it was deleted, or is another coordinator's";
    return out;
  }
  const JobState& job = found->second;
  const v1::Job& view = job.job();
  if (folder.epoch() == view.epoch() && !AllGone(job.record())) {
    return out;  // being written, or announced by a report that has not arrived
  }
  const auto& kept = job.record().checkpoints();
  const bool complete = folder.kind() == v1::CHECKPOINT_FOLDER_KIND_COMPLETE;
  if (complete && std::any_of(kept.begin(), kept.end(), [&folder](const v1::Checkpoint& c) {
        return c.epoch() == folder.epoch() && c.step() == folder.step();
      })) {
    return out;
  }
  out.needed = false;
  if (folder.epoch() > view.epoch()) {
    out.reason =
        "its epoch has not been reached by the job: it is from an earlier job of this name, or the "
        "coordinator's store was put back from an older copy";
    return out;
  }
  if (folder.kind() == v1::CHECKPOINT_FOLDER_KIND_EMPTY_EPOCH) {
    out.by_itself = true;
    out.reason = "an ended epoch without a checkpoint";
    return out;
  }
  const absl::Time changed = FromProto(folder.change_time());
  const bool over = IsTerminal(job.state()) || folder.epoch() == view.epoch();
  // Until when this epoch may have written: the end of the job, or the start of the epoch that came
  // next.
  const absl::Time last = FromProto(over ? view.state_time() : job.record().epoch_time());
  // Changed at another time, it is of another job of this name. Then people decide.
  const bool ours = changed >= FromProto(view.create_time()) && changed <= last + kClockSlack;
  const bool overtaken = view.has_checkpoint() && folder.step() <= view.checkpoint().step();
  out.reason = !complete   ? "the rest of an interrupted write or removal"
               : overtaken ? "no record names it, and a later checkpoint is recorded"
                           : "no record names it: it was finished after its epoch had ended";
  if (!ours) {
    absl::StrAppend(&out.reason, "; changed when this job did not run");
  }
  out.by_itself = ours && (!complete || overtaken);
  out.rest = !complete;
  return out;
}

void CheckpointFolders::RemoveFolder(const WorkerState& worker,
                                     const v1::CheckpointFolder& folder) {
  turn_.Send(worker, DeleteMessage(folder.job_id(), PathOf(worker.worker(), folder),
                                   folder.kind() == v1::CHECKPOINT_FOLDER_KIND_EMPTY_EPOCH));
}

void CheckpointFolders::Listed(const AgentFolders& command) {
  const WorkerState* worker = workers_.OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  const std::string& uuid = worker->worker().root_uuid();
  if (!roots_.TakeAnswer(uuid, command.connection_id, command.folders, turn_.now())) {
    return;
  }
  std::vector<v1::CheckpointFolder> kept;
  bool removed = false;
  bool waits = false;
  for (const v1::CheckpointFolder& folder : command.folders.folders()) {
    // A folder whose name we would never choose is not ours: leave it.
    if (static_cast<int>(kept.size()) >= kListedMax || !WellFormed(folder)) {
      continue;
    }
    const Leftover judged = JudgeFolder(folder);
    const bool rest = judged.rest && roots_.Unchanged(uuid, folder, turn_.mono()) >= kRestUnchanged;
    if (judged.by_itself || rest) {
      RemoveFolder(*worker, folder);
      removed = true;
    } else {
      kept.push_back(folder);
      waits = waits || judged.rest;
    }
  }
  roots_.Keep(uuid, std::move(kept), turn_.mono());
  // More of a long list shows when what could go has gone.
  const bool more = command.folders.truncated() && removed;
  roots_.LookAt(uuid,
                more    ? absl::ZeroDuration()
                : waits ? kRestUnchanged
                        : kLookEvery,
                turn_.mono());
}

std::vector<v1::JobFolder> CheckpointFolders::FoldersOf(const JobState& job) const {
  const std::string& id = job.job().job_id();
  std::map<std::string, std::string> paths;  // by root; as the newest record names it
  for (const v1::Checkpoint& checkpoint : job.record().checkpoints()) {
    const size_t end = checkpoint.path().rfind(absl::StrCat("/", id, "/e"));
    paths.try_emplace(checkpoint.root_uuid(),
                      end == std::string::npos ? checkpoint.path()
                                               : checkpoint.path().substr(0, end + 1 + id.size()));
  }
  for (const auto& [uuid, root] : roots_.all()) {
    if (std::any_of(root.folders.begin(), root.folders.end(),
                    [&id](const auto& folder) { return folder.job_id() == id; })) {
      // Seen in a listing, while no record names its path.
      paths.try_emplace(uuid, "");
    }
  }
  std::vector<v1::JobFolder> folders;
  for (const auto& [uuid, path] : paths) {
    v1::JobFolder& folder = folders.emplace_back();
    folder.set_root_uuid(uuid);
    folder.set_path(path);
    if (const WorkerState* worker = WorkerOfRoot(uuid)) {
      folder.set_worker_id(worker->worker().worker_id());
      folder.set_path(absl::StrCat(worker->worker().checkpoint_root(), "/", id));
    }
  }
  return folders;
}

void CheckpointFolders::PruneRoot(const v1::PruneCheckpointsRequest& request,
                                  const std::string& uuid,
                                  const Root& root,
                                  v1::PruneCheckpointsResponse& response) {
  const WorkerState* worker = WorkerOfRoot(uuid);
  const WorkerState* lister = workers_.Find(root.worker_id);
  std::set<std::string> emptied;  // unknown jobs of which something goes
  std::vector<v1::CheckpointFolder> rest;
  for (const v1::CheckpointFolder& folder : root.folders) {
    const Leftover judged = JudgeFolder(folder);
    const bool asked_for = request.job_id().empty() || request.job_id() == folder.job_id();
    if (judged.needed || !asked_for || response.folders_size() >= kPrunedMax) {
      response.set_truncated(response.truncated() || (!judged.needed && asked_for));
      rest.push_back(folder);
      continue;
    }
    v1::PrunableFolder& out = *response.add_folders();
    // If all workers of a root are forgotten, only the path below the root is known.
    const WorkerState* seen_by = worker != nullptr ? worker : lister;
    out.set_path(PathOf(seen_by == nullptr ? v1::Worker() : seen_by->worker(), folder));
    out.set_worker_id(seen_by == nullptr ? root.worker_id : seen_by->worker().worker_id());
    out.set_root_uuid(uuid);
    out.set_reason(judged.reason);
    const bool unknown = jobs_.Find(folder.job_id()) == nullptr;
    const absl::Duration age = turn_.wall() - FromProto(folder.change_time());
    if (worker == nullptr) {
      out.set_kept("no connected worker sees this root");
    } else if (unknown && age < absl::Seconds(request.min_age_seconds())) {
      out.set_kept(absl::StrCat("changed ",
                                absl::FormatDuration(absl::Trunc(age, absl::Seconds(1))),
                                " ago: another coordinator's job may be writing it"));
    }
    *out.mutable_folder() = folder;
    if (request.dry_run() || !out.kept().empty()) {
      rest.push_back(folder);
      continue;
    }
    RemoveFolder(*worker, folder);
    if (unknown) {
      emptied.insert(folder.job_id());
    }
  }
  roots_.Keep(uuid, std::move(rest), turn_.mono());
  for (const std::string& id : emptied) {
    const std::string path = absl::StrCat(worker->worker().checkpoint_root(), "/", id);
    turn_.Send(*worker, DeleteMessage(id, path, /*only_if_empty=*/true));
  }
}

void CheckpointFolders::Prune(const v1::PruneCheckpointsRequest& request) {
  if (request.min_age_seconds() < 0) {
    turn_.ReplyError(MakeError(absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
                               absl::StrCat("min_age_seconds is ", request.min_age_seconds(),
                                            "; it must not be negative")));
    return;
  }
  v1::PruneCheckpointsResponse response;
  for (const auto& [uuid, root] : roots_.all()) {
    const WorkerState* worker = WorkerOfRoot(uuid);
    if (request.dry_run() && worker != nullptr && turn_.mono() - root.listed > kFresh) {
      roots_.LookNow(uuid, turn_.mono());
    }
    if (!root.worker_id.empty()) {
      PruneRoot(request, uuid, root, response);
    }
    v1::CheckpointRootState& state = *response.add_roots();
    state.set_root_uuid(uuid);
    state.set_worker_id(root.worker_id);
    state.set_pending(root.connection != 0 || (worker != nullptr && root.due <= turn_.mono()));
    state.set_truncated(root.truncated);
    if (root.list_time.has_value()) {
      *state.mutable_list_time() = ToProto(*root.list_time);
    }
  }
  turn_.ReplyOk().pruned = std::move(response);
}

}  // namespace hearth::coordinator
