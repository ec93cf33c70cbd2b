#include "worker/trainer/checkpoint/checkpoint.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/fault/fault.h"
#include "common/io/sha256.h"
#include "common/spec/model/model_shape.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/checkpoint/meta.h"
#include "worker/trainer/checkpoint/shards.h"

namespace hearth::trainer {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTempMark = ".tmp-";

std::string Join(std::string_view dir, std::string_view name) {
  return absl::StrCat(std::string(dir), "/", std::string(name));
}

// Step of "step-00000012"; -1 for any other name, temporary ones included.
int64_t StepOfName(const std::string& name) {
  int64_t step = 0;
  if (!absl::StartsWith(name, "step-") || name.size() < kStepPrefix.size() + 8) {
    return -1;
  }
  if (!absl::SimpleAtoi(name.substr(kStepPrefix.size()), &step) || step < 0) {
    return -1;
  }
  return step;
}

void RemoveTemporaries(Env& env, const std::string& dir) {
  const absl::StatusOr<std::vector<std::string>> names = env.ListDir(dir);
  if (!names.ok()) {
    return;
  }
  // A folder with the mark is of a writer that died: one job has one writer at a time.
  for (const std::string& name : *names) {
    if (absl::StartsWith(name, "step-") && name.find(kTempMark) != std::string::npos) {
      env.RemoveAll(Join(dir, name)).IgnoreError();
    }
  }
}

// Files of `dir` under `prefix`, recursively, in order.
absl::Status ListFiles(Env& env,
                       const std::string& dir,
                       const std::string& prefix,
                       std::vector<std::string>& files) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          env.ListDir(prefix.empty() ? dir : Join(dir, prefix)));
  for (const std::string& name : names) {
    const std::string path = prefix.empty() ? name : Join(prefix, name);
    if (env.IsDirectory(Join(dir, path))) {
      HEARTH_RETURN_IF_ERROR(ListFiles(env, dir, path, files));
    } else {
      files.push_back(path);
    }
  }
  return absl::OkStatus();
}

// `known` files are listed as they are, also those that the folder's listing lacks: whoever wrote
// them has read them once already, and a network file system may list other hosts' files late.
absl::Status WriteManifest(Env& env,
                           const std::string& dir,
                           int64_t step,
                           const std::vector<ManifestEntry>& known,
                           CommittedCheckpoint& done) {
  std::vector<std::string> files;
  HEARTH_RETURN_IF_ERROR(ListFiles(env, dir, "", files));
  for (const ManifestEntry& written : known) {
    files.push_back(written.path);
  }
  std::sort(files.begin(), files.end());
  // Sorted, so that the manifest, and with it its SHA-256, does not depend on the file system.
  files.erase(std::unique(files.begin(), files.end()), files.end());
  std::vector<ManifestEntry> entries;
  for (const std::string& file : files) {
    ManifestEntry entry;
    entry.path = file;
    const auto found =
        std::find_if(known.begin(), known.end(),
                     [&file](const ManifestEntry& written) { return written.path == file; });
    if (found != known.end()) {
      entry = *found;
    } else {
      HEARTH_ASSIGN_OR_RETURN(entry.bytes, env.FileSize(Join(dir, file)));
      HEARTH_ASSIGN_OR_RETURN(
          entry.checksum, ChecksumOfFile(env, Join(dir, file), ChecksumKind::kXxh3, /*threads=*/1));
    }
    done.bytes += entry.bytes;
    entries.push_back(std::move(entry));
  }
  const std::string text = ManifestToJson(step, entries);
  done.bytes += static_cast<int64_t>(text.size());
  done.manifest_sha256 = Sha256Hex(text);
  return env.WriteFileAtomically(Join(dir, kManifestFile), text);
}

// The folder to write into, after what dead writers left. The other ranks hear of it either way.
absl::Status MakeFolder(Env& env,
                        const std::string& dir,
                        const std::string& temp,
                        const CheckpointContent& content) {
  absl::Status made = fault::Check("checkpoint.before_write");
  if (made.ok()) {
    made = env.CreateDirs(dir);
  }
  if (made.ok()) {
    RemoveTemporaries(env, dir);
    made = env.CreateDirs(Join(temp, "state"));
  }
  if (content.sharded.shards > 1) {
    HEARTH_RETURN_IF_ERROR(AnnounceFolder(content, made));
  }
  return made;
}

absl::Status WriteFiles(Env& env,
                        Clock& clock,
                        const std::string& temp,
                        const CheckpointContent& content,
                        CommittedCheckpoint& done) {
  const absl::Duration begin = clock.Monotonic();
  const CheckpointMeta& meta = content.meta;
  if (content.table == nullptr) {
    return absl::InvalidArgumentError("checkpoint without a parameter table");
  }
  const int64_t length = meta.recorded.data().sequence_length();
  HEARTH_ASSIGN_OR_RETURN(const spec::ModelShape shape,
                          spec::ResolveModelShape(meta.model, length));
  const int64_t max_position = meta.model.max_position() > 0 ? meta.model.max_position() : length;
  // Files whose checksums were made while they were written are listed with those and not read
  // again.
  std::vector<ManifestEntry> written;
  HfSource source;
  source.threads = content.threads;
  if (content.reader != nullptr) {
    source.read = [&content](void* to, const void* from, size_t bytes) {
      return content.reader->Read(to, from, bytes);
    };
  }
  HfModel model = {shape, max_position, *content.table, content.weights, content.weights_dtype};
  if (!content.bf16_weights.empty()) {
    model.weights = content.bf16_weights;
  }
  HEARTH_ASSIGN_OR_RETURN(const FileFacts weights, WriteHfModel(env, temp, model, source));
  written.push_back({std::string(kHfWeightsFile), weights.bytes, weights.checksum});
  if (!content.tokenizer_from.empty()) {
    HEARTH_RETURN_IF_ERROR(dataset::CopyTokenizer(content.tokenizer_from, temp, env));
  }
  // Written apart from the weights, whose file other programs read.
  HEARTH_ASSIGN_OR_RETURN(const FileFacts state,
                          WriteTensors(env, Join(temp, kStateFile), content.state, {}, content));
  written.push_back({std::string(kStateFile), state.bytes, state.checksum});
  HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(Join(temp, kMetaFile), MetaToJson(meta)));
  HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(
      Join(temp, kPlansFile), meta.plans_json.empty() ? "{}\n" : meta.plans_json));
  HEARTH_RETURN_IF_ERROR(env.SyncDir(Join(temp, "state")));
  if (content.sharded.shards > 1) {
    // Its own part first: the others write theirs meanwhile.
    HEARTH_ASSIGN_OR_RETURN(const ManifestEntry own, WriteShard(env, temp, content));
    HEARTH_ASSIGN_OR_RETURN(const std::vector<ManifestEntry> others,
                            CollectShards(env, clock, begin, temp, content));
    written.push_back(own);
    written.insert(written.end(), others.begin(), others.end());
  }
  // The manifest is last: it is there only if everything that it lists is.
  HEARTH_RETURN_IF_ERROR(WriteManifest(env, temp, meta.step, written, done));
  return env.SyncDir(temp);
}

absl::Status MoveIntoPlace(Env& env,
                           const std::string& dir,
                           const std::string& temp,
                           const std::string& path) {
  HEARTH_RETURN_IF_ERROR(fault::Check("checkpoint.before_rename"));
  const std::string old = absl::StrCat(path, std::string(kTempMark), "old");
  // A run that was rewound writes a step again. rename(2) does not replace a folder that has files,
  // so the old one steps aside first.
  if (env.Exists(path)) {
    HEARTH_RETURN_IF_ERROR(env.RemoveAll(old));
    HEARTH_RETURN_IF_ERROR(env.Rename(path, old));
  }
  HEARTH_RETURN_IF_ERROR(env.Rename(temp, path));
  // Until the parent folder is synced, a power cut may undo the rename.
  HEARTH_RETURN_IF_ERROR(env.SyncDir(dir));
  HEARTH_RETURN_IF_ERROR(fault::Check("checkpoint.after_rename"));
  if (env.Exists(old)) {
    env.RemoveAll(old).IgnoreError();
  }
  return absl::OkStatus();
}

// Failing to remove is no failure of the checkpoint: the next one tries again.
std::vector<int64_t> Prune(Env& env, const std::string& dir, int32_t keep_last, int64_t newest) {
  std::vector<int64_t> removed;
  if (keep_last <= 0) {
    return removed;
  }
  std::vector<int64_t> steps = ListCheckpointSteps(env, dir);
  // Steps above the new one are of a history that was rewound; they go first.
  std::stable_sort(steps.begin(), steps.end(), [newest](int64_t a, int64_t b) {
    return std::pair(a <= newest, a) < std::pair(b <= newest, b);
  });
  // Never fewer than two: if the newest turns out to be damaged, the one before is resumed from.
  const size_t keep = static_cast<size_t>(std::max(keep_last, 2));
  for (size_t i = 0; i + keep < steps.size(); ++i) {
    const std::string path = CheckpointPath(dir, steps[i]);
    // Renamed first: a crash half-way must not leave a torn folder under a checkpoint's name.
    const std::string gone = absl::StrCat(path, std::string(kTempMark), "gone");
    if (env.Rename(path, gone).ok()) {
      env.RemoveAll(gone).IgnoreError();
      removed.push_back(steps[i]);
    }
  }
  return removed;
}

// What a rank above 0 writes.
absl::StatusOr<CommittedCheckpoint> WritePart(Env& env,
                                              const std::string& temp,
                                              const CheckpointContent& content,
                                              CommittedCheckpoint done) {
  HEARTH_RETURN_IF_ERROR(AwaitFolder(content));
  const absl::StatusOr<ManifestEntry> written = WriteShard(env, temp, content);
  HEARTH_RETURN_IF_ERROR(AnnounceShard(content, written));
  HEARTH_RETURN_IF_ERROR(written.status());
  done.bytes = written->bytes;
  return done;
}

}  // namespace

absl::StatusOr<FileFacts> WriteTensors(Env& env,
                                       const std::string& path,
                                       const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata,
                                       const CheckpointContent& content) {
  if (content.reader == nullptr) {
    return WriteSafetensors(env, path, tensors, metadata, content.threads);
  }
  std::vector<TensorEntry> entries;
  for (const TensorView& t : tensors) {
    entries.push_back({t.name, t.dtype, t.shape});
  }
  const auto fill = [&](size_t index, int64_t begin, absl::Span<uint8_t> out) {
    return content.reader->Read(
        out.data(), static_cast<const uint8_t*>(tensors[index].data) + begin, out.size());
  };
  return WriteSafetensors(env, path, entries, metadata, fill, content.threads);
}

std::string CheckpointPath(std::string_view dir, int64_t step) {
  return absl::StrFormat("%s/step-%08d", std::string(dir), step);
}

std::vector<int64_t> ListCheckpointSteps(Env& env, const std::string& dir) {
  std::vector<int64_t> steps;
  const absl::StatusOr<std::vector<std::string>> names = env.ListDir(dir);
  if (!names.ok()) {
    return steps;
  }
  for (const std::string& name : *names) {
    const int64_t step = StepOfName(name);
    if (step >= 0) {
      steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<CommittedCheckpoint> WriteCheckpoint(Env& env,
                                                    Clock& clock,
                                                    const std::string& dir,
                                                    const CheckpointContent& content,
                                                    int32_t keep_last) {
  const absl::Duration begin = clock.Monotonic();
  CommittedCheckpoint done;
  done.step = content.meta.step;
  done.validation_loss = content.meta.validation_loss;
  done.path = CheckpointPath(dir, done.step);
  const bool sharded = content.sharded.shards > 1;
  // Ranks of a divided checkpoint write into one folder, so its name has what all of them know. A
  // lone writer takes its process's number.
  const std::string temp =
      absl::StrCat(done.path, std::string(kTempMark),
                   sharded ? absl::StrCat("epoch-", content.meta.epoch) : absl::StrCat(getpid()));
  if (sharded && content.sharded.rank > 0) {
    absl::StatusOr<CommittedCheckpoint> part = WritePart(env, temp, content, done);
    return part.ok() ? std::move(part)
                     : Annotate(part.status(), absl::StrCat("checkpoint of step ", done.step,
                                                            ", rank ", content.sharded.rank));
  }
  absl::Status status = MakeFolder(env, dir, temp, content);
  if (status.ok()) {
    status = WriteFiles(env, clock, temp, content, done);
  }
  if (status.ok()) {
    status = MoveIntoPlace(env, dir, temp, done.path);
  }
  if (!status.ok()) {
    env.RemoveAll(temp).IgnoreError();
    return Annotate(status, absl::StrCat("checkpoint of step ", done.step));
  }
  // After the new one is in its place: at no time are there fewer checkpoints than before.
  done.removed_steps = Prune(env, dir, keep_last, done.step);
  done.seconds = absl::ToDoubleSeconds(clock.Monotonic() - begin);
  return done;
}

}  // namespace hearth::trainer
