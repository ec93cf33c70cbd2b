// For tests of the store: all that it has, as text to compare.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/positions.h"
#include "coordinator/store/store.h"

namespace hearth::coordinator {

// The records of a log, a line each; damage is a line, too.
inline std::string TextOf(const SegmentLog& log, absl::string_view title) {
  std::string text;
  SegmentLog::ReadState state;
  while (true) {
    const absl::StatusOr<SegmentLog::ReadResult> read = log.Read(state, 1 << 20);
    if (!read.ok()) {
      return absl::StrCat(text, title, " ", read.status().ToString(), "\n");
    }
    for (const SegmentLog::Record& record : read->records) {
      absl::StrAppend(&text, title, " ", record.cursor, " ", record.kind, " ",
                      absl::CHexEscape(record.payload), "\n");
    }
    if (read->at_end) {
      return text;
    }
  }
}

inline std::string TextOf(const Store& store, const LoadedState& state) {
  std::vector<std::string> lines;
  const auto add = [&lines](const char* title, const auto& records) {
    for (const auto& record : records) {
      lines.push_back(absl::StrCat(title, " ", record.ShortDebugString(), "\n"));
    }
  };
  add("job", state.core.jobs);
  add("worker", state.core.workers);
  add("request", state.core.requests);
  add("kv", state.core.kv);
  add("token", state.core.tokens);
  add("event", state.events);
  add("audit", state.audit);
  for (const v1::JobRecord& record : state.core.jobs) {
    for (const StreamKind kind : {StreamKind::kHistory, StreamKind::kLog}) {
      const std::string& job_id = record.job().job_id();
      if (const auto log = store.Find(job_id, kind); log != nullptr) {
        lines.push_back(TextOf(*log, absl::StrCat(job_id, " ", StreamName(kind))));
      }
    }
  }
  std::sort(lines.begin(), lines.end());
  std::string text = absl::StrCat("revision ", state.core.last_revision, "\n");
  for (const std::string& line : lines) {
    absl::StrAppend(&text, line);
  }
  return text;
}

}  // namespace hearth::coordinator
