# splitkv_embed_templates(target)
# Adds to `target` a generated source embedded.cpp that holds the text of every templates/*.cuh
# (declared in codegen/embedded.hpp). It is rewritten when a header changes; a header that is added or
# removed is noticed by the next build.
#
# The same file is the script that writes the source:
#   cmake -D TEMPLATES=<folder> -D NAMES=a.cuh,b.cuh -D OUTPUT=<file> -P embed.cmake

function(splitkv_embed_templates target)
  set(script ${PROJECT_SOURCE_DIR}/tools/embed.cmake)
  set(folder ${PROJECT_SOURCE_DIR}/templates)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded.cpp)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.cuh)
  list(SORT headers)
  # The names stand in the command, so that a header that goes away runs it again too.
  list(TRANSFORM headers REPLACE ".*/" "" OUTPUT_VARIABLE names)
  string(JOIN "," names ${names})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D TEMPLATES=${folder} -D NAMES=${names} -D OUTPUT=${output} -P ${script}
    DEPENDS ${script} ${headers}
    COMMENT "Embedding templates/*.cuh"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

function(splitkv_write_embedded)
  if(NOT NAMES)
    message(FATAL_ERROR "no .cuh file in ${TEMPLATES}")
  endif()
  string(REPLACE "," ";" names ${NAMES})
  set(entries "")
  foreach(name IN LISTS names)
    set(header ${TEMPLATES}/${name})
    file(SIZE ${header} bytes)
    if(bytes GREATER 65000)  # some compilers stop at 64 KB a literal
      message(FATAL_ERROR "${header} is too long for one string literal: ${bytes} bytes")
    endif()
    file(READ ${header} text)
    string(FIND "${text}" ")splitkv\"" clash)
    if(NOT clash EQUAL -1)
      message(FATAL_ERROR "${header} holds the delimiter of the raw string it is embedded in")
    endif()
    string(APPEND entries "    {\"${name}\", R\"splitkv(${text})splitkv\"},\n")
  endforeach()
  file(WRITE ${OUTPUT}
    "// Written by tools/embed.cmake from templates/*.cuh.\n"
    "#include \"codegen/embedded.hpp\"\n\n"
    "namespace splitkv {\n\n"
    "namespace {\n"
    "constexpr EmbeddedFile files[] = {\n${entries}};\n"
    "}  // namespace\n\n"
    "std::span<const EmbeddedFile> embedded_templates() { return files; }\n\n"
    "}  // namespace splitkv\n")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE AND DEFINED OUTPUT)
  splitkv_write_embedded()
endif()
