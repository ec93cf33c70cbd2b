// Limits on the size of requests and answers: one table for all methods.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/rpc/field_rules.h"
#include "google/protobuf/message.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

// Limit of a list's page, bytes; the page ends early when it has grown past this.
inline constexpr int64_t kPageBytes = 1 << 20;
// Bytes of an entry in a list; a larger one is shortened there, and returned whole when it is
// requested by its id.
inline constexpr int64_t kListEntryBytes = 64 << 10;
// Limit of a job file, bytes.
inline constexpr int64_t kSpecBytes = 256 << 10;
// Limit of a message to the server, bytes; gRPC refuses larger ones with RESOURCE_EXHAUSTED before
// it keeps them.
inline constexpr int kReceiveBytes = 4 << 20;

// The fields that differ from the default: strings of at most 4 KiB without control characters and
// 1,024 entries. Ranges of numbers are the spec's own rules.
absl::Span<const rpc::FieldRule> RequestFieldRules();

// kInvalidArgument naming the field and the limit. Every method calls it before anything else.
absl::Status CheckRequest(const google::protobuf::Message& request);

// The job or worker for a list, without what makes it larger than kListEntryBytes.
v1::Job ListEntry(const v1::Job& job);
v1::Worker ListEntry(const v1::Worker& worker);

}  // namespace hearth::coordinator
