// Bounds on what a trainer says before it is sent on.
#pragma once

#include <cstddef>

#include "google/protobuf/message.h"

namespace hearth::worker {

// ClipText (common/base/clip_text.h) on every string of a message, those of messages in it
// included.
void ClipTexts(google::protobuf::Message& message, size_t max_bytes);

}  // namespace hearth::worker
