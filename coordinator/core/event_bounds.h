// Which events of a job are kept: the newest, and of those before them the notes of users, which
// people wrote to find them again.
#pragma once

#include <cstddef>
#include <string_view>

#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

inline constexpr std::string_view kNoteEvent = "note";

struct EventBounds {
  size_t newest = 1000;  // of any type
  size_t notes = 100;    // before those; the newest of them
};

inline bool IsNote(const v1::JobEvent& event) {
  return event.type() == kNoteEvent;
}

}  // namespace hearth::coordinator
