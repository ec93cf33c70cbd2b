// A job's curves as records of TensorBoard's event files. Pure: bytes that are appended to
// <logdir>/<run>/<a name with "tfevents">.
//
//   record = u64 length | u32 masked crc32c of it | data | u32 masked crc32c of data     (little
//   endian)
//
// The data is a tensorflow.Event. Its fields are written here one by one, so that nothing of
// TensorFlow is needed.
#pragma once

#include <string>
#include <string_view>

#include "hearth/v1/job.pb.h"

namespace hearth::jobctl {

// The name of the file in its run's folder. It depends only on the job, so that writing it again
// replaces it: two files in one folder would be two sets of points.
std::string EventFileName(const v1::Job& job);

// The first records of a file: its version, and the job file's fields for the page HPARAMS.
std::string EventFileHead(const v1::Job& job);

// The numbers of a step that --plot knows, by the names of their fields ("loss"), and those of
// entries ("accuracy/mmlu"). Readers see the time at which the step ended; steps that do not say it
// get the job's creation.
std::string StepEvents(const v1::Job& job, const v1::StepReport& step);

// Tells readers to forget what they read of steps after `to_step`.
std::string RewindEvent(const v1::Job& job, const v1::Rewind& rewind);

// How the job ended, for the page HPARAMS; "" while it has not ended.
std::string EndEvent(const v1::Job& job);

// One record.
std::string EventRecord(std::string_view data);

}  // namespace hearth::jobctl
