#include "coordinator/service/api/generate_service.h"

#include <random>

#include "coordinator/service/streams/open_stream.h"
#include "coordinator/service/streams/sample_stream.h"
#include "hearth/v1/generate.grpc.pb.h"

namespace hearth::coordinator {
namespace {

class GenerateServiceImpl final : public v1::GenerateService::CallbackService {
 public:
  explicit GenerateServiceImpl(const ServiceParts& parts) : parts_(parts) {}

  grpc::ServerWriteReactor<v1::SampleCheckpointResponse>* SampleCheckpoint(
      grpc::CallbackServerContext* context, const v1::SampleCheckpointRequest* request) override {
    return OpenStream(
        parts_, context, *request,
        std::make_shared<SampleReactor>(parts_.executor, parts_.loop, parts_.inspector, samples_,
                                        *request, static_cast<int64_t>(std::random_device()())));
  }

 private:
  const ServiceParts parts_;
  WorkerSlots samples_{kSampleLimits};
};

}  // namespace

std::unique_ptr<grpc::Service> MakeGenerateService(const ServiceParts& parts) {
  return std::make_unique<GenerateServiceImpl>(parts);
}

}  // namespace hearth::coordinator
