# hearth_proto(name [GRPC] SRCS a.proto ... DEPS ...): C++ from protos under proto/, generated into <build>/gen.
# GRPC also generates the service stubs. Generated code is compiled without our warnings.
find_program(HEARTH_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

function(hearth_proto name)
  cmake_parse_arguments(A "GRPC" "" "SRCS;DEPS" ${ARGN})
  set(gen ${CMAKE_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${gen})
  set(outputs)
  foreach(src ${A_SRCS})
    string(REGEX REPLACE "\\.proto$" "" stem ${src})
    set(outs ${gen}/${stem}.pb.cc ${gen}/${stem}.pb.h)
    set(args --cpp_out=${gen})
    if(A_GRPC)
      set(outs ${gen}/${stem}.grpc.pb.cc ${gen}/${stem}.grpc.pb.h)
      set(args --grpc_out=${gen} --plugin=protoc-gen-grpc=${HEARTH_GRPC_PLUGIN})
    endif()
    file(GLOB_RECURSE all_protos CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.proto)
    add_custom_command(OUTPUT ${outs}
      COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR}/proto ${args} ${CMAKE_SOURCE_DIR}/proto/${src}
      DEPENDS ${all_protos} COMMENT "protoc ${src}" VERBATIM)
    list(APPEND outputs ${outs})
  endforeach()
  add_library(${name} STATIC ${outputs})
  target_include_directories(${name} SYSTEM PUBLIC ${gen})
  target_link_libraries(${name} PUBLIC ${A_DEPS})
endfunction()
