#include "common/spec/schedule/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/table_rows.h"

namespace hearth::spec {
namespace {

double Mix(const Schedule& schedule, double remaining) {
  return schedule.min_lr_ratio + (1.0 - schedule.min_lr_ratio) * remaining;
}

double WsdFactor(const Schedule& schedule, double x) {
  return Mix(schedule, schedule.decay_shape == DecayShape::kSqrt ? 1.0 - std::sqrt(x) : 1.0 - x);
}

double CosineFactor(const Schedule& schedule, double x) {
  return Mix(schedule, 0.5 * (1.0 + std::cos(std::numbers::pi * x)));
}

double LinearFactor(const Schedule& schedule, double x) {
  return Mix(schedule, 1.0 - x);
}

double ConstantFactor(const Schedule&, double) {
  return 1.0;
}

struct DecayShapeRow {
  DecayShape shape;
  std::string_view name;
};
constexpr DecayShapeRow kDecayShapes[] = {
    {DecayShape::kLinear, "linear"},
    {DecayShape::kSqrt, "sqrt"},
};

constexpr ScheduleRow kSchedules[] = {
    {.kind = ScheduleKind::kWsd,
     .name = "wsd",
     .comment = "warm-up, constant, decay over the last decay_steps",
     .decay = DecayPlace::kAtEnd,
     .decay_part = 5,
     .min_lr_ratio = 0.0,
     .factor = WsdFactor},
    {.kind = ScheduleKind::kCosine,
     .name = "cosine",
     .comment = "warm-up, half a cosine to min_lr_ratio",
     .decay = DecayPlace::kAfterWarmup,
     .decay_part = 1,
     .min_lr_ratio = 0.1,
     .factor = CosineFactor},
    {.kind = ScheduleKind::kLinear,
     .name = "linear",
     .comment = "warm-up, straight line to min_lr_ratio",
     .decay = DecayPlace::kAfterWarmup,
     .decay_part = 1,
     .min_lr_ratio = 0.0,
     .factor = LinearFactor},
    {.kind = ScheduleKind::kConstant,
     .name = "constant",
     .comment = "warm-up, then the peak",
     .decay = DecayPlace::kNone,
     .decay_part = 1,
     .min_lr_ratio = 0.0,
     .factor = ConstantFactor},
};

const ScheduleRow& RowOf(ScheduleKind kind) {
  for (const ScheduleRow& row : kSchedules) {
    if (row.kind == kind) {
      return row;
    }
  }
  return kSchedules[0];
}

}  // namespace

absl::Span<const ScheduleRow> Schedules() {
  return kSchedules;
}

const ScheduleRow* FindSchedule(std::string_view name) {
  return FindRow(kSchedules, &ScheduleRow::name, name);
}

const ScheduleRow& RowOf(const v1::ScheduleSpec& schedule) {
  const ScheduleRow* row = FindSchedule(schedule.name());
  return row == nullptr ? kSchedules[0] : *row;
}

std::vector<std::string_view> ScheduleNames() {
  return ColumnOf(kSchedules, &ScheduleRow::name);
}

const std::vector<std::string_view>& DecayShapeNames() {
  static const auto& names =
      *new std::vector<std::string_view>(ColumnOf(kDecayShapes, &DecayShapeRow::name));
  return names;
}

Schedule MakeSchedule(const v1::JobSpec& job_spec) {
  const v1::ScheduleSpec& spec = job_spec.schedule();
  Schedule schedule;
  schedule.kind = RowOf(spec).kind;
  if (const auto* const row = FindRow(kDecayShapes, &DecayShapeRow::name, spec.decay_shape())) {
    schedule.decay_shape = row->shape;
  }
  schedule.peak = job_spec.optimizer().lr();
  schedule.total_steps = job_spec.train().steps();
  schedule.warmup_steps = spec.warmup_steps();
  schedule.decay_steps = spec.decay_steps();
  schedule.min_lr_ratio = spec.min_lr_ratio();
  return schedule;
}

double LearningRate(const Schedule& schedule, int64_t step) {
  if (step <= schedule.warmup_steps && schedule.warmup_steps > 0) {
    return schedule.peak * static_cast<double>(std::max<int64_t>(step, 0)) /
           static_cast<double>(schedule.warmup_steps);
  }
  const ScheduleRow& row = RowOf(schedule.kind);
  const int64_t decay_start = row.decay == DecayPlace::kAtEnd
                                  ? schedule.total_steps - schedule.decay_steps
                                  : schedule.warmup_steps;
  double x = 0.0;
  if (schedule.decay_steps > 0 && step > decay_start) {
    x = std::min(
        1.0, static_cast<double>(step - decay_start) / static_cast<double>(schedule.decay_steps));
  }
  return schedule.peak * row.factor(schedule, x);
}

double LearningRate(const v1::JobSpec& job_spec, int64_t step) {
  return LearningRate(MakeSchedule(job_spec), step);
}

}  // namespace hearth::spec
