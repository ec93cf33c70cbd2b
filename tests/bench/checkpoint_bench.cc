// How long a checkpoint stops training, how fast it is written beside what the disk takes
// sequentially, and how fast it is verified and read. On the host; the way from a GPU is part of
// `hearth-trainer run` alone.
//   bench_checkpoint DIR [GIB [THREADS]]
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/io/chunk_threads.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/plan/parameter_table.h"
#include "worker/trainer/checkpoint/background_writer.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kTensorBytes = int64_t{64} << 20;

double Now() {
  return absl::ToDoubleSeconds(Clock::Real().Monotonic());
}

void Print(const char* what, double seconds, int64_t bytes) {
  std::printf("%-34s %8.3f s", what, seconds);
  if (bytes > 0) {
    std::printf(" %8.2f GB/s", static_cast<double>(bytes) / seconds * 1e-9);
  }
  std::printf("\n");
}

// Seconds in which one thread writes so many bytes from one end of a file to the other.
absl::StatusOr<double> WriteSequentially(const std::string& path, int64_t bytes, bool direct) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (direct ? O_DIRECT : 0), 0644);
  if (fd < 0) {
    return absl::UnavailableError("cannot open " + path);
  }
  void* const buffer = std::aligned_alloc(kDirectWriteBytes, kFileChunkBytes);
  std::memset(buffer, 37, kFileChunkBytes);
  const double begin = Now();
  bool good = true;
  for (int64_t done = 0; good && done < bytes; done += kFileChunkBytes) {
    good = write(fd, buffer, kFileChunkBytes) == kFileChunkBytes;
  }
  good = good && fsync(fd) == 0;
  const double seconds = Now() - begin;
  close(fd);
  std::free(buffer);
  std::remove(path.c_str());
  return good ? absl::StatusOr<double>(seconds) : absl::UnavailableError("cannot write " + path);
}

v1::ModelSpec Model() {
  v1::ModelSpec s;
  s.set_layers(1);
  s.set_hidden(16);
  s.set_heads(4);
  s.set_kv_heads(4);
  s.set_head_dim(4);
  s.set_ffn_hidden(32);
  s.set_vocab(128);
  s.set_norm("rmsnorm");
  s.set_norm_eps(1e-5);
  s.set_position("rope");
  s.set_rope_theta(10000);
  s.set_max_position(32);
  s.set_activation("swiglu");
  s.set_attention_bias("none");
  s.set_tied(true);
  return s;
}

class Bench {
 public:
  Bench(std::string dir, int64_t bytes, int threads)
      : dir_(std::move(dir)), bytes_(bytes), threads_(threads) {}

  absl::Status Run() {
    HEARTH_RETURN_IF_ERROR(Fill());
    HEARTH_RETURN_IF_ERROR(Env::Real().CreateDirs(dir_));
    for (const bool direct : {false, true}) {
      const auto seconds = WriteSequentially(dir_ + "/sequential", bytes_, direct);
      HEARTH_RETURN_IF_ERROR(seconds.status());
      Print(direct ? "disk, sequential, O_DIRECT" : "disk, sequential, page cache", *seconds,
            bytes_);
    }
    HEARTH_ASSIGN_OR_RETURN(const CommittedCheckpoint done, Save());
    return Load(done);
  }

 private:
  absl::Status Fill() {
    content_.meta.step = 1;
    content_.meta.recorded.mutable_data()->set_sequence_length(16);
    content_.meta.model = Model();
    content_.threads = threads_;
    HEARTH_ASSIGN_OR_RETURN(const spec::ModelShape shape,
                            spec::ResolveModelShape(content_.meta.model, 16));
    table_ = spec::BuildParameterTable(shape);
    content_.table = &table_;
    for (const spec::Parameter& p : table_) {
      weights_.emplace_back(static_cast<size_t>(p.elements()), 0.5F);
      content_.weights.push_back(weights_.back().data());
    }
    for (int64_t at = 0; at < bytes_; at += kTensorBytes) {
      std::vector<float>& values = state_.emplace_back(kTensorBytes / sizeof(float));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i * 2654435761U % 1000003U) + static_cast<float>(at);
      }
      content_.state.push_back({"t" + std::to_string(at),
                                TensorDType::kF32,
                                {static_cast<int64_t>(values.size())},
                                values.data()});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<CommittedCheckpoint> Save() {
    BackgroundWriter writer(Env::Real(), Clock::Real(), dir_, 0);
    double begin = Now();
    writer.Reserve(content_);
    writer.AwaitIdle();
    Print("memory for the snapshot", Now() - begin, bytes_);
    begin = Now();
    HEARTH_RETURN_IF_ERROR(writer.Submit(content_));
    Print("save: training stands still", Now() - begin, bytes_);
    const auto done = writer.Take(true);
    HEARTH_RETURN_IF_ERROR(done->status());
    Print("save: written", (*done)->seconds, (*done)->bytes);
    return **done;
  }

  absl::Status Load(const CommittedCheckpoint& done) {
    double begin = Now();
    // The writer went past the page cache, so this comes from the disk.
    HEARTH_RETURN_IF_ERROR(VerifyCheckpoint(Env::Real(), done.path, done.manifest_sha256));
    Print("load: verified from the disk", Now() - begin, done.bytes);
    begin = Now();
    HEARTH_ASSIGN_OR_RETURN(
        const LoadedCheckpoint loaded,
        LoadCheckpoint(Env::Real(), {{done.path, done.step, done.manifest_sha256}},
                       content_.meta.model));
    Print("load: verified from the page cache", Now() - begin, done.bytes);
    begin = Now();
    const std::vector<TensorView>& tensors = loaded.state->tensors();
    HEARTH_RETURN_IF_ERROR(ForEachChunk(
        static_cast<int64_t>(tensors.size()), threads_, [&](int64_t i) -> absl::Status {
          const auto k = static_cast<size_t>(i);
          std::memcpy(state_[k].data(), tensors[k].data, static_cast<size_t>(tensors[k].bytes()));
          return absl::OkStatus();
        }));
    Print("load: read", Now() - begin, bytes_);
    return Env::Real().RemoveAll(done.path);
  }

  const std::string dir_;
  const int64_t bytes_;
  const int threads_;
  std::vector<spec::Parameter> table_;
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<float>> state_;
  CheckpointContent content_;
};

}  // namespace
}  // namespace hearth::trainer

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "bench_checkpoint DIR [GIB [THREADS]]\n");
    return 2;
  }
  const int64_t gib = argc > 2 ? std::atoll(argv[2]) : 2;
  const int threads = argc > 3 ? std::atoi(argv[3]) : hearth::FileThreads();
  std::printf("%lld GiB, %d threads\n", static_cast<long long>(gib), threads);
  const absl::Status status = hearth::trainer::Bench(argv[1], gib << 30, threads).Run();
  if (!status.ok()) {
    std::fprintf(stderr, "bench_checkpoint: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
