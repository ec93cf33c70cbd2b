// The tables of the state machine: states, legal edges, exit reasons.
#pragma once

#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/trainer.pb.h"

namespace hearth::coordinator {

struct StateRow {
  v1::JobState state;
  const char* name;  // lower case, as in filters
  bool terminal;     // ends a watch; leaves only by resume, if at all
  bool has_gang;     // ranks may exist
};
absl::Span<const StateRow> StateTable();
const StateRow& StateRowOf(v1::JobState state);

bool IsTerminal(v1::JobState state);
bool HasGang(v1::JobState state);
std::string StateName(v1::JobState state);

// True for the edges of the state diagram in docs/architecture.md; creation is not an edge.
bool IsLegalTransition(v1::JobState from, v1::JobState to);

enum class ExitClass {
  kFinished,  // all steps done
  kStopped,   // left on request with a checkpoint
  kFatal,     // would fail again: the job fails
  kPeers,     // lost its peers: blames another rank if there is one to blame
  kFailure,   // counts against max_restarts
};
struct ExitRow {
  v1::ExitReason reason;
  ExitClass exit_class;
  const char* code;  // of common/reasons, of a job that ends or restarts by it
};
absl::Span<const ExitRow> ExitTable();
const ExitRow& ExitRowOf(v1::ExitReason reason);

}  // namespace hearth::coordinator
