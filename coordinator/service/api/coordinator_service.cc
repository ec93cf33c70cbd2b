#include "coordinator/service/api/coordinator_service.h"

#include <utility>

#include "coordinator/service/api/unary_call.h"
#include "hearth/v1/coordinator.grpc.pb.h"

namespace hearth::coordinator {
namespace {

void Fill(const TimedBackup& backup, v1::MakeBackupResponse& response) {
  const MadeBackup& made = backup.made;
  response.set_path(made.path);
  response.set_bytes(made.report.bytes);
  response.set_jobs(made.report.jobs);
  response.set_files(made.report.files);
  const int64_t seconds = absl::ToInt64Seconds(backup.took);
  response.mutable_duration()->set_seconds(seconds);
  response.mutable_duration()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(backup.took - absl::Seconds(seconds))));
  response.mutable_removed()->Add(made.removed.begin(), made.removed.end());
  response.set_kept(made.kept);
}

class CoordinatorServiceImpl final : public v1::CoordinatorService::CallbackService {
 public:
  explicit CoordinatorServiceImpl(const ServiceParts& parts) : parts_(parts) {}

  HEARTH_UNARY(MakeBackup, MakeBackupResponse) override {
    const absl::StatusOr<Admitted> caller = parts_.gate.Admit(*context, *request);
    if (!caller.ok()) {
      return FinishNow(context, caller.status());
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    parts_.backups.Make([this, reactor, response, origin = OriginOf(*caller, *request)](
                            const absl::StatusOr<TimedBackup>& backup) {
      parts_.loop.NoteCall(origin, backup.status());
      if (backup.ok()) {
        Fill(*backup, *response);
      }
      reactor->Finish(rpc::ToGrpc(backup.status()));
    });
    return reactor;
  }

 private:
  const ServiceParts parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeCoordinatorService(const ServiceParts& parts) {
  return std::make_unique<CoordinatorServiceImpl>(parts);
}

}  // namespace hearth::coordinator
