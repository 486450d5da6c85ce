# What the folders add their tests with. All that ./check and ctest need to know of a test stands beside it, in its folder.
#
# tt_add_test(NAME FILES... [LABELS LABEL...] [SECONDS N] [SERIAL] [THREAD_FILTER F] [ADDRESS_FILTER F]): a GoogleTest program, test_NAME,
# with the library and the C shim.
#   LABELS    threads: runs again under ThreadSanitizer. compiler: runs again as built by Clang. once: not under sanitizers.
#             slow: left out by ./check --quick. house: about the source, not the library. vgpu: about the virtual GPU, not the library.
#             untimed: what it finds depends on no clock and no other process: ./check runs it with what other stages leave of the processors
#   SECONDS   about how long it takes, where that is long: ./check runs as many tests side by side as there are cores, the longest first
#   SERIAL    alone, since a busy neighbour disturbs it
#   THREAD_FILTER, ADDRESS_FILTER   GoogleTest's filter under that sanitizer; what it leaves out runs as built by GCC
find_package(GTest REQUIRED)
add_library(tutti_shim STATIC ${CMAKE_CURRENT_LIST_DIR}/shim.cpp)
target_link_libraries(tutti_shim PUBLIC GTest::gtest)
target_include_directories(tutti_shim PUBLIC ${CMAKE_CURRENT_LIST_DIR})
if(TUTTI_SANITIZE) # which do not look at the shim itself
    target_compile_definitions(tutti_shim PRIVATE TT_SANITIZED)
endif()

add_custom_target(tests_threads) # the test programs labelled threads, and what they need

function(tt_add_test name)
    tt_add_test_alone(${name} ${ARGN})
    target_link_libraries(test_${name} PRIVATE tutti_static)
endfunction()

# tt_add_test_alone(...): without the library.
function(tt_add_test_alone name)
    cmake_parse_arguments(PARSE_ARGV 1 given "SERIAL" "SECONDS;THREAD_FILTER;ADDRESS_FILTER" "LABELS")
    add_executable(test_${name} ${given_UNPARSED_ARGUMENTS})
    target_link_libraries(test_${name} PRIVATE tutti_shim)
    target_compile_definitions(test_${name} PRIVATE TUTTI_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TUTTI_BINARY_DIR="${CMAKE_BINARY_DIR}")
    set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    set(filter "")
    if(TUTTI_SANITIZE MATCHES "thread")
        set(filter ${given_THREAD_FILTER})
    elseif(TUTTI_SANITIZE MATCHES "address")
        set(filter ${given_ADDRESS_FILTER})
    endif()
    if(filter)
        set(filter --gtest_filter=${filter})
    endif()
    add_test(NAME ${name} COMMAND test_${name} ${filter})
    set_tests_properties(${name} PROPERTIES LABELS "${given_LABELS}")
    if("threads" IN_LIST given_LABELS)
        add_dependencies(tests_threads test_${name})
    endif()
    if(given_SECONDS)
        set_tests_properties(${name} PROPERTIES COST ${given_SECONDS})
    endif()
    if(given_SERIAL)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
endfunction()

# tt_skip_test(NAME WHY [LABELS...]): what cannot be tried here is a test that is skipped and says why.
function(tt_skip_test name why)
    add_test(NAME ${name}_skipped COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
    set_tests_properties(${name}_skipped PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: " LABELS "${ARGN}")
endfunction()

# tt_why_no_kernels(RESULT): why no kernel of the library can run on a virtual GPU here; empty: they can.
function(tt_why_no_kernels result)
    set(${result} "" PARENT_SCOPE)
    if(NOT TARGET tutti_image)
        set(${result} "the kernels are not built (nvcc and cuda.h of CUDA 13)" PARENT_SCOPE)
    elseif(NOT TARGET vgpu_cuda)
        set(${result} "the virtual GPU is not built (TUTTI_VIRTUAL_GPU)" PARENT_SCOPE)
    elseif(NOT VGPU_LOADS_ZSTD)
        set(${result} "the virtual GPU loads no kernels that are compressed by zstd: libzstd was not found (libzstd-dev)" PARENT_SCOPE)
    endif()
endfunction()
