// A TextHost that writes nothing and remembers what it was told.
#pragma once

#include <string>
#include <vector>

#include "worker/daemon/supervise/text_host.h"

namespace hearth::worker {

class FakeTextHost : public TextHost {
 public:
  void Write(const v1::WriteText& request) override { written.push_back(request); }
  void Stop(const std::string& why) override { stopped.push_back(why); }

  std::vector<v1::WriteText> written;
  std::vector<std::string> stopped;
};

}  // namespace hearth::worker
