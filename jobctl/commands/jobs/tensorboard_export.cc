#include "jobctl/commands/jobs/tensorboard_export.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/client/retry.h"
#include "jobctl/commands/command_context.h"
#include "jobctl/views/plots/tensorboard.h"

namespace hearth::jobctl {
namespace {

absl::StatusOr<v1::Job> GetJob(Client& client, const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return client.Call<v1::Job>(request);
}

absl::Status WriteJob(Client& client,
                      const std::string& job_id,
                      const std::string& dir,
                      bool follow) {
  HEARTH_ASSIGN_OR_RETURN(const v1::Job job, GetJob(client, job_id));
  const std::string folder = absl::StrCat(dir, "/", job.job_id());
  HEARTH_RETURN_IF_ERROR(Env::Real().CreateDirs(folder));
  const std::string path = absl::StrCat(folder, "/", EventFileName(job));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                          Env::Real().NewWritableFile(path));
  HEARTH_RETURN_IF_ERROR(file->Append(EventFileHead(job)));
  v1::StreamMetricsRequest request;
  request.set_job_id(job.job_id());
  request.set_from_step(1);  // the steps in force, without those that a resume discarded
  request.set_follow(follow);
  absl::Status written;
  const auto once = [&](const std::function<void()>& progressed) {
    return client.StreamMetrics(request, [&](const v1::StreamMetricsResponse& response) {
      progressed();
      std::string records;
      for (const v1::MetricRecord& record : response.records()) {
        request.set_cursor(record.cursor());  // from there, should the stream break
        records +=
            record.has_step() ? StepEvents(job, record.step()) : RewindEvent(job, record.rewind());
      }
      written = file->Append(records);
      return written.ok();
    });
  };
  const absl::Status read = follow ? RetryStream(once) : once([] {});
  HEARTH_RETURN_IF_ERROR(written);
  if (Interrupted()) {
    return file->Close();
  }
  HEARTH_RETURN_IF_ERROR(read);
  HEARTH_ASSIGN_OR_RETURN(const v1::Job now, GetJob(client, job_id));
  HEARTH_RETURN_IF_ERROR(file->Append(EndEvent(now)));
  return file->Close();
}

}  // namespace

absl::StatusOr<int> WriteTensorBoard(Context& context,
                                     const std::vector<std::string>& job_ids,
                                     const std::string& dir,
                                     bool follow) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  for (const std::string& job_id : job_ids) {
    HEARTH_RETURN_IF_ERROR(WriteJob(*client, job_id, dir, follow));
  }
  if (Interrupted() && follow) {
    SayDetached(absl::StrCat("metrics -f --tensorboard ", dir), job_ids);
  } else if (!Interrupted() && !context.quiet) {
    WriteErr(absl::StrCat("tensorboard --logdir ", dir, " shows ",
                          job_ids.size() == 1 ? "it" : "them", "\n"));
  }
  return kExitOk;
}

}  // namespace hearth::jobctl
