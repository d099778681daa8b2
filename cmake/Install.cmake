# What `cmake --install` puts down: the program with the demo model, and the
# library for embedding: public headers, one archive of every room the engine
# reaches, and a package. An embedder writes
#
#   find_package(signet REQUIRED)
#   target_link_libraries(app PRIVATE signet::signet)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The engine says what it links, and through it each room does.
set(rooms signet_engine)
get_target_property(engine_links signet_engine LINK_LIBRARIES)
foreach(entry IN LISTS engine_links)
  if(entry MATCHES "^signet_" AND NOT entry STREQUAL "signet_flags")
    list(APPEND rooms ${entry})
  endif()
endforeach()
set(room_objects "")
set(room_links "")
foreach(room IN LISTS rooms)
  list(APPEND room_objects $<TARGET_OBJECTS:${room}>)
  get_target_property(links ${room} LINK_LIBRARIES)
  list(APPEND room_links ${links})
endforeach()
list(FILTER room_links EXCLUDE REGEX "^signet_|^nlohmann_json")  # no archive
list(REMOVE_DUPLICATES room_links)

add_library(signet_library STATIC ${room_objects})
set_target_properties(signet_library PROPERTIES
  OUTPUT_NAME signet EXPORT_NAME signet LINKER_LANGUAGE CXX)
target_include_directories(signet_library INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(signet_library INTERFACE cxx_std_20)
# Only the linker meets these; `error.h` shows tl::expected to everyone.
target_link_libraries(signet_library PRIVATE ${room_links}
  INTERFACE $<INSTALL_INTERFACE:tl::expected>)
if(SIGNET_SANITIZE)
  target_link_options(signet_library INTERFACE -fsanitize=${SIGNET_SANITIZE})
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/signet)
install(TARGETS signet_library EXPORT signet_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/signet
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT signet_targets NAMESPACE signet::
  DESTINATION ${package_folder} FILE signet-targets.cmake)
set(signet_mpi_pair "")
if(mpi_FOUND)
  set(signet_mpi_pair mpi=ompi-c)
endif()
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/signet-config.cmake.in
  ${PROJECT_BINARY_DIR}/signet-config.cmake
  INSTALL_DESTINATION ${package_folder}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/signet-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/signet-config.cmake
  ${PROJECT_BINARY_DIR}/signet-config-version.cmake
  DESTINATION ${package_folder})

install(TARGETS signet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Where the program looks for it, from its own place.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo
  DESTINATION ${CMAKE_INSTALL_DATADIR}/signet/models)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
