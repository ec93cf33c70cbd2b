# cmake -DSOURCE=<source tree> -DOUT=<header> [-DGIT=<git>] -P commit.cmake
# Writes the header with the tree's commit, 12 hex digits, "-dirty" appended when tracked files differ; "unknown" outside git. A
# header that already says so is left as it is, so that nothing is rebuilt.
set(commit "unknown")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${described})
  endif()
endif()
set(text "// Written by cmake/commit.cmake.\n#pragma once\n#define HEARTH_GIT_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
