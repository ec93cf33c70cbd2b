#include "worker/trainer/cli/bench/load_meter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"

namespace hearth::trainer {
namespace {

constexpr double kRowMs = 8;           // of calls alone: long beside what starting a graph takes
constexpr int kProbes = 3;             // calls that say how many such a row has
constexpr int kCallsMost = 4000;       // of the smallest kernels
constexpr double kSettling = 1.0 / 3;  // share of the time
constexpr size_t kLeastTimes = 5;

// A row's begin and end.
struct Moments {
  std::unique_ptr<kernels::Event> begin, end;

  static absl::StatusOr<Moments> New(const kernels::Exec& exec) {
    Moments moments;
    HEARTH_ASSIGN_OR_RETURN(moments.begin, kernels::Event::New(exec));
    HEARTH_ASSIGN_OR_RETURN(moments.end, kernels::Event::New(exec));
    return moments;
  }
};

}  // namespace

absl::StatusOr<KernelRow> LoadMeter::Row(const KernelCall& call,
                                         double milliseconds,
                                         const KernelRows& meanwhile) const {
  HEARTH_ASSIGN_OR_RETURN(const Moments probe, Moments::New(exec_));
  HEARTH_RETURN_IF_ERROR(Launch(meanwhile));
  HEARTH_RETURN_IF_ERROR(call());  // chooses plans
  HEARTH_RETURN_IF_ERROR(probe.begin->Record(exec_));
  for (int i = 0; i < kProbes; ++i) {
    HEARTH_RETURN_IF_ERROR(call());
  }
  HEARTH_RETURN_IF_ERROR(probe.end->Record(exec_));
  // Two rounds last for longer than a graph takes to record.
  HEARTH_RETURN_IF_ERROR(Launch(meanwhile));
  HEARTH_RETURN_IF_ERROR(Launch(meanwhile));
  HEARTH_RETURN_IF_ERROR(probe.end->Wait());
  const double ms = std::max(probe.end->MillisecondsSince(*probe.begin) / kProbes, 1e-3);
  KernelRow row;
  row.calls = static_cast<int>(std::clamp(std::round(milliseconds / ms), 1.0, double{kCallsMost}));
  HEARTH_RETURN_IF_ERROR(kernels::Graph::Begin(exec_));
  absl::Status launched;
  for (int i = 0; i < row.calls && launched.ok(); ++i) {
    launched = call();
  }
  auto ended = kernels::Graph::End(exec_, "recording a measurement");
  HEARTH_RETURN_IF_ERROR(launched);
  HEARTH_RETURN_IF_ERROR(ended.status());
  row.graph = *std::move(ended);
  return row;
}

absl::Status LoadMeter::Launch(const KernelRows& rows) const {
  for (const KernelRow* row : rows) {
    HEARTH_RETURN_IF_ERROR(row->graph->Launch(exec_));
  }
  return absl::OkStatus();
}

absl::Status LoadMeter::Load(const KernelRows& rows, double seconds) const {
  if (rows.empty()) {
    return absl::OkStatus();
  }
  return RepeatAmong(*rows.front(), KernelRows(rows.begin() + 1, rows.end()), seconds).status();
}

absl::StatusOr<LoadMeter::Rate> LoadMeter::Repeat(const KernelCall& call, double seconds) const {
  HEARTH_ASSIGN_OR_RETURN(const KernelRow row, Row(call, kRowMs));
  return RepeatAmong(row, {}, seconds);
}

absl::StatusOr<LoadMeter::Rate> LoadMeter::RepeatAmong(
    const KernelRow& row,
    const KernelRows& rest,
    double seconds,
    const std::function<void()>& beside_end) const {
  std::array<Moments, 2> moments;
  for (Moments& slot : moments) {
    HEARTH_ASSIGN_OR_RETURN(slot, Moments::New(exec_));
  }
  Clock& clock = Clock::Real();
  const absl::Duration start = clock.Monotonic();
  const auto elapsed = [&] { return absl::ToDoubleSeconds(clock.Monotonic() - start); };
  const double before = joules_();
  std::vector<double> times;
  for (size_t round = 0; elapsed() < seconds || times.size() < kLeastTimes; ++round) {
    const Moments& slot = moments[round % moments.size()];
    if (round >= moments.size()) {
      HEARTH_RETURN_IF_ERROR(slot.end->Wait());
      if (elapsed() > kSettling * seconds) {
        times.push_back(slot.end->MillisecondsSince(*slot.begin) / row.calls);
      }
    }
    HEARTH_RETURN_IF_ERROR(slot.begin->Record(exec_));
    HEARTH_RETURN_IF_ERROR(row.graph->Launch(exec_));
    HEARTH_RETURN_IF_ERROR(slot.end->Record(exec_));
    HEARTH_RETURN_IF_ERROR(Launch(rest));
  }
  if (beside_end) {
    beside_end();
  }
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
  const double used = joules_() - before;
  std::sort(times.begin(), times.end());
  return Rate{times[times.size() / 2], used > 0 ? used / elapsed() : 0};
}

}  // namespace hearth::trainer
