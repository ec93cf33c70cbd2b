# Programs that find the shared libraries beside them, and the target `bundle`: build/<preset>/bundle/bundle.tar.xz, which runs on a
# machine that has neither our packages nor a compiler (scripts/bundle.sh).

# hearth_relocatable(target): its libraries are looked for in ../lib first. DT_RPATH, not DT_RUNPATH (the linker's default): only the
# former also counts for what those libraries need in turn, and Debian's have no search path of their own.
function(hearth_relocatable target)
  set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH "\$ORIGIN/../lib")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endfunction()

set(hearth_bundled hearth-coordinator hearth-worker hearth-trainer jobctl hearth-tokenizer)
if(TARGET ops)
  list(APPEND hearth_bundled ops)
endif()
foreach(program ${hearth_bundled})
  hearth_relocatable(${program})
endforeach()
get_property(hearth_gpu_tests GLOBAL PROPERTY HEARTH_GPU_TESTS)
foreach(test ${hearth_gpu_tests})
  hearth_relocatable(${test})
endforeach()

add_custom_target(bundle
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/bundle.sh --output ${CMAKE_BINARY_DIR}/bundle/bundle.tar.xz ${CMAKE_BINARY_DIR}
  DEPENDS ${hearth_bundled} ${hearth_gpu_tests}
  USES_TERMINAL VERBATIM)
