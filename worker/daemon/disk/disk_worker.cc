#include "worker/daemon/disk/disk_worker.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clip_text.h"
#include "common/dataset/dataset.h"
#include "common/hf/hf_config.h"
#include "common/io/disk.h"
#include "common/log/log.h"
#include "common/log/task_scope.h"
#include "common/time/clock.h"

namespace hearth::worker {
namespace {

constexpr size_t kMaxRequests = 4096;
// As in agent.proto.
constexpr int kMaxFolders = 2000;
constexpr int64_t kMaxPieceBytes = 256 << 10;
constexpr size_t kMaxErrorBytes = 1024;
constexpr absl::Duration kSpacePeriod = absl::Seconds(10);

void InspectModel(const std::string& path, Env& env, v1::PathInfo& info) {
  info.set_kind("model");
  const absl::StatusOr<v1::ModelSpec> model = hf::ReadHfConfig(path, env);
  if (!model.ok()) {
    info.set_error(std::string(model.status().message()));
    return;
  }
  *info.mutable_model() = *model;
  info.set_vocab(model->vocab());
  if (!env.Exists(path + "/model.safetensors") &&
      !env.Exists(path + "/model.safetensors.index.json")) {
    info.set_error(absl::StrCat(path, " has config.json but no model.safetensors"));
  }
}

void ReadTokenizer(facts::TokenizerReader& tokenizers, v1::PathInfo& info) {
  if (!info.error().empty()) {
    return;
  }
  const absl::StatusOr<v1::TokenizerFacts> facts = tokenizers.Read(info.path());
  if (!facts.ok()) {
    info.set_error(std::string(facts.status().message()));
  } else if (!facts->kind().empty()) {
    *info.mutable_tokenizer() = *facts;
  }
}

}  // namespace

v1::PathInfo InspectPath(const std::string& path, Env& env, facts::TokenizerReader& tokenizers) {
  v1::PathInfo info;
  info.set_path(path);
  if (!env.Exists(path)) {
    info.set_error(absl::StrCat(path, ": no such file or folder"));
    return info;
  }
  if (env.Exists(path + "/config.json") && !env.Exists(path + "/dataset.json")) {
    InspectModel(path, env, info);
    ReadTokenizer(tokenizers, info);
    return info;
  }
  const auto dataset = dataset::Dataset::Open(path, env);
  if (!dataset.ok()) {
    info.set_error(std::string(dataset.status().message()));
    return info;
  }
  const std::string_view kind = dataset::KindName((*dataset)->kind());
  info.set_kind(kind.data(), kind.size());
  info.set_tokens((*dataset)->tokens());
  info.set_vocab((*dataset)->vocab());
  info.set_loss_mask((*dataset)->has_mask());
  ReadTokenizer(tokenizers, info);
  return info;
}

DiskWorker::DiskWorker(const CheckpointRoot& root, Env& env, Answer answer)
    : root_(root), env_(env), tokenizers_(env), answer_(std::move(answer)), thread_([this] {
        Run();
      }) {}

DiskWorker::~DiskWorker() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void DiskWorker::Inspect(const v1::InspectPaths& request) {
  Post(request);
}

void DiskWorker::Delete(const v1::DeleteCheckpointFolder& request) {
  Post(request);
}

void DiskWorker::List(const v1::ListCheckpointFolders& request) {
  Post(request);
}

void DiskWorker::Read(const v1::ReadCheckpointFile& request) {
  Post(request);
}

void DiskWorker::Post(Request request) {
  absl::MutexLock lock(&mu_);
  if (queue_.size() >= kMaxRequests) {
    HEARTH_LOG_WARNING("{} requests about files wait; one more is dropped", queue_.size());
    return;
  }
  queue_.push_back(std::move(request));
}

void DiskWorker::Run() {
  prctl(PR_SET_NAME, "disk");
  absl::Duration look = -absl::InfiniteDuration();
  while (true) {
    if (Clock::Real().Monotonic() - look >= kSpacePeriod) {
      look = Clock::Real().Monotonic();
      const absl::StatusOr<DiskSpace> space = ReadDiskSpace(root_.path());
      free_bytes_.store(space.ok() ? space->free_bytes : 0, std::memory_order_relaxed);
    }
    const std::optional<Request> request = Take();
    if (request.has_value()) {
      std::visit([this](const auto& value) { Do(value); }, *request);
    }
    absl::MutexLock lock(&mu_);
    if (stopping_) {
      return;
    }
  }
}

std::optional<DiskWorker::Request> DiskWorker::Take() {
  const auto ready = [this] {
    mu_.AssertHeld();
    return stopping_ || !queue_.empty();
  };
  absl::MutexLock lock(&mu_);
  mu_.AwaitWithTimeout(absl::Condition(&ready), kSpacePeriod);
  if (stopping_ || queue_.empty()) {
    return std::nullopt;
  }
  Request request = std::move(queue_.front());
  queue_.pop_front();
  return request;
}

void DiskWorker::Do(const v1::InspectPaths& request) {
  v1::AgentMessage message;
  v1::InspectPathsResult& result = *message.mutable_inspect_result();
  result.set_request_id(request.request_id());
  for (const std::string& path : request.paths()) {
    *result.add_paths() = InspectPath(path, env_, tokenizers_);
  }
  answer_(std::move(message));
}

void DiskWorker::Do(const v1::DeleteCheckpointFolder& request) {
  const log::TaskScope scope(request.job_id(), -1);
  const absl::Status status = request.only_if_empty()
                                  ? root_.DeleteIfEmpty(request.job_id(), request.path())
                                  : root_.Delete(request.job_id(), request.path());
  if (status.ok()) {
    HEARTH_LOG_INFO("{}: removed {}", request.job_id(), request.path());
  } else {
    HEARTH_LOG_WARNING("{}: checkpoint not removed: {}", request.job_id(), status.ToString());
  }
}

void DiskWorker::Do(const v1::ListCheckpointFolders& request) {
  v1::AgentMessage message;
  *message.mutable_checkpoint_folders() =
      root_.List(kMaxFolders, [this] { return AnswerMeanwhile(); });
  message.mutable_checkpoint_folders()->set_request_id(request.request_id());
  answer_(std::move(message));
}

void DiskWorker::Do(const v1::ReadCheckpointFile& request) {
  v1::AgentMessage message;
  v1::CheckpointFileBytes& answer = *message.mutable_checkpoint_bytes();
  answer.set_request_id(request.request_id());
  absl::StatusOr<CheckpointRoot::Piece> piece =
      root_.Read(request.job_id(), request.path(), request.file(), request.offset(),
                 std::min<int64_t>(request.max_bytes(), kMaxPieceBytes));
  if (piece.ok()) {
    answer.set_data(std::move(piece->data));
    answer.set_file_bytes(piece->file_bytes);
  } else {
    answer.set_code(static_cast<int32_t>(piece.status().code()));
    answer.set_error(ClipText(std::string(piece.status().message()), kMaxErrorBytes));
  }
  answer_(std::move(message));
}

bool DiskWorker::AnswerMeanwhile() {
  std::vector<Request> waiting;
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) {
      return false;
    }
    std::erase_if(queue_, [&waiting](const Request& request) {
      // People wait for these two; a listing of a large root takes long.
      const bool quick = std::holds_alternative<v1::InspectPaths>(request) ||
                         std::holds_alternative<v1::ReadCheckpointFile>(request);
      if (quick) {
        waiting.push_back(request);
      }
      return quick;
    });
  }
  for (const Request& request : waiting) {
    std::visit([this](const auto& value) { Do(value); }, request);
  }
  return true;
}

}  // namespace hearth::worker
