// The interface between the table of tasks and the process that writes a text with a checkpoint's
// model.
#pragma once

#include <string>

#include "hearth/v1/agent.pb.h"

namespace hearth::worker {

// One text at a time. Thread-safe; calls only queue the request, so they may be made under a lock.
class TextHost {
 public:
  virtual ~TextHost() = default;
  // None is being written. Answers go out as they come; when nothing of the process is left the
  // listener is told, once.
  virtual void Write(const v1::WriteText& request) = 0;
  // Ends the text that is being written, if one is. `why` is its last answer, UNAVAILABLE; "": it
  // has no further answer.
  virtual void Stop(const std::string& why) = 0;
};

class TextListener {
 public:
  virtual ~TextListener() = default;
  // An answer for the coordinator. False: it has no room now.
  virtual bool OnText(v1::AgentMessage answer) = 0;
  // The text is over, and the device free.
  virtual void OnTextOver() = 0;
};

}  // namespace hearth::worker
