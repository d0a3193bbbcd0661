# splitkv_embed_records(target)
# Adds to `target` a generated source that holds every line of runtime/tuned/*.txt that is neither blank nor a
# remark (declared in runtime/tuning_file.hpp). It is rewritten when a file changes; a file that is added or
# removed is noticed by the next build.
#
# The same file is the script that writes the source:
#   cmake -D RECORDS=<folder> -D OUTPUT=<file> -P embed_records.cmake

function(splitkv_embed_records target)
  set(script ${PROJECT_SOURCE_DIR}/tools/embed_records.cmake)
  set(folder ${PROJECT_SOURCE_DIR}/runtime/tuned)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/shipped_records.cpp)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.txt)
  list(LENGTH files count)  # stands in the command, so that a file that goes away runs it again too
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D RECORDS=${folder} -D COUNT=${count} -D OUTPUT=${output} -P ${script}
    DEPENDS ${script} ${files}
    COMMENT "Embedding runtime/tuned/*.txt"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

function(splitkv_write_records)
  file(GLOB files ${RECORDS}/*.txt)
  list(SORT files)
  set(literals "")
  foreach(file IN LISTS files)
    file(READ ${file} text)
    string(FIND "${text}" ")splitkv\"" clash)
    if(NOT clash EQUAL -1)
      message(FATAL_ERROR "${file} holds the delimiter of the raw strings it is embedded in")
    endif()
    # A literal a line: some compilers stop at 64 KB.
    file(STRINGS ${file} lines REGEX "^[^#]")
    foreach(line IN LISTS lines)
      string(APPEND literals "    R\"splitkv(${line})splitkv\" \"\\n\"\n")
    endforeach()
  endforeach()
  file(WRITE ${OUTPUT}
    "// Written by tools/embed_records.cmake from runtime/tuned/*.txt.\n"
    "#include \"runtime/tuning_file.hpp\"\n\n"
    "namespace splitkv {\n\n"
    "std::string_view shipped_records() {\n  return\n${literals}    \"\";\n}\n\n"
    "}  // namespace splitkv\n")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE AND DEFINED OUTPUT)
  splitkv_write_records()
endif()
