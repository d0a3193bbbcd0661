# Read by every preset before the project: compile through ccache where it is installed.
find_program(SPLITKV_CCACHE ccache)
if(SPLITKV_CCACHE)
  foreach(language C CXX)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${SPLITKV_CCACHE})
    endif()
  endforeach()
endif()
