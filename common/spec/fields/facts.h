// What there is to say about each field of the job file, from its row (hearth/v1/options.proto) and
// its comment in the proto: for explanations, documents, schemas and completion. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace hearth::spec {

struct FieldFacts {
  // As in the job file; elements of a list as "data.train[].path", entries of a map as
  // "optimizer.groups.NAME.lr_scale".
  std::string path;
  const google::protobuf::FieldDescriptor* field = nullptr;
  // "integer", "number", "string", "boolean", "duration", "time", "section", "list of ..." or "map
  // of ...".
  std::string type;
  std::string unit;             // "tokens"; "" = a bare number, or no number
  std::string comment;          // one line, without the sentence about the default
  std::string comment_default;  // that sentence's part after "Default"; "" = there is none
  bool required = false;
  std::string default_text;             // as the job file writes it, or a sentence; "" = none
  std::string range;                    // "> 0 and < 1"; "" = any
  std::vector<std::string_view> names;  // the only values, or keys of a map; empty = any
  std::string needs;                    // completes "acts only "; "" = always
  bool resumable = false;               // a resume may change it
  std::string resume_why;               // why, or why not; may be empty where it is not
};

// Every field of the job file in the order of the proto, sections before what lies in them.
const std::vector<FieldFacts>& JobFileFields();

// The field at `path`; indices and keys of entries may be left out or given. Null: there is none.
const FieldFacts* FindFieldFacts(std::string_view path);

// The fields directly in the section, list or map at `path` ("" = the whole file).
std::vector<const FieldFacts*> FieldsIn(std::string_view path);

// facts.names as "cpu, cuda".
std::string JoinedNames(const FieldFacts& facts);

// Whether `facts` is a section, or a list or map of such.
bool HasFieldsOfItsOwn(const FieldFacts& facts);

// The field of `type` that people know as `name` from elsewhere (FieldRow.synonyms); null: none.
const google::protobuf::FieldDescriptor* FindSynonym(std::string_view name,
                                                     const google::protobuf::Descriptor& type);

}  // namespace hearth::spec
