#include "worker/daemon/supervise/clip_texts.h"

#include <string>
#include <vector>

#include "common/base/clip_text.h"

namespace hearth::worker {

using google::protobuf::FieldDescriptor;

void ClipTexts(google::protobuf::Message& message, size_t max_bytes) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    const bool many = field->is_repeated();
    const int entries = many ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < entries; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        ClipTexts(many ? *reflection.MutableRepeatedMessage(&message, field, i)
                       : *reflection.MutableMessage(&message, field),
                  max_bytes);
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        const std::string text = ClipText(many ? reflection.GetRepeatedString(message, field, i)
                                               : reflection.GetString(message, field),
                                          max_bytes);
        many ? reflection.SetRepeatedString(&message, field, i, text)
             : reflection.SetString(&message, field, text);
      }
    }
  }
}

}  // namespace hearth::worker
