// Ctrl-C detaches from a job; it does not stop it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hearth::jobctl {

// Calls `handler` in a thread of its own on the first SIGINT; the second one ends the process at
// once. Call before any thread is started.
void OnInterrupt(std::function<void()> handler);
void BlockInterrupts();
bool Interrupted();
// Says on stderr that the jobs continue and that "jobctl `command` JOB..." follows them again.
void SayDetached(const std::string& command, const std::vector<std::string>& job_ids);

}  // namespace hearth::jobctl
