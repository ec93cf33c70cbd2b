#include "common/log/task_scope.h"

namespace hearth::log {
namespace {

thread_local const TaskScope* t_current = nullptr;

}  // namespace

TaskScope::TaskScope(std::string_view job_id, int64_t epoch, int64_t rank)
    : job_id_(job_id), epoch_(epoch), rank_(rank), outer_(t_current) {
  t_current = this;
}

TaskScope::~TaskScope() {
  t_current = outer_;
}

const TaskScope* TaskScope::Current() {
  return t_current;
}

}  // namespace hearth::log
