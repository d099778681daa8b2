# cmake -DBUILD=... -P install.cmake: installs into a folder of its own, builds
# examples/ against it and looks at what the example says.

function(run output)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status
    OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${out}${err}")
  endif()
  set(${output} "${out}" PARENT_SCOPE)
endfunction()

set(work ${BUILD}/install_test)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})
run(ignored ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

# Nothing but the public headers, and each stands alone.
file(GLOB_RECURSE headers RELATIVE ${prefix}/${INCLUDE} ${prefix}/${INCLUDE}/*)
file(GLOB public RELATIVE ${SOURCE}/include ${SOURCE}/include/signet/*.h)
if(NOT headers STREQUAL public)
  message(FATAL_ERROR "installed headers: ${headers}\nwant: ${public}")
endif()
foreach(header IN LISTS headers)
  file(WRITE ${work}/alone.cpp "#include \"${header}\"\n")
  run(ignored ${COMPILER} -std=c++20 -Wall -Wextra -Werror -fsyntax-only
    -I${prefix}/${INCLUDE} ${work}/alone.cpp)
endforeach()

run(ignored ${CMAKE_COMMAND} -S ${SOURCE}/examples -B ${work}/examples
  -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
  -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DCMAKE_PREFIX_PATH=${prefix}
  -DCUDAToolkit_NVCC_EXECUTABLE=${CUDA})
file(STRINGS ${work}/examples/CMakeCache.txt found REGEX "^signet_DIR")
if(NOT found MATCHES "=${prefix}/")
  message(FATAL_ERROR "another package was found: ${found}")
endif()
run(ignored ${CMAKE_COMMAND} --build ${work}/examples)

# Both choose devices alike, and the demo is the installed one.
set(known " too much astonished to see it so much as to say -- '")
set(hello ${work}/examples/hello)
set(demo ${prefix}/${DATA}/signet/models/demo)
run(said ${hello} ${demo} "Alice was" 32)
run(printed ${prefix}/${BIN}/signet run demo -p "Alice was" -n 32)
if(NOT said STREQUAL printed)
  message(FATAL_ERROR "the example says:\n${said}\nthe program:\n${printed}")
endif()
string(FIND "${said}" "${known}" at)
if(NOT at EQUAL 0)
  message(FATAL_ERROR "got:\n${said}\nwant a text that begins with:\n${known}")
endif()

# An error is a value, and the example ends as the program would.
execute_process(COMMAND ${hello} ${work}/nowhere "Alice was"
  RESULT_VARIABLE status ERROR_VARIABLE err OUTPUT_QUIET)
if(NOT status EQUAL 3 OR NOT err MATCHES "^source_not_found: ")
  message(FATAL_ERROR "ended with ${status}, want 3: ${err}")
endif()

file(REMOVE_RECURSE ${work})
