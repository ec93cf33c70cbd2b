#include "common/spec/plan/step_buffers.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace hearth::spec {

const SiteBuffers& StepBuffers::Site(Slot weight, int layer) const {
  const auto found =
      std::find_if(sites.begin(), sites.end(), [weight, layer](const SiteBuffers& site) {
        return site.weight == weight && site.layer == layer;
      });
  HEARTH_CHECK(found != sites.end(), "the weight is one of a block's GEMM sites");
  return *found;
}

}  // namespace hearth::spec
