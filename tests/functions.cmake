# What every folder's tests are added with. One test program a folder: tt_add_test(name files...) links the static library and the C shim.
# Labels, for `ctest -L` and ./check: threads (run again under ThreadSanitizer), compiler (run again as built by Clang),
# slow (left out by ./check --quick), house (about the source, not the library), vgpu (about the virtual GPU, not the library).
# ./check runs as many tests side by side as there are cores. RUN_SERIAL is for those that a busy neighbour disturbs; COST says what to
# begin with: about how many seconds the long ones take.
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

# tt_add_test_alone(name files...): without the library.
function(tt_add_test_alone name)
    add_executable(test_${name} ${ARGN})
    target_link_libraries(test_${name} PRIVATE tutti_shim)
    target_compile_definitions(test_${name} PRIVATE TUTTI_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TUTTI_BINARY_DIR="${CMAKE_BINARY_DIR}")
    set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    # Of processes that have one thread ThreadSanitizer sees nothing. What is left out runs as built by GCC.
    set(arguments "")
    if(TUTTI_SANITIZE MATCHES "thread" AND name STREQUAL "executor")
        set(arguments --gtest_filter=-algorithms.*:many_ranks.*)
    elseif(TUTTI_SANITIZE MATCHES "thread" AND name STREQUAL "program")
        set(arguments --gtest_filter=-program.*)
    elseif(TUTTI_SANITIZE MATCHES "thread" AND name STREQUAL "integration")
        set(arguments --gtest_filter=-deterministic.reductions_of_processes*)
    endif()
    if(TUTTI_SANITIZE MATCHES "address" AND name MATCHES "^(schedule|program)$")
        set(arguments --gtest_filter=-*mutants.every_wrong_one*:program.walks*) # they compute for long, in one thread
    elseif(TUTTI_SANITIZE MATCHES "address" AND name STREQUAL "integration")
        set(arguments --gtest_filter=-fault.a_call_without_a_deadline*) # ranks look at the clock for ten seconds
    elseif(TUTTI_SANITIZE MATCHES "address" AND name STREQUAL "algorithms")
        set(arguments --gtest_filter=-hierarchy.every_pair*:choose.is_the_same_for_all_roots)
    endif()
    add_test(NAME ${name} COMMAND test_${name} ${arguments})
    set(labels "")
    if(name MATCHES "^(base|net|bootstrap|program|transport|executor|communicator|integration)$")
        list(APPEND labels threads)
        add_dependencies(tests_threads test_${name})
    endif()
    if(name MATCHES "^(datatype|algorithms|program|executor|communicator|device)$")
        list(APPEND labels compiler)
    endif()
    if(name MATCHES "^(integration|trainer|train|resident|vgpu_blocking|device_run)$")
        list(APPEND labels slow)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${labels}")
    if(name MATCHES "^(integration|vgpu_blocking)$") # deadlines of parts of a second, and the clock
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
    foreach(cost "100 device_run device_calls device_graphs" "40 device_fold schedule train executor vgpu_litmus vgpu_model"
            "20 transport resident store algorithms device_traffic vgpu_machine trainer communicator bootstrap")
        if(" ${cost} " MATCHES "^ ([0-9]+) (.* )?${name} ")
            set_tests_properties(${name} PROPERTIES COST ${CMAKE_MATCH_1})
        endif()
    endforeach()
endfunction()
