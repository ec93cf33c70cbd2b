#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "coordinator/store/record_frame.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {

// Records of a history or log file, which a crash or a bad disk may have cut or changed.
bool StoredFrames(std::string_view bytes) {
  const absl::Span<const uint8_t> span(reinterpret_cast<const uint8_t*>(bytes.data()),
                                       bytes.size());
  const auto size = static_cast<int64_t>(bytes.size());
  coordinator::Frame frame;
  int64_t at = 0;
  bool intact = false;
  while (coordinator::GetFrame(span, at, size, frame)) {
    if (frame.Intact()) {
      intact = true;
      std::string again;
      coordinator::PutFrame(again, frame.cursor, frame.kind, frame.payload);
      HEARTH_CHECK(again == bytes.substr(static_cast<size_t>(at), again.size()),
                   "an intact frame is what would be written");
    }
    HEARTH_CHECK(frame.size() > 0 && at + frame.size() <= size, "a frame lies in its file");
    at += frame.size();
  }
  return intact;
}

}  // namespace hearth::fuzz
