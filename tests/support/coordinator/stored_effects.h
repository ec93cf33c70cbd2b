// For tests of the store: the effects of a command that touches every kind of row and record.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/core/core.h"

namespace hearth::coordinator {

// When the tests' stores are opened.
inline constexpr absl::Time kStoreTime = absl::FromUnixSeconds(1'795'000'000);

// What the n-th command (from 1) of a job leaves: its row, an event, an answered request, a key, a
// worker, a record of the history and a line of the log, each with the number n.
inline Effects StoredEffects(const std::string& job_id, int64_t n) {
  Effects effects;
  JobRow& row = effects.jobs.emplace_back();
  row.record.mutable_job()->set_job_id(job_id);
  row.record.mutable_job()->mutable_spec()->set_name("name of " + job_id);
  row.record.mutable_job()->set_step(n);
  row.record.mutable_job()->set_revision(n);
  row.record.set_history_cursor(n);
  row.record.set_log_cursor(n);
  v1::JobEvent& event = effects.events.emplace_back();
  event.set_job_id(job_id);
  event.set_revision(n);
  event.set_message(std::string(40, 'e'));
  effects.requests.emplace_back().set_request_id(absl::StrCat("request-", n));
  v1::KvRecord& kv = effects.kv_puts.emplace_back();
  kv.set_job_id(job_id);
  kv.set_key(absl::StrCat("key-", n));
  effects.workers.emplace_back().record.mutable_worker()->set_worker_id(absl::StrCat("w", n));
  HistoryAppend& history = effects.history.emplace_back();
  history.job_id = job_id;
  history.record.set_cursor(n);
  history.record.mutable_step()->set_step(n);
  LogAppend& log = effects.logs.emplace_back();
  log.job_id = job_id;
  log.lines.emplace_back().set_cursor(n);
  log.lines.back().set_text(absl::StrCat("line ", n));
  return effects;
}

}  // namespace hearth::coordinator
