# What `cmake --install` puts where: tools, libraries, headers, man pages, pkg-config and CMake packages.
# The perf tests and the trainer install themselves.
include(CMakePackageConfigHelpers)

install(TARGETS tutti EXPORT tutti-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tutti_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/tutti.h include/tutti_plan.h TYPE INCLUDE)

# NCCL's names, in folders of their own: programs of the machine that want NVIDIA's library and header must find those.
if(TARGET tutti_nccl)
    install(TARGETS tutti_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti)
    install(FILES include/nccl.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti)
endif()

get_property(tools DIRECTORY tools PROPERTY BUILDSYSTEM_TARGETS)
install(TARGETS ${tools} RUNTIME)

file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/*.1)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tutti-config.cmake.in ${CMAKE_BINARY_DIR}/tutti-config.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tutti-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tutti-config.cmake ${CMAKE_BINARY_DIR}/tutti-config-version.cmake
    DESTINATION ${package_dir})

set(TUTTI_PC_PRIVATE "-lsodium -lm -pthread")
if(HWLOC_FOUND)
    string(PREPEND TUTTI_PC_PRIVATE "-lhwloc ")
endif()
file(RELATIVE_PATH TUTTI_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tutti.pc.in ${CMAKE_BINARY_DIR}/tutti.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
