// Stacks of all threads of this process, for a log: each thread writes its own in a signal handler.
#pragma once

#include <string>
#include <vector>

namespace hearth::trainer {

// Once, before DumpStacks, from main(): installs the handler (SIGRTMIN + 4) and loads what
// unwinding needs.
void PrepareStacks();

// A line for each thread: its id, its name and its calls, innermost first. A thread that does not
// answer within a quarter of a second (it is stuck in the kernel) has a line that says so. Takes
// memory: a thread that hangs inside malloc makes this hang, so set a limit (alarm(2)) before.
std::vector<std::string> DumpStacks();

// Whether a thread of this process other than the caller runs, waits for a CPU, or waits for a
// disk.
bool AnotherThreadRuns();

}  // namespace hearth::trainer
