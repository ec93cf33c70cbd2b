#include <algorithm>
#include <csignal>
#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "gloo/allgather.h"
#include "gloo/allreduce.h"
#include "gloo/barrier.h"
#include "gloo/broadcast.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/store.h"
#include "gloo/transport/tcp/device.h"
#include "worker/trainer/comm/cpu_collective.h"
#include "worker/trainer/comm/host_name.h"

namespace hearth::trainer {
namespace {

std::chrono::milliseconds Milliseconds(absl::Duration d) {
  return absl::ToChronoMilliseconds(std::max(d, absl::Milliseconds(1)));
}

// Gloo's view of our key-value space. Gloo's interface has no status, so errors leave as
// exceptions, which NewGlooCollective catches; `status()` keeps the code.
class StoreAdapter : public gloo::rendezvous::Store {
 public:
  StoreAdapter(KeyValueStore& store, Clock& clock, absl::Duration timeout)
      : store_(store), clock_(clock), deadline_(clock.Monotonic() + timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    Check(store_.Put(Name(key), std::string_view(data.data(), data.size())));
  }

  std::vector<char> get(const std::string& key) override {
    absl::StatusOr<std::string> value = store_.Wait(Name(key), Left());
    if (!value.ok()) {
      Check(absl::Status(
          value.status().code(),
          absl::StrCat("rank ", key, " did not come: ", std::string(value.status().message()))));
    }
    return std::vector<char>(value->begin(), value->end());
  }

  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      get(key);
    }
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

  const absl::Status& status() const { return status_; }

 private:
  static std::string Name(const std::string& key) { return absl::StrCat("gloo/", key); }
  absl::Duration Left() { return std::max(deadline_ - clock_.Monotonic(), absl::Milliseconds(1)); }
  void Check(absl::Status status) {
    if (status.ok()) {
      return;
    }
    status_ = std::move(status);
    // tidy: allow(banned): Gloo's store has no other way to report a failure; caught in this file
    throw ::gloo::Exception(std::string(status_.message()));
  }

  KeyValueStore& store_;
  Clock& clock_;
  const absl::Duration deadline_;
  absl::Status status_;
};

// Element-wise reductions in Gloo's untyped form.
template <typename T>
void Sum(void* out, const void* a, const void* b, size_t n) {
  T* to = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  for (size_t i = 0; i < n; ++i) {
    to[i] = x[i] + y[i];
  }
}

template <typename T>
void Max(void* out, const void* a, const void* b, size_t n) {
  T* to = static_cast<T*>(out);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  for (size_t i = 0; i < n; ++i) {
    to[i] = std::max(x[i], y[i]);
  }
}

class GlooCollective : public CpuCollective {
 public:
  GlooCollective(std::shared_ptr<gloo::rendezvous::Context> context, std::string self)
      : context_(std::move(context)), self_(std::move(self)) {}

  using CpuCollective::AllReduceMax;
  using CpuCollective::AllReduceSum;

  int rank() const override { return context_->rank; }
  int world_size() const override { return context_->size; }
  std::string_view transport() const override { return "gloo"; }

  absl::Status AllReduceSum(absl::Span<float> data) override { return Reduce(data, &Sum<float>); }
  absl::Status AllReduceSum(absl::Span<double> data) override { return Reduce(data, &Sum<double>); }
  absl::Status AllReduceMax(absl::Span<int32_t> data) override {
    return Reduce(data, &Max<int32_t>);
  }
  absl::Status AllReduceMax(absl::Span<uint64_t> data) override {
    return Reduce(data, &Max<uint64_t>);
  }

  absl::Status Broadcast(absl::Span<uint8_t> data, int root) override {
    if (data.empty()) {
      return absl::OkStatus();
    }
    return Run("broadcast", data.size(), [&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(data.data(), data.size());
      options.setRoot(root);
      gloo::broadcast(options);
    });
  }

  absl::Status Barrier() override {
    return Run("barrier", 0, [&] {
      gloo::BarrierOptions options(context_);
      gloo::barrier(options);
    });
  }

 protected:
  // Without an input Gloo takes this rank's piece from its place in the output.
  absl::Status AllGatherBytes(absl::Span<uint8_t> data) override {
    return Run("all-gather", data.size(), [&] {
      gloo::AllgatherOptions options(context_);
      options.setOutput(data.data(), data.size());
      gloo::allgather(options);
    });
  }

 private:
  // The ring: which rank adds what in which order depends on the size and the world size alone.
  template <typename T>
  absl::Status Reduce(absl::Span<T> data, void (*op)(void*, const void*, const void*, size_t)) {
    if (data.empty()) {
      return absl::OkStatus();
    }
    return Run("all-reduce", data.size() * sizeof(T), [&] {
      gloo::AllreduceOptions options(context_);
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setOutput(data.data(), data.size());
      options.setReduceFunction(op);
      gloo::allreduce(options);
    });
  }

  template <typename Operation>
  absl::Status Run(const char* name, size_t bytes, const Operation& operation) {
    try {
      operation();
      return absl::OkStatus();
    } catch (const std::exception& e) {
      const std::string text = absl::StrCat(self_, ": ", name, " of ", bytes, " bytes: ", e.what());
      return absl::StrContains(text, "imed out") ? absl::DeadlineExceededError(text)
                                                 : absl::UnavailableError(text);
    }
  }

  const std::shared_ptr<gloo::rendezvous::Context> context_;
  const std::string self_;  // "rank 1 of 2 on host"
};

// Gloo writes to sockets without MSG_NOSIGNAL; a lost peer must be an error, not a signal.
void IgnoreSigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewGlooCollective(const GlooOptions& options,
                                                              KeyValueStore& store) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", options.world_size));
  }
  if (options.world_size == 1) {
    return NewSoloCollective();
  }
  IgnoreSigpipe();
  const std::string host = options.advertise_host.empty() ? "127.0.0.1" : options.advertise_host;
  const std::string self = absl::StrCat("rank ", options.rank, " of ", options.world_size, " on ",
                                        HostName(), " (", host, ")");
  std::shared_ptr<gloo::transport::Device> device;
  try {
    gloo::transport::tcp::attr attr;
    attr.hostname = host;
    device = gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(
        self, ": --advertise ", host, " is not an address of this machine: ", e.what()));
  }
  StoreAdapter adapter(store, Clock::Real(), options.rendezvous_timeout);
  try {
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.world_size);
    context->setTimeout(Milliseconds(options.rendezvous_timeout));
    context->connectFullMesh(adapter, device);
    context->setTimeout(Milliseconds(options.operation_timeout));
    return std::unique_ptr<Collective>(std::make_unique<GlooCollective>(std::move(context), self));
  } catch (const std::exception& e) {
    const absl::StatusCode code =
        adapter.status().ok() ? absl::StatusCode::kUnavailable : adapter.status().code();
    return absl::Status(code, absl::StrCat(self, ": rendezvous: ", e.what()));
  }
}

}  // namespace hearth::trainer
