// The role that each call asks for: the rows that the methods of the API state ((hearth.v1.call) in
// the protos), found by the request's type. Each call has a request type of its own.
#pragma once

#include <string>

#include "google/protobuf/descriptor.h"
#include "hearth/v1/options.pb.h"

namespace hearth::coordinator {

struct Call {
  const google::protobuf::MethodDescriptor* method;
  v1::CallRow row;
};

// The call whose request is a message of this type; null if no call takes it. Thread-safe.
const Call* FindCall(const google::protobuf::Descriptor* request);

// "" if each call of hearth.v1 has a role and a request type of its own, else what is wrong.
std::string CallTableProblem();

// "operator"; "nobody" for ROLE_UNSPECIFIED.
std::string RoleName(v1::Role role);

// Whether a caller of role `has` may make a call that asks for `needs`. Roles of people include the
// ones below them; a worker's includes none, and is included in none.
bool RoleAllows(v1::Role has, v1::Role needs);

}  // namespace hearth::coordinator
