// The rows of a job's `offload`: what lies in pinned memory of the host and passes through the GPU
// in pieces. Updates stream masters and states (worker/trainer/optim/streamed_pieces.h); everything
// else reads and writes those where they are, which a GPU can do. Activations leave in the forward
// pass and come back in the backward pass (worker/trainer/model/activation_lane.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "common/spec/plan/memory_plan.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

struct OffloadRow {
  std::string_view name;  // in the job file: "offload.<name>"
  BufferClass away;       // the buffers that lie in the host's memory
  std::string_view less;  // "a narrower optimizer.state": what makes them smaller; empty: nothing
  bool (v1::OffloadSpec::*get)() const;
  void (v1::OffloadSpec::*set)(bool);
};

// Rows live for ever.
absl::Span<const OffloadRow> OffloadRows();

// False of the optimizer's state where the job keeps it for whole matrices (FindWholeState), which
// do not pass in pieces.
bool MayBeAway(const v1::JobSpec& job, const OffloadRow& row);

HostClasses HostClassesOf(const v1::OffloadSpec& offload);
// The other way round; clears `offload` where nothing is away.
void SetOffload(HostClasses away, v1::JobSpec& job);
// "move less to the host: offload.masters: false": what to change where the host has too little
// memory for all that is away.
std::string LessOnHostAdvice(const HostClasses& away);

// Memory of the GPU through which an update streams what is away: while one slot is computed with,
// the other is written back and filled again.
inline constexpr int kOffloadSlots = 2;

// Slots of the GPU's memory that layers take in turn with what they keep for backward: layer l has
// slot l % kKeptSlots. What is in a slot that a later layer takes over is on the host meanwhile.
inline constexpr size_t kKeptSlots = 2;

// Bytes of a slot for `streamed` bytes of the host: a sixteenth, because nothing hides the first
// fetch and the last write; at most 64 MiB, above which copies get no faster, and no less than a
// few blocks of every state need.
int64_t OffloadSlotBytes(int64_t streamed);

}  // namespace hearth::spec
