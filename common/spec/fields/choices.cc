#include "common/spec/fields/choices.h"

namespace hearth::spec {

bool WantsDeterministic(const v1::TrainSpec& train) {
  return train.deterministic() == "true";
}

}  // namespace hearth::spec
