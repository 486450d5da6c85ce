# CUDA's compiler. Sets TUTTI_NVCC, the nvcc of CUDA 13 (false: there is none), TUTTI_NVCC_VERSION, TUTTI_CUDA_ARCHITECTURES and
# TUTTI_CUDA_CACHED, folders of NVIDIA's wheels; defines tt_add_fatbin and tt_add_older_fatbin.

# For find_program: whether the candidate is an nvcc of CUDA 13 that compiles. Toolkits of other versions are passed over.
function(tt_nvcc_works result candidate)
    set(${result} FALSE PARENT_SCOPE)
    execute_process(COMMAND ${candidate} --version OUTPUT_VARIABLE text ERROR_QUIET)
    if(NOT text MATCHES "release 13\\.")
        return()
    endif()
    set(trial ${CMAKE_BINARY_DIR}/CMakeFiles/nvcc_trial)
    file(WRITE ${trial}.cu "extern \"C\" __global__ void trial(int *a) { a[threadIdx.x] = 0; }\n")
    execute_process(COMMAND ${candidate} -std=c++17 -fatbin -arch=sm_75 -o ${trial}.fatbin ${trial}.cu
        RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
    if(status EQUAL 0)
        set(${result} TRUE PARENT_SCOPE)
    else()
        message(STATUS "${candidate} does not compile a kernel; passed over: ${text}")
    endif()
endfunction()

# Wheels that ./check installed (cmake/cuda.sh).
set(cached $ENV{XDG_CACHE_HOME})
if(NOT cached)
    set(cached $ENV{HOME}/.cache)
endif()
file(GLOB TUTTI_CUDA_CACHED ${cached}/tutti/cuda-*/nvidia/cu13)
set(given ${TUTTI_NVCC})
find_program(TUTTI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda ${TUTTI_CUDA_CACHED} PATH_SUFFIXES bin
    VALIDATOR tt_nvcc_works DOC "nvcc of CUDA 13, which compiles the kernels; empty: a library without kernels")
if(given AND NOT given STREQUAL TUTTI_NVCC_TRIED)
    tt_nvcc_works(works ${TUTTI_NVCC})
    if(NOT works)
        message(FATAL_ERROR "TUTTI_NVCC=${TUTTI_NVCC} is no nvcc of CUDA 13 that works; "
            "give the path of one, or -DTUTTI_NVCC= for a library without kernels")
    endif()
endif()
set(TUTTI_NVCC_TRIED "${TUTTI_NVCC}" CACHE INTERNAL "the nvcc that was tried")
if(TUTTI_NVCC)
    execute_process(COMMAND ${TUTTI_NVCC} --version OUTPUT_VARIABLE TUTTI_NVCC_VERSION)
    string(REGEX REPLACE ".*, V([0-9.]+).*" "\\1" TUTTI_NVCC_VERSION "${TUTTI_NVCC_VERSION}")
    # TUTTI_NVCC may be a script that calls the toolkit's nvcc, which says where its programs are.
    execute_process(COMMAND ${TUTTI_NVCC} --dryrun -fatbin ${CMAKE_BINARY_DIR}/CMakeFiles/nvcc_trial.cu
        OUTPUT_QUIET ERROR_VARIABLE said WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/CMakeFiles)
    cmake_path(GET TUTTI_NVCC PARENT_PATH beside)
    if(said MATCHES "_HERE_=([^\n]+)")
        set(beside ${CMAKE_MATCH_1})
    endif()
    find_program(TUTTI_FATBINARY fatbinary HINTS ${beside} REQUIRED DOC "fatbinary of CUDA 13's toolkit, which lies beside its nvcc")
endif()

# As in CMAKE_CUDA_ARCHITECTURES: 90-real is code for sm_90, 90-virtual is PTX, which drivers compile for that GPU and later ones, 90 is
# both. Sanitizers see nothing of kernels: PTX alone, as the virtual GPU runs it, is made in a moment.
set(all 75 80-real 86-real 89-real 90-real 100 120-real)
if(TUTTI_SANITIZE)
    set(all 75-virtual)
endif()
set(TUTTI_CUDA_ARCHITECTURES "${all}" CACHE STRING "What the kernels are compiled for, as in CMAKE_CUDA_ARCHITECTURES")

# tt_add_fatbin(OUTPUT SOURCE ARCHITECTURE...): a rule that compiles the kernels of a .cu file. Targets of the same folder depend on OUTPUT.
# Beside it, in OUTPUT.kept: see compile-kernels.cmake. The PTX for 86 is that for 80, and the PTX for 120 that for 100, but for the number:
# their code is compiled from the same PTX, where both are asked for. That spares nvcc the longer part of its work twice.
function(tt_add_fatbin output source)
    set(code "")
    set(ptx_of_86-real 80)
    set(ptx_of_120-real 100)
    foreach(architecture IN LISTS ARGN)
        if(NOT architecture MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
            message(FATAL_ERROR "TUTTI_CUDA_ARCHITECTURES has '${architecture}'; expected 90, 90-real or 90-virtual")
        endif()
        set(number ${CMAKE_MATCH_1})
        set(kind "${CMAKE_MATCH_2}")
        set(ptx ${number})
        if("${ptx_of_${architecture}}-real" IN_LIST ARGN OR "${ptx_of_${architecture}}" IN_LIST ARGN)
            set(ptx ${ptx_of_${architecture}})
        endif()
        if(kind STREQUAL "-real")
            list(APPEND code -gencode arch=compute_${ptx},code=sm_${number})
        elseif(kind STREQUAL "-virtual")
            list(APPEND code -gencode arch=compute_${number},code=compute_${number})
        else()
            list(APPEND code -gencode arch=compute_${number},code=[compute_${number},sm_${number}])
        endif()
    endforeach()
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE source)
    cmake_path(GET output FILENAME name)
    add_custom_command(OUTPUT ${output} MAIN_DEPENDENCY ${source} DEPENDS ${TUTTI_NVCC} ${CMAKE_SOURCE_DIR}/cmake/compile-kernels.cmake DEPFILE ${output}.d
        COMMAND ${CMAKE_COMMAND} -P ${CMAKE_SOURCE_DIR}/cmake/compile-kernels.cmake -- ${output}
            ${TUTTI_NVCC} ${TUTTI_NVCC_FLAGS} ${code} -fatbin --compress-mode=size --threads 0 -MD -MF ${output}.d -MT ${output} ${source}
        COMMENT "Compiling kernels: ${name}" VERBATIM)
endfunction()
# tt_add_older_fatbin(OUTPUT IMAGE): a rule that makes of IMAGE's PTX a fat binary for drivers from CUDA 12.4 on: see older-kernels.cmake.
function(tt_add_older_fatbin output image)
    set(script ${CMAKE_SOURCE_DIR}/cmake/older-kernels.cmake)
    cmake_path(GET output FILENAME name)
    add_custom_command(OUTPUT ${output} DEPENDS ${image} ${script}
        COMMAND ${CMAKE_COMMAND} -P ${script} -- ${output} ${image} ${TUTTI_FATBINARY}
        COMMENT "Kernels for older drivers: ${name}" VERBATIM)
endfunction()
# No contraction: the kernels' results have the bits of the host's.
option(TUTTI_KERNEL_LINES "The kernels know their lines, for profilers and the virtual GPU's reports, which takes the virtual GPU twice as long to load them" ON)
set(TUTTI_NVCC_FLAGS -std=c++17 -O3 -fmad=false -Werror all-warnings -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include)
if(TUTTI_KERNEL_LINES)
    list(APPEND TUTTI_NVCC_FLAGS -lineinfo)
endif()
