#include "worker/trainer/rank/report_parts.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "worker/trainer/precision/quant_state.h"

namespace hearth::trainer {
namespace {

constexpr std::string_view kRoles[] = {"x", "dy", "w"};

// Elements of the operand that a site is about, in one micro-batch.
int64_t Elements(const Engine& engine, const spec::Parameter& weight, size_t role) {
  const int64_t out = weight.shape[0];
  const int64_t in = weight.shape[1];
  return role == 2 ? out * in : engine.model_rows() * (role == 0 ? in : out);
}

// The rows of `role` in the table with the largest value of each kind, without repetition.
void AddWorst(std::string_view role, v1::StepReport& report) {
  double (v1::TensorStats::*const kinds[])()
      const = {&v1::TensorStats::saturation_ratio, &v1::TensorStats::underflow_ratio,
               &v1::TensorStats::amax};
  std::vector<const v1::TensorStats*> taken;
  for (const auto kind : kinds) {
    const v1::TensorStats* worst = nullptr;
    for (const v1::TensorStats& row : report.tensors()) {
      if (row.role() == role && (worst == nullptr || (row.*kind)() > (worst->*kind)())) {
        worst = &row;
      }
    }
    if (worst != nullptr && std::find(taken.begin(), taken.end(), worst) == taken.end()) {
      taken.push_back(worst);
      *report.add_worst_tensors() = *worst;
    }
  }
}

}  // namespace

int64_t ResidentBytes() {
  long pages = 0;  // NOLINT(google-runtime-int): scanf's type
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) {
    return 0;
  }
  const int read = std::fscanf(file, "%*d %ld", &pages);  // NOLINT(cert-err34-c): checked below
  std::fclose(file);
  return read == 1 ? static_cast<int64_t>(pages) * sysconf(_SC_PAGESIZE) : 0;
}

void SetTime(google::protobuf::Timestamp& out, absl::Time time) {
  const int64_t nanos = absl::ToUnixNanos(time);
  out.set_seconds(nanos / 1000000000);
  out.set_nanos(static_cast<int32_t>(nanos % 1000000000));
}

v1::CheckpointAnnouncement MakeAnnouncement(const CommittedCheckpoint& committed) {
  v1::CheckpointAnnouncement announcement;
  announcement.set_step(committed.step);
  announcement.set_path(committed.path);
  announcement.set_bytes(committed.bytes);
  announcement.set_manifest_sha256(committed.manifest_sha256);
  announcement.set_seconds(committed.seconds);
  announcement.set_validation_loss(committed.validation_loss);
  for (const int64_t step : committed.removed_steps) {
    announcement.add_removed_steps(step);
  }
  return announcement;
}

void AddGuard(const v1::GuardCounts& counts,
              std::vector<Decision>& decisions,
              v1::StepReport& report) {
  *report.mutable_guard() = counts;
  report.set_skipped_steps(counts.non_finite() + counts.spike() + counts.grad_spike());
  for (const Decision& decision : decisions) {
    ToProto(decision, *report.add_decisions());
  }
  decisions.clear();
}

void AddTensorStats(const Engine& engine, v1::StepReport& report) {
  const QuantState& quant = engine.quant();
  const QuantState::Counts counted = quant.Counted();
  const auto n = static_cast<size_t>(quant.size());
  for (size_t k = 0; k < n; ++k) {
    const spec::Parameter& weight =
        engine.table()[static_cast<size_t>(quant.parameter(static_cast<int>(k)))];
    for (size_t role = 0; role < 3; ++role) {
      const size_t site = role * n + k;
      if (!(counted.amax[site] != 0.0F)) {
        continue;  // nothing was measured: current scaling in a step in BF16, or a GEMM in BF16
      }
      const auto elements = static_cast<double>(Elements(engine, weight, role));
      v1::TensorStats& row = *report.add_tensors();
      row.set_parameter(weight.name);
      row.set_role(std::string(kRoles[role]));
      row.set_layer(static_cast<int32_t>(weight.roles.head ? -1 : weight.layer));
      row.set_amax(counted.amax[site]);
      row.set_underflow_ratio(static_cast<double>(counted.counts[2 * site + counted.underflow]) /
                              elements);
      row.set_saturation_ratio(static_cast<double>(counted.counts[2 * site + counted.saturation]) /
                               elements);
    }
  }
  for (const std::string_view role : kRoles) {
    AddWorst(role, report);
  }
}

}  // namespace hearth::trainer
