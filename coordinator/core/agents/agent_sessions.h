// Begins and ends the streams of agents; a stream begins with a Hello. Owns nothing; Workers owns
// the streams.
#pragma once

#include <vector>

#include "coordinator/core/agents/admission.h"
#include "coordinator/core/agents/hello_tasks.h"
#include "coordinator/core/folders/checkpoint_folders.h"
#include "coordinator/core/gangs/gang_ends.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/worker_views.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class AgentSessions {
 public:
  // All that is passed in outlives this.
  AgentSessions(Turn& turn,
                Workers& workers,
                Liveness& liveness,
                const Admission& admission,
                HelloTasks& hello_tasks,
                GangEnds& ends,
                CheckpointFolders& folders,
                WorkerViews& views)
      : turn_(turn),
        workers_(workers),
        liveness_(liveness),
        admission_(admission),
        hello_tasks_(hello_tasks),
        ends_(ends),
        folders_(folders),
        views_(views) {}

  static std::vector<CommandRow> Rows();

 private:
  void Connected(const AgentConnected& command);
  void Disconnected(const AgentDisconnected& command);
  void Goodbye(const AgentGoodbye& command);

  Turn& turn_;
  Workers& workers_;
  Liveness& liveness_;
  const Admission& admission_;
  HelloTasks& hello_tasks_;
  GangEnds& ends_;
  CheckpointFolders& folders_;
  WorkerViews& views_;
};

}  // namespace hearth::coordinator
