# signet_room(NAME room DEPS lower rooms... LIBS external targets...)
#
# A room is src/NAME: every .cpp below it is its library `signet_NAME`, every
# *_test.cpp its test program `NAME_test`. Headers are verified to stand alone
# by the target all_verify_interface_header_sets.

# The verifying targets are built only when asked for.
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)

# The test programs of all rooms and of tests/; not part of `all`.
add_custom_target(signet_tests)

# The public headers belong to no room's folder; this target verifies them.
file(GLOB public_headers CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/include/signet/*.h)
add_library(signet_api INTERFACE)
target_sources(signet_api INTERFACE FILE_SET HEADERS
  BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${public_headers})
target_link_libraries(signet_api INTERFACE signet_flags)

function(signet_room)
  cmake_parse_arguments(ROOM "" "NAME" "DEPS;LIBS" ${ARGN})
  set(dir ${PROJECT_SOURCE_DIR}/src/${ROOM_NAME})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${dir}/*.h)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|testing)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  # Highway re-includes *-inl.h and per-target sources; they do not stand alone.
  list(FILTER headers EXCLUDE REGEX "-inl\\.h$")

  if(NOT SIGNET_GPU)
    list(FILTER sources EXCLUDE REGEX "/gpu/")
    list(FILTER tests EXCLUDE REGEX "/gpu/")
    list(FILTER headers EXCLUDE REGEX "/gpu/")
  else()
    list(FILTER sources EXCLUDE REGEX "/null/")
    list(FILTER tests EXCLUDE REGEX "/null/")
  endif()

  set(target signet_${ROOM_NAME})
  if(NOT sources)
    file(WRITE ${CMAKE_BINARY_DIR}/${ROOM_NAME}_empty.cpp "")
    set(sources ${CMAKE_BINARY_DIR}/${ROOM_NAME}_empty.cpp)
  endif()
  add_library(${target} STATIC ${sources})
  target_sources(${target} INTERFACE FILE_SET HEADERS
    BASE_DIRS ${PROJECT_SOURCE_DIR}/src FILES ${headers})
  target_link_libraries(${target} PUBLIC signet_flags ${ROOM_LIBS})
  foreach(dep IN LISTS ROOM_DEPS)
    target_link_libraries(${target} PUBLIC signet_${dep})
  endforeach()

  if(tests)
    add_executable(${ROOM_NAME}_test EXCLUDE_FROM_ALL ${tests})
    # The support library (tests/CMakeLists.txt) names no room, so a room's
    # test builds with its own room alone; it stands before the room because
    # what is used of it may use the room.
    target_link_libraries(${ROOM_NAME}_test PRIVATE
      $<TARGET_NAME_IF_EXISTS:signet_test_support>
      $<TARGET_NAME_IF_EXISTS:signet_kernel_bench> ${target}
      GTest::gmock GTest::gtest_main)
    add_dependencies(signet_tests ${ROOM_NAME}_test)
    add_test(NAME ${ROOM_NAME} COMMAND ${ROOM_NAME}_test)
    set_tests_properties(${ROOM_NAME} PROPERTIES LABELS unit)
  endif()
endfunction()
