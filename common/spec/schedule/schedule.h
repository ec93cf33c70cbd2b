// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

enum class ScheduleKind : uint8_t { kWsd, kCosine, kLinear, kConstant };
enum class DecayShape : uint8_t { kLinear, kSqrt };

// A resolved schedule in plain numbers.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kWsd;
  DecayShape decay_shape = DecayShape::kLinear;
  double peak = 0.0;
  int64_t total_steps = 0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  double min_lr_ratio = 0.0;
};

enum class DecayPlace : uint8_t { kNone, kAfterWarmup, kAtEnd };

struct ScheduleRow {
  ScheduleKind kind;
  std::string_view name;
  std::string_view comment;
  DecayPlace decay;  // which steps decay_steps names; kNone: the key says nothing
  // Defaults: decay_steps is this part of train.steps (1 / decay_part, at most all steps after
  // warm-up), and min_lr_ratio.
  int64_t decay_part;
  double min_lr_ratio;
  // Learning rate over the peak after warm-up; x in [0, 1] is the fraction of the decay that is
  // over.
  double (*factor)(const Schedule& schedule, double x);
};

absl::Span<const ScheduleRow> Schedules();
const ScheduleRow* FindSchedule(std::string_view name);
// The row that the spec names; an unknown name counts as the first row's.
const ScheduleRow& RowOf(const v1::ScheduleSpec& schedule);
std::vector<std::string_view> ScheduleNames();
const std::vector<std::string_view>& DecayShapeNames();

// Expects a resolved spec (unset fields count as their defaults).
Schedule MakeSchedule(const v1::JobSpec& job_spec);

// Learning rate of update `step`, 1-based.
//   step <= warmup   peak * step / warmup
//   wsd              peak until total - decay, then peak * (min + (1 - min) * shape(x)) with
//                    x = (step - (total - decay)) / decay
//   cosine, linear   the same with x = (step - warmup) / decay, at most 1: it ends at peak * min
// Steps beyond the end keep the last rate.
double LearningRate(const Schedule& schedule, int64_t step);
double LearningRate(const v1::JobSpec& job_spec, int64_t step);

}  // namespace hearth::spec
