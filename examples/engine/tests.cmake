# What the engine is held to. With a small model of random weights: the dense recomputation, answers alone and in
# batches, few pages, planted faults. With SmolLM2: transformers, where it is installed.
function(engine_properties)
  set_tests_properties(${ARGN} PROPERTIES LABELS examples SKIP_RETURN_CODE 77 TIMEOUT 900
    ENVIRONMENT "SPLITKV_NO_DISK=1;SPLITKV_TUNING_FILE=off")
endfunction()

function(engine_test name)
  add_test(NAME engine.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_test.sh ${ARGN})
  engine_properties(engine.${name})
endfunction()

find_package(GTest QUIET)
if(GTest_FOUND)
  foreach(program engine_test parts_test)
    add_executable(${program} ${program}.cpp)
    set_target_properties(${program} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    target_link_libraries(${program} PRIVATE engine_parts GTest::gtest_main)
  endforeach()
  set_target_properties(parts_test PROPERTIES OUTPUT_NAME engine_parts_test)
  add_test(NAME engine.small_model COMMAND engine_test)
  add_test(NAME engine.parts COMMAND parts_test)
  engine_properties(engine.small_model engine.parts)
else()
  engine_test(small_model skip "GoogleTest was not found when the build was configured (Debian: libgtest-dev)")
endif()

engine_test(bench bench $<TARGET_FILE:engine>)
engine_test(graph_check graph-check $<TARGET_FILE:engine>)
engine_test(refuses refuse $<TARGET_FILE:engine>)
engine_test(transformers transformers $<TARGET_FILE:engine> ${CMAKE_CURRENT_BINARY_DIR}
  ${CMAKE_BINARY_DIR}/tests/python/torch_venv)
# Which makes that environment, where it is allowed to.
set_tests_properties(engine.transformers PROPERTIES DEPENDS python.torch_install)
